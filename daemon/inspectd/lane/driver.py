"""Carries out what a lane decides: sends frames to the model child, keeps its clock, hands outcomes to the lines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from inspectd.classnames import class_name
from inspectd.errors import WorkerError
from inspectd.lane.lane import Action, Cancel, Finish, Kill, Lane, Release, Start
from inspectd.records import Box, Code, Detection, Done, Failed, Frame, ModelFacts, ModelRun, Outcome
from inspectd.worker.channel import Message, understood
from inspectd.worker.frames import PoolSpec
from inspectd.worker.ports import Later, MakeHost, Timer

log = logging.getLogger(__name__)

Reader = tuple[str, int]
"""Who reads a slot: model and attempt."""
_FINAL = {"output", "stale"}
"""Answers that another attempt would only repeat."""


class FrameOwner(Protocol):
    """A camera's line, as a lane needs it."""

    def pools(self) -> list[tuple[PoolSpec, int]]:
        """Pools whose slots may be asked about, with their descriptors."""

    def read(self, frame: Frame, reader: Reader) -> None:
        """One more reader of the frame's slot. Raises WorkerError if the slot was given away."""

    def release(self, frame: Frame, reader: Reader) -> None:
        """The reader is done with the slot."""

    def finished(self, frame: Frame, model: str, outcome: Outcome) -> None:
        """The model's word on the frame."""

    def model_admitted(self) -> None:
        """A model's child has so and so many requests: there may be need of more slots."""


