"""Carries out what a lane decides: sends frames to the model's child, keeps its clock, hands outcomes to the lines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from inspectd.classnames import class_name
from inspectd.errors import WorkerError
from inspectd.lane.actions import Action, Cancel, Finish, Kill, Release, Start, Tell
from inspectd.lane.lane import Lane
from inspectd.lane.skip import SkipLevel
from inspectd.records import Box, Code, Detection, Done, Failed, Frame, ModelFacts, ModelRun, Outcome
from inspectd.worker.channel import Message, understood
from inspectd.worker.crew import Crew
from inspectd.worker.crewports import Memory, RepairPolicy
from inspectd.worker.frames import PoolSpec
from inspectd.worker.modelchild import ModelChild
from inspectd.worker.ports import Later, MakeHost, Supervised, Timer

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
    """One model: its lane, its children, its timer."""

    def __init__(
        self,
        lane: Lane,
        task: str,
        spec: dict[str, Any],
        make_host: MakeHost,
        later: Later,
        clock: Callable[[], float],
        repair: RepairPolicy = RepairPolicy(),  # noqa: B008 - frozen
        memory: Memory = Memory(),  # noqa: B008 - frozen
    ) -> None:
        self.lane, self.name, self._task = lane, lane.policy.model, task
        self.on_change: Callable[[], None] = lambda: None
        """Called when the child was admitted, lost or given up."""
        self.repair: str | None = None
        """Why there is no child and none is expected soon."""
        self._clock = clock
        self._later = later
        self._timer: Timer | None = None
        self._timer_due_s: float | None = None
        self._owners: Mapping[str, FrameOwner] = {}
        self._reading: dict[int, ModelChild] = {}
        """By attempt: who reads its slot."""
        self._unreaped: dict[tuple[ModelChild, int], list[Release]] = {}
        """By child and life: slots that stuck processes may still read."""
        self.crew = Crew(self.name, spec, repair, self, make_host, later, clock, memory)

    def start(self, owners: Mapping[str, FrameOwner]) -> None:
        """Start the child for these cameras."""
        self._owners = owners
        self.crew.start()

    async def stop(self, grace_s: float) -> None:
        """End every child for good."""
        await self.crew.stop(grace_s)

    @property
    def host(self) -> Supervised:
        """Supervisor of the child that serves."""
        return self.crew.serving.host

    @property
    def facts(self) -> ModelFacts | None:
        """Facts of the child that serves; None: there is none."""
        return self.crew.serving.facts

    @property
    def restarts(self) -> int:
        """Children that broke."""
        return self.crew.restarts

    @property
    def absence(self) -> str:
        """Why there is no child that serves, in words."""
        return self.host.trouble or "is being loaded"

    @property
    def fault(self) -> str | None:
        """Why frames get no answer of this model now, in words; None if they do."""
        return self.absence if self.facts is None else self.lane.breaker.reason or None

    @property
    def is_settled(self) -> bool:
        """Whether the model is admitted, or its repair is reported: nobody has to wait for it."""
        return self.facts is not None or self.repair is not None

    def offer(self, frame: Frame, deadline_s: float) -> None:
        """Give a frame; the owner's `finished` is called exactly once, by the deadline at the latest."""
        self._act(self.lane.offer(frame, deadline_s, self._clock()))

    def add_pool(self, spec: PoolSpec, descriptor: int) -> None:
        """Tell the children of a pool, if there are any (a new one is told of all)."""
        for child in self.crew.present:
            _tell_pool(child, spec, descriptor)

    def forget_pool(self, spec: PoolSpec) -> None:
        """Nobody will ask about this pool any more."""
        for child in self.crew.present:
            child.host.send({"t": "forget", "camera": spec.camera, "pool": spec.pool})

    def level(self, camera: str) -> SkipLevel | None:
        """How many of the camera's frames the device can bear; None: they are never left out."""
        return self.lane.levels.get(camera)

    def note_skipped(self) -> None:
        """A frame for this model was left out by the skip policy."""
        self.lane.note_skipped()

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

    def end(self, reason: str) -> None:
        """The daemon stops: what still waits is answered now."""
        self._act(self.lane.give_up(reason))

    # The crew speaks

    def serves(self, child: ModelChild) -> int:
        """Crew: a child was admitted and gets every new frame."""
        facts = self._facts_of(child)
        self.repair = None
        for owner in self._owners.values():
            for spec, descriptor in owner.pools():
                _tell_pool(child, spec, descriptor)
        self._act(self.lane.child_ready(facts.requests, self._clock()))
        for owner in self._owners.values():
            owner.model_admitted()
        return self.lane.child

    def heard(self, child: ModelChild, message: Message) -> None:
        """Crew: an answer."""
        if message.get("t") != "answer":
            raise WorkerError(f"model {self.name}: unknown message {message.get('t')!r}")
        with understood(f"model {self.name}"):
            attempt, word = int(message["a"]), str(message["k"])
            frame = self.lane.frame_of(attempt)
            if self._reading.get(attempt, child) is not child:
                raise WorkerError(f"model {self.name}: answer to attempt {attempt}, which another process has")
            if frame is not None and (message["n"], message["g"]) != (frame.frame_id, frame.generation):
                word, message["why"] = "stale", f"answer for frame {message['n']}, asked was {frame.frame_id}"
            outcome = self._done(child, message) if word == "done" else _failed(word, str(message["why"]))
        again, blameless = word not in _FINAL, word == "stale"
        if isinstance(outcome, Failed) and word == "device":
            child.host.kill(f"device error: {outcome.reason}")
            self._hold(child)
        self._act(self.lane.answer(attempt, outcome, self._clock(), again=again, blameless=blameless))

    def ending(self) -> None:
        """Crew: the child that serves is dead, or to be ended: begin nothing more on it."""
        self.lane.hold()

    def gone(self, child: ModelChild, reason: str, life: int, *, reaped: bool) -> None:
        """Crew: a child that has served is gone."""
        actions = self.lane.child_gone(f"{self.name}: {reason}", self._clock(), child.number)
        if not reaped:
            self._unreaped[child, life] = [action for action in actions if isinstance(action, Release)]
            actions = [action for action in actions if not isinstance(action, Release)]
        self._act(actions)

    def reaped(self, child: ModelChild, life: int) -> None:
        """Crew: a stuck child has ended: its slots are free now."""
        self._act(self._unreaped.pop((child, life), []))

    def unavailable(self, reason: str) -> None:
        """Crew: no device works: frames are answered at once."""
        self.repair = reason
        self._act(self.lane.give_up(reason))

    def changed(self) -> None:
        """Crew: a child was admitted, lost or given up."""
        self.on_change()

    def is_idle(self) -> bool:
        """Whether no frame waits or is at work."""
        return self.lane.waiting == 0 and self.lane.busy == 0

    def held_by(self, number: int) -> int:
        """How many frames a child still has."""
        return self.lane.held_by(number)

    def _hold(self, child: ModelChild) -> None:
        if child is self.crew.serving:
            self.lane.hold()

    def _facts_of(self, child: ModelChild) -> ModelFacts:
        if child.facts is None:
            raise WorkerError(f"model {self.name}: an answer before the admission")
        return child.facts

    def _done(self, child: ModelChild, message: Message) -> Done:
        facts = self._facts_of(child)
        detections = tuple(_detection(row, facts.classes, self.name) for row in message["d"])
        return Done(detections, float(message["s"]), by=facts)

    def _child(self, number: int | None) -> ModelChild:
        """Find a child by its number; None: the one that serves."""
        children = (child for child in self.crew.leaving if child.number == number)
        return next(children, self.crew.serving)

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Start(attempt, frame):
                    self._start(attempt, frame)
                case Cancel(attempt):
                    self._reading[attempt].host.send({"t": "cancel", "a": attempt})
                case Release(attempt, frame):
                    self._reading.pop(attempt, None)
                    self._owners[frame.camera].release(frame, (self.name, attempt))
                case Finish(frame, outcome):
                    self._owners[frame.camera].finished(frame, self.name, outcome)
                case Kill(reason, number):
                    self._child(number).host.kill(reason)
                case Tell(text, is_good):
                    log.log(logging.INFO if is_good else logging.WARNING, "%s", text)
        self._set_timer()
        self.crew.settle()

    def _start(self, attempt: int, frame: Frame) -> None:
        self._owners[frame.camera].read(frame, (self.name, attempt))
        fields = {name: getattr(frame, name) for name in Frame.__slots__}
        self._reading[attempt] = self.crew.serving
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


def _tell_pool(child: ModelChild, spec: PoolSpec, descriptor: int) -> None:
    child.host.send({"t": "pool", "spec": asdict(spec)}, (descriptor,))


def _failed(word: str, why: str) -> Failed:
    return Failed(Code.MODEL_OUTPUT if word == "output" else Code.MODEL_ERROR, why)


def _detection(row: Sequence[float], classes: Sequence[str], model: str) -> Detection:
    class_id, confidence, x, y, w, h = row
    if class_id < 0:
        raise ValueError(f"class {class_id}")
    return Detection(int(class_id), class_name(classes, int(class_id)), confidence, Box(x, y, w, h), model)
