"""The processes of one model: the one that serves, one that is warmed beside it, those that finish their last frames.

    serves ──breaks──▶ its supervisor starts the next one, on the device that the ladder names
    second ──admitted─▶ serves; the one before it finishes what it has and is then asked to end
           ──gone─────▶ nothing has changed; another try later

Where the host has no memory for two, the one that serves is replaced at a moment when it has no frame.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from inspectd.errors import WorkerError
from inspectd.records import ModelFacts
from inspectd.worker.channel import Message, understood
from inspectd.worker.crewports import CrewUser, Memory, Move, Place, RepairPolicy
from inspectd.worker.ladder import End, Ladder, Rung
from inspectd.worker.modelchild import ModelChild
from inspectd.worker.ports import FailureKind, Later, MakeHost, Timer
from inspectd.worker.spare import Spare, Wish

log = logging.getLogger(__name__)

WATCH_S = 1.0
"""Reading the memory of a process costs a few hundredths of a ms; a leak of 100 MB a second is still seen in time."""
GRACE_S = 2.0
"""For a process that is asked to end and has nothing left to do."""
_ENDS = {FailureKind.MEMORY: End.OUT_OF_MEMORY, FailureKind.REFUSED: End.REFUSED, FailureKind.OTHER: End.BROKE}


class Crew:
    """All calls come from the event loop."""

    def __init__(
        self,
        model: str,
        spec: dict[str, Any],
        policy: RepairPolicy,
        user: CrewUser,
        make_host: MakeHost,
        later: Later,
        clock: Callable[[], float],
        memory: Memory,
    ) -> None:
        self.ladder = Ladder(model, policy.devices, policy.retry_primary_s)
        self.spare = Spare(policy.rss_limit_bytes)
        self.on_first_file: Callable[[str], None] = lambda _: None
        """Called with the hash of the model file when the first child was admitted with it."""
        self.on_moved: Callable[[Move], None] = lambda _: None
        """Called when another device serves than before, or with fewer requests for want of memory."""
        self.restarts = 0
        """Children that broke."""
        self.second: ModelChild | None = None
        """It is being warmed."""
        self.leaving: list[ModelChild] = []
        """They finish what they have, end, or are stuck in the kernel."""
        self._model, self._spec, self._user = model, spec, user
        self._make_host, self._later, self._clock, self._memory = make_host, later, clock, memory
        self._pinned: str | None = None
        """From the first admission on this file is held to: another one under the same name is another recipe."""
        self._place: Place | None = None
        self._waits_for_calm = False
        """The child that serves is to be replaced without a second one, when it has no frame."""
        self._is_stopping = False
        self._timer: Timer | None = None
        self.serving = ModelChild(self, self.ladder.device, make_host)

    def start(self) -> None:
        """Want a child, from now on."""
        self.serving.host.start()
        self._timer = self._later(WATCH_S, self._watch)

    async def stop(self, grace_s: float) -> None:
        """End every child for good."""
        self._is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
        children = [child for child in (self.serving, self.second, *self.leaving) if child is not None]
        await asyncio.gather(*(child.host.stop(grace_s) for child in children))

    @property
    def present(self) -> list[ModelChild]:
        """Children that serve, or finish what they have."""
        return [child for child in (self.serving, *self.leaving) if child.facts is not None]

    @property
    def stuck(self) -> tuple[int, ...]:
        """Killed processes that the kernel has not let go yet."""
        return tuple(sorted(pid for child in (self.serving, *self.leaving) for pid in child.host.stuck))

    def settle(self) -> None:
        """Frames have ended: let go of a child that has none left."""
        for child in self.leaving:
            has_frames = child.number is not None and self._user.held_by(child.number) > 0
            if not child.is_asked_to_end and not has_frames:
                child.is_asked_to_end = True
                child.host.dismiss(GRACE_S)
        if self._waits_for_calm and self._user.is_idle():
            self._waits_for_calm = False
            log.info("model %s: no frame is there now: its process is replaced", self._model)
            self.serving.is_asked_to_end = True
            self._user.ending()
            self.serving.host.recycle(GRACE_S)

    # A child speaks

    def load(self, child: ModelChild) -> None:
        """Tell it what to run."""
        if child is self.serving:
            child.device = self.ladder.device
        most = self.ladder.requests_most(child.device)
        if child is self.second and self.spare.warming is Wish.RECYCLE and self.serving.facts is not None:
            most = self.serving.facts.requests  # its warm-up beside another child is slow, and would ask for more
        pinned = {} if self._pinned is None else {"sha256": self._pinned}
        child.host.send({"t": "load", "spec": self._spec | pinned | {"device": child.device, "requests_most": most}})

    def admit(self, child: ModelChild, message: Message) -> None:
        """It has passed its warm-up: it serves from now on."""
        with understood(f"model {self._model}"):
            facts = ModelFacts(**{**message["facts"], "classes": tuple(message["facts"]["classes"])})
        if self._pinned not in (None, facts.hash):
            raise WorkerError(f"model {self._model}: admitted with file {facts.hash} instead of {self._pinned}")
        reason = self.ladder.trouble
        if child is self.second:
            reason = self._take_over(child)
        else:
            self.ladder.admitted(self._clock())
            self.spare.serving()
        child.facts = facts
        if self._pinned is None:
            self._pinned = facts.hash
            self.on_first_file(facts.hash)
        child.host.ready()
        child.number = self._user.serves(child)
        log.info(
            "model %s: admitted on %s (%s, %d requests, %.1f ms an inference at warm-up)",
            self._model,
            facts.device,
            facts.precision,
            facts.requests,
            facts.warmup_p95_s * 1000,
        )
        self._note_place(Place(child.device, facts.hash, self.ladder.requests_most(child.device)), reason)
        self.settle()
        self._user.changed()

    def heard(self, child: ModelChild, message: Message) -> None:
        """It says something about a frame."""
        self._user.heard(child, message)

    def ending(self, child: ModelChild) -> None:
        """It is dead or given up."""
        if child is self.serving:
            self._user.ending()

    def gone(self, child: ModelChild, reason: str, life: int, *, reaped: bool) -> None:
        """It is gone."""
        was_planned, child.is_asked_to_end = child.is_asked_to_end, False
        if child.number is not None:
            self._user.gone(child, reason, life, reaped=reaped)
        if not self._is_stopping:
            if child is self.serving and was_planned:
                self.spare.admitted()
            elif child is self.serving:
                self._broke(child, reason)
            elif child is self.second:
                self._second_gone(child, reason)
        self._forget_ended()
        self._user.changed()

    def reaped(self, child: ModelChild, life: int) -> None:
        """A process of it that was given up has ended after all."""
        self._user.reaped(child, life)
        self._forget_ended()

    # One rung of the ladder

    def _broke(self, child: ModelChild, reason: str) -> None:
        """The child that served, or was to, has ended."""
        self.restarts += 1
        told, had_failed = child.host.told, self.ladder.all_failed
        end, requests = (End.BROKE, 0) if told is None else (_ENDS[told.kind], told.requests)
        rung = self.ladder.ended(end, reason, self._clock(), requests=requests)
        device = self.ladder.device
        if not had_failed:
            most = f", {self.ladder.requests_most(device)} requests" if rung is Rung.FEWER_REQUESTS else ""
            log.warning("model %s: %s (%s%s): %s", self._model, rung.value, device, most, reason)
        if self.ladder.all_failed:
            self._user.unavailable(f"{self._model}: no model process: {reason}")
        self._waits_for_calm = False
        if self.second is None:
            self.spare.alone()
        elif self.second.device == device:
            # It is further than a new one.
            self.leaving.append(child)
            self.serving, self.second = self.second, None
            child.host.replaces, self.serving.host.replaces = False, True
            self.spare.alone()

    # A second child

    def _watch(self) -> None:
        """Once a second: see whether the child that serves needs another beside it."""
        self._timer = self._later(WATCH_S, self._watch)
        child, now = self.serving, self._clock()
        pid = child.host.pid
        used_bytes = None if pid is None or child.facts is None else self._memory.of(pid)
        if used_bytes is None or child.is_asked_to_end:
            return
        match self.spare.watch(used_bytes, now, way_back_due=self.ladder.way_back_due(now)):
            case Wish.KILL:
                child.host.kill(self.spare.reason)
            case Wish.RECYCLE:
                self._begin_second(child.device, self.spare.reason)
            case Wish.WAY_BACK:
                self._begin_second(self.ladder.primary, "the way back is due")
            case None:
                self.settle()

    def _begin_second(self, device: str, reason: str) -> None:
        lack = self.spare.lack_of_room(self._memory.available())
        if lack is not None:
            self._cannot_have_two(f"{reason}; {lack}")
            return
        log.info("model %s: %s: a second process is warmed on %s", self._model, reason, device)
        self.second = ModelChild(self, device, self._make_host)
        self.second.host.replaces = False
        self.second.host.start()

    def _take_over(self, child: ModelChild) -> str:
        """It serves from now on; the one before it gets nothing new. Gives the reason for people."""
        before, is_way_back = self.serving, self.spare.warming is Wish.WAY_BACK
        self.serving, self.second = child, None
        before.host.replaces, child.host.replaces = False, True
        self.leaving.append(before)
        self._waits_for_calm = False
        self.spare.admitted()
        self.ladder.took_over(child.device, self._clock())
        log.info("model %s: the second process takes over, on %s", self._model, child.device)
        return f"{child.device} works again" if is_way_back else self.spare.reason

    def _second_gone(self, child: ModelChild, reason: str) -> None:
        self.leaving.append(child)
        self.second = None
        text = f"the second process, on {child.device}, was not admitted: {reason}"
        if child.host.told is not None and child.host.told.kind is FailureKind.MEMORY:
            self._cannot_have_two(text)
        else:
            self._go_on_without(text)

    def _cannot_have_two(self, reason: str) -> None:
        if self.spare.warming is Wish.RECYCLE and self.serving.facts is not None:
            log.warning("model %s: %s; its process is replaced as soon as no frame is there", self._model, reason)
            self._waits_for_calm = True
            self.settle()
        else:
            self._go_on_without(reason)

    def _go_on_without(self, reason: str) -> None:
        if self.spare.warming is Wish.WAY_BACK:
            self.ladder.way_back_failed(self._clock())
        self.spare.failed(self._clock())
        log.warning("model %s: %s; another try later", self._model, reason)

    def _note_place(self, after: Place, reason: str) -> None:
        """Tell of it if it is another than before, or than is meant."""
        before, self._place = self._place or Place(self.ladder.primary, after.hash), after
        if before != after:
            self.on_moved(Move(self._model, before, after, self.ladder.fallback or reason))

    def _forget_ended(self) -> None:
        self.leaving = [child for child in self.leaving if child.host.pid is not None or child.host.stuck]