class LaneDriver:
    """One model: its lane, its child, its timer."""

    def __init__(
        self,
        lane: Lane,
        task: str,
        spec: dict[str, Any],
        make_host: MakeHost,
        later: Later,
        clock: Callable[[], float],
    ) -> None:
        self.lane, self.name, self._task, self._spec = lane, lane.policy.model, task, spec
        self.facts: ModelFacts | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Called when the child was admitted, lost or given up."""
        self.on_first_file: Callable[[str], None] = lambda _: None
        """Called with the hash of the model file when the first child was admitted with it."""
        self._pinned: str | None = None
        """From then on this file is held to: another one under the same name is another recipe."""
        self.restarts = 0
        """Children that are gone."""
        self.repair: str | None = None
        """Why there is no child and none is expected soon."""
        self._clock = clock
        self._later = later
        self._timer: Timer | None = None
        self._timer_due_s: float | None = None
        self._owners: Mapping[str, FrameOwner] = {}
        self._unreaped: dict[int, list[Release]] = {}
        """By life: slots that stuck children may still read."""
        self.host = make_host(self)

    def start(self, owners: Mapping[str, FrameOwner]) -> None:
        """Start the child for these cameras."""
        self._owners = owners
        self.host.start()

    @property
    def is_settled(self) -> bool:
        """Whether the model is admitted, or its repair is reported: nobody has to wait for it."""
        return self.facts is not None or self.repair is not None

    def offer(self, frame: Frame, deadline_s: float) -> None:
        """Give a frame; the owner's `finished` is called exactly once, by the deadline at the latest."""
        self._act(self.lane.offer(frame, deadline_s, self._clock()))

    def add_pool(self, spec: PoolSpec, descriptor: int) -> None:
        """Tell the child of a pool, if there is a child (a new one is told of all)."""
        if self.facts is not None:
            self.host.send({"t": "pool", "spec": asdict(spec)}, (descriptor,))

    def forget_pool(self, spec: PoolSpec) -> None:
        """Nobody will ask about this pool any more."""
        if self.facts is not None:
            self.host.send({"t": "forget", "camera": spec.camera, "pool": spec.pool})

    def describe(self, outcome: Outcome) -> ModelRun:
        """One entry of models[] in the result."""
        facts = outcome.by if isinstance(outcome, Done) else self.facts
        return ModelRun(
            model=self.name,
            task=self._task,
            device=facts.device if facts else None,
            precision=facts.precision if facts else None,
            hash=facts.hash if facts else None,
            duration_s=outcome.duration_s if isinstance(outcome, Done) else None,
            attempts=outcome.attempts,
            outcome=outcome.kind,
        )

    def on_hello(self) -> None:
        """Host: the child listens."""
        pinned = {} if self._pinned is None else {"sha256": self._pinned}
        self.host.send({"t": "load", "spec": self._spec | pinned})

    def on_message(self, message: Message) -> None:
        """Host: an answer, or the admission."""
        if message.get("t") == "admitted":
            with understood(f"model {self.name}"):
                facts = ModelFacts(**{**message["facts"], "classes": tuple(message["facts"]["classes"])})
            self._admit(facts)
        elif message.get("t") == "answer":
            self._answer(message)
        else:
            raise WorkerError(f"model {self.name}: unknown message {message.get('t')!r}")

    def on_ending(self) -> None:
        """Host: the child is dead: begin nothing more on it."""
        self.lane.hold()

    def on_gone(self, reason: str, *, life: int, reaped: bool) -> None:
        """Host: the child is gone."""
        self.facts = None
        self.restarts += 1
        actions = self.lane.child_gone(f"{self.name}: {reason}", self._clock())
        if not reaped:
            self._unreaped[life] = [action for action in actions if isinstance(action, Release)]
            actions = [action for action in actions if not isinstance(action, Release)]
        self._act(actions)
        if self.host.in_repair:
            self.repair = f"{self.name}: no model process: {reason}"
            self._act(self.lane.give_up(self.repair))
        self.on_change()

    def on_reaped(self, life: int) -> None:
        """Host: the stuck child has ended: its slots are free now."""
        self._act(self._unreaped.pop(life, []))

    def end(self, reason: str) -> None:
        """The daemon stops: what still waits is answered now."""
        self._act(self.lane.give_up(reason))

    def _admit(self, facts: ModelFacts) -> None:
        if self._pinned is None:
            self._pinned = facts.hash
            self.on_first_file(facts.hash)
        self.facts = facts
        self.repair = None
        self.host.ready()
        for owner in self._owners.values():
            for spec, descriptor in owner.pools():
                self.add_pool(spec, descriptor)
        log.info(
            "model %s: admitted on %s (%s, %d requests, %.1f ms an inference at warm-up)",
            self.name,
            facts.device,
            facts.precision,
            facts.requests,
            facts.warmup_p95_s * 1000,
        )
        self._act(self.lane.child_ready(facts.requests, self._clock()))
        for owner in self._owners.values():
            owner.model_admitted()
        self.on_change()

    def _answer(self, message: Message) -> None:
        with understood(f"model {self.name}"):
            attempt, word = int(message["a"]), str(message["k"])
            frame = self.lane.frame_of(attempt)
            if frame is not None and (message["n"], message["g"]) != (frame.frame_id, frame.generation):
                word, message["why"] = "stale", f"answer for frame {message['n']}, asked was {frame.frame_id}"
            outcome = self._done(message) if word == "done" else _failed(word, str(message["why"]))
        self._act(self.lane.answer(attempt, outcome, self._clock(), again=word not in _FINAL))
        if isinstance(outcome, Failed) and word == "device":
            self.host.kill(f"device error: {outcome.reason}")

    def _done(self, message: Message) -> Done:
        facts = self.facts
        if facts is None:
            raise WorkerError(f"model {self.name}: an answer before the admission")
        detections = tuple(_detection(row, facts.classes, self.name) for row in message["d"])
        return Done(detections, float(message["s"]), by=facts)

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Start(attempt, frame):
                    self._start(attempt, frame)
                case Cancel(attempt):
                    self.host.send({"t": "cancel", "a": attempt})
                case Release(attempt, frame):
                    self._owners[frame.camera].release(frame, (self.name, attempt))
                case Finish(frame, outcome):
                    self._owners[frame.camera].finished(frame, self.name, outcome)
                case Kill(reason):
                    self.host.kill(reason)
        self._set_timer()

    def _start(self, attempt: int, frame: Frame) -> None:
        self._owners[frame.camera].read(frame, (self.name, attempt))
        fields = {name: getattr(frame, name) for name in Frame.__slots__}
        self.host.send({"t": "infer", "a": attempt, "f": fields})

    def _set_timer(self) -> None:
        """A timer that fires too early costs less than to set it anew at every answer."""
        due_s = self.lane.next_due_s()
        if due_s is None or (self._timer_due_s is not None and self._timer_due_s <= due_s):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = due_s
        self._timer = self._later(max(0.0, due_s - self._clock()), self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_due_s = None, None
        self._act(self.lane.tick(self._clock()))


def _failed(word: str, why: str) -> Failed:
    return Failed(Code.MODEL_OUTPUT if word == "output" else Code.MODEL_ERROR, why)


def _detection(row: Sequence[float], classes: Sequence[str], model: str) -> Detection:
    class_id, confidence, x, y, w, h = row
    if class_id < 0:
        raise ValueError(f"class {class_id}")
    return Detection(int(class_id), class_name(classes, int(class_id)), confidence, Box(x, y, w, h), model)
