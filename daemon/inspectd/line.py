"""One camera's whole path, top to bottom: announced frame → models → decision → record. Read this first.

    camera child ──frame──▶ on_message ──▶ lanes (offer) ──▶ finished ──▶ close ──▶ book (record)
                  ──lost───▶            └─────────────────────────────────────▲
                  ──gap, death──▶ numbers without a picture ──────────────────┘

Every number that the camera's ledger gives is announced here, or found missing here; both end in exactly one record.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from inspectd.accounts import Accounts, Span
from inspectd.camera.pools import Pools
from inspectd.decide import decide
from inspectd.errors import OutsideError, WorkerError
from inspectd.join import Join
from inspectd.ledger import Ledger
from inspectd.records import (
    CameraFacts,
    Code,
    Decision,
    DecisionPlan,
    Detection,
    Done,
    Frame,
    Interrupted,
    ModelRun,
    Outcome,
)
from inspectd.worker.channel import Message
from inspectd.worker.frames import PoolSpec
from inspectd.worker.host import Later, MakeHost, Timer

log = logging.getLogger(__name__)

LINE_READER = ("line", 0)
"""The line itself holds a frame's slot until the frame is closed."""
RATE_FRAMES = 64
RATE_WINDOW_S = 5.0
"""The rate is that of the last frames, and 0 when none came for so long."""
FREE_AGAIN_S = 0.05
"""A camera child that did not read about its free slots is told again after this."""


@dataclass(frozen=True, slots=True)
class LineSpec:
    """One camera's slice of the configuration."""

    camera: str
    source: dict[str, Any]
    """What `camera.sources.create_source` needs."""
    simulated: bool
    """Its pictures are not of a real line."""
    lossless: bool
    deadline_s: float
    plan: DecisionPlan


@dataclass(frozen=True, slots=True)
class ClosedFrame:
    """A frame whose inspection has ended, one way or another."""

    frame: Frame | None
    """None where no picture came to be."""
    frame_id: int
    captured_s: float
    captured_wall_s: float
    closed_s: float
    decision: Decision
    runs: tuple[ModelRun, ...]
    detections: tuple[Detection, ...]


class Book(Protocol):
    """Where records go."""

    def closed(self, line: Line, closed: ClosedFrame) -> None:
        """A frame has ended: one record."""

    def lost(self, line: Line, span: Span, code: Code, reason: str) -> None:
        """These numbers have no picture: one record for all of them."""


class ModelLane(Protocol):
    """A model's lane, as a line needs it."""

    def offer(self, frame: Frame, deadline_s: float) -> None:
        """Give a frame; `finished` is called exactly once, by the deadline at the latest."""

    def add_pool(self, spec: PoolSpec, descriptor: int) -> None:
        """A pool whose slots will be asked about."""

    def forget_pool(self, spec: PoolSpec) -> None:
        """It will not be any more."""

    def describe(self, outcome: Outcome) -> ModelRun:
        """One entry of models[] in the result."""


@dataclass(slots=True)
class _Open:
    frame: Frame
    join: Join


class Line:
    """One camera, from its child's messages to the records of its frames."""

    def __init__(
        self,
        spec: LineSpec,
        ledger: Ledger,
        excluded: int,
        lanes: Mapping[str, ModelLane],
        book: Book,
        slots: Callable[[], int],
        make_host: MakeHost,
        later: Later,
        clock: Callable[[], float],
    ) -> None:
        """`excluded`: numbers outside `captured`. `lanes`: in YAML order. `slots`: asked when a pool is made."""
        self.spec, self.name, self.ledger = spec, spec.camera, ledger
        self.accounts = Accounts(ledger.last, excluded)
        self.facts: CameraFacts | None = None
        self.has_given_a_frame = False
        self.is_ended = False
        """A finite source is used up."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when the camera was opened, lost, gave its first frame or ended."""
        self.frames = 0
        """Numbers that have come to main since the start."""
        self._arrivals_s: deque[float] = deque(maxlen=RATE_FRAMES)
        self._first = ledger.last + 1
        self._lanes, self._book, self._clock = lanes, book, clock
        self._open: dict[int, _Open] = {}
        self._pools = Pools(spec.camera, slots)
        self._enabled = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._free_timer: Timer | None = None
        self._later = later
        self.host = make_host(self)

    # Life

    def start(self) -> None:
        """Start the camera child; it opens its device, and waits for `enable`."""
        self.host.start()

    def enable(self) -> None:
        """Let frames come: the models are admitted, or their repair is reported."""
        self._enabled = True
        if self.facts is not None:
            self._give_pool()

    async def stop(self, grace_s: float) -> None:
        """End the camera child; its last numbers are accounted before this returns."""
        await self.host.stop(grace_s)

    async def drained(self) -> None:
        """Wait until every announced frame is closed (each has a deadline)."""
        await self._idle.wait()

    def abandon(self, reason: str) -> None:
        """Close what is still open: the daemon ends now."""
        for frame_id in list(self._open):
            self._close(frame_id, Interrupted(Code.INTERRUPTED, reason))

    def close(self) -> None:
        """Give the memory back (the ledger belongs to the storage)."""
        if self._free_timer is not None:
            self._free_timer.cancel()
        self._pools.close()

    # State, for whoever reports it

    @property
    def captured(self) -> int:
        """Frames since the counters' beginning."""
        return self.accounts.captured(self.ledger.last)

    @property
    def in_flight(self) -> int:
        """Numbers that are captured and not yet accounted."""
        return self.accounts.in_flight(self.ledger.last)

    @property
    def slots(self) -> int:
        """Frame slots: how many frames can be open at once."""
        return self._pools.slots

    def rate_per_s(self, now: float) -> float:
        """Frames per second, of late."""
        arrivals_s = [arrival_s for arrival_s in self._arrivals_s if now - arrival_s <= RATE_WINDOW_S]
        if len(arrivals_s) < 2:
            return 0.0
        return (len(arrivals_s) - 1) / max(arrivals_s[-1] - arrivals_s[0], 1e-6)

    @property
    def is_settled(self) -> bool:
        """Whether the camera gives frames, is used up, or is in a reported retry."""
        return self.has_given_a_frame or self.is_ended or self.host.in_repair

    @property
    def is_opened(self) -> bool:
        """Whether the device is open (frames may wait for the models), or in a reported retry."""
        return self.facts is not None or self.host.in_repair

    # The camera child speaks

    def on_hello(self) -> None:
        """Host: the child listens."""
        message = {"t": "open", "source": self.spec.source, "first": self._first, "lossless": self.spec.lossless}
        self.host.send(message, (self.ledger.descriptor,))

    def on_message(self, message: Message) -> None:
        """Host: what the camera has to say."""
        match message["t"]:
            case "frame":
                self._announced(message)
            case "lost":
                self._announced_lost(message)
            case "opened":
                self._opened(message)
            case "grow":
                self._pools.need(message["bytes"])
                self._give_pool()
            case "ended":
                self.is_ended = True
                log.info("camera %s: source used up after number %d", self.name, self.ledger.last)
                self.on_change()
            case other:
                raise WorkerError(f"camera {self.name}: unknown message {other!r}")

    def on_gone(self, reason: str, *, reaped: bool) -> None:
        """Host: the child is gone. What it numbered and did not announce is lost."""
        self.facts = None
        if not reaped:
            self._pools.quarantine()
        self._record_gap(self.accounts.skip_to(self.ledger.last), Code.INTERRUPTED, f"camera process: {reason}")
        self.on_change()

    def on_reaped(self) -> None:
        """Host: the stuck child has ended: nobody writes to its pool any more."""
        self._forget(self._pools.release_quarantined())

    # The lanes speak

    def pools(self) -> list[tuple[PoolSpec, int]]:
        """Every pool that a frame may lie in, with its descriptor."""
        return self._pools.mapped()

    def read(self, frame: Frame, reader: tuple[str, int]) -> None:
        """A model child reads the frame's slot. Raises WorkerError if it was given away."""
        self._pools.table(frame).read(frame.slot, frame.frame_id, reader)

    def release(self, frame: Frame, reader: tuple[str, int]) -> None:
        """A reader is done with the frame's slot; the last one gives it back to the camera."""
        self._forget(self._pools.release(frame, reader))
        self._tell_free()

    def finished(self, frame: Frame, model: str, outcome: Outcome) -> None:
        """The model's word on the frame; the last model closes it."""
        opened = self._open.get(frame.frame_id)
        if opened is not None and opened.join.add(model, outcome):
            self._close(frame.frame_id, None)

    # Frames

    def _announced(self, message: Message) -> None:
        frame = Frame(
            camera=self.name,
            frame_id=message["n"],
            pool=message["p"],
            slot=message["s"],
            generation=message["g"],
            width_px=message["w"],
            height_px=message["h"],
            captured_s=message["at"],
            captured_wall_s=message["wall"],
            acquisition_s=message["acq"],
            name=message["name"],
        )
        self._pools.table(frame).announce(frame.slot, frame.frame_id, LINE_READER)
        self._record_missed(self.accounts.announce(frame.frame_id))
        self._open[frame.frame_id] = _Open(frame, Join(self._lanes))
        self._idle.clear()
        self._note_frame()
        for lane in self._lanes.values():
            lane.offer(frame, frame.captured_s + self.spec.deadline_s)

    def _announced_lost(self, message: Message) -> None:
        number, code = message["n"], Code(message["code"])
        self._record_missed(self.accounts.announce(number))
        self._note_frame()
        text = f"{message['name']}: {message['reason']}" if message["name"] else message["reason"]
        decision = decide(self.spec.plan, {}, late=False, interrupted=Interrupted(code, text))
        self.accounts.record(number)
        self._book.closed(
            self,
            ClosedFrame(None, number, message["at"], message["wall"], self._clock(), decision, (), ()),
        )

    def _close(self, frame_id: int, interrupted: Interrupted | None) -> None:
        opened = self._open.pop(frame_id)
        if interrupted is not None:
            opened.join.give_up(interrupted.code, interrupted.reason)
        frame, outcomes, now = opened.frame, opened.join.outcomes, self._clock()
        late = now - frame.captured_s > self.spec.deadline_s
        decision = decide(self.spec.plan, outcomes, late=late, interrupted=interrupted)
        runs = tuple(self._lanes[model].describe(outcome) for model, outcome in outcomes.items())
        done = (outcome for outcome in outcomes.values() if isinstance(outcome, Done))
        detections = tuple(detection for outcome in done for detection in outcome.detections)
        self.accounts.record(frame_id)
        self._book.closed(
            self,
            ClosedFrame(frame, frame_id, frame.captured_s, frame.captured_wall_s, now, decision, runs, detections),
        )
        self.release(frame, LINE_READER)
        if not self._open:
            self._idle.set()

    def _record_missed(self, gap: Span | None) -> None:
        self._record_gap(gap, Code.QUEUE_FULL, "announcement lost: the camera's channel to main was full")

    def _record_gap(self, gap: Span | None, code: Code, reason: str) -> None:
        if gap is not None:
            self._book.lost(self, gap, code, reason)

    def _note_frame(self) -> None:
        self.frames += 1
        self._arrivals_s.append(self._clock())
        if not self.has_given_a_frame:
            self.has_given_a_frame = True
            self.on_change()

    # Slots

    def _opened(self, message: Message) -> None:
        self.facts = CameraFacts(**message["facts"])
        self._pools.need(message["bytes"])
        self.host.ready()
        facts = self.facts
        log.info("camera %s: opened (%s, %d × %d px)", self.name, facts.kind, facts.width_px, facts.height_px)
        if self._enabled:
            self._give_pool()
        self.on_change()

    def _give_pool(self) -> None:
        """Give the child its pool and every free slot of it; a larger one if the old is too small for its pictures."""
        try:
            made = self._pools.provide()
        except OutsideError as error:
            log.error("%s", error)
            self.host.kill(str(error))
            return
        if made is not None:
            for lane in self._lanes.values():
                lane.add_pool(*made)
        spec, descriptor = self._pools.current()
        message = {"t": "pool", "spec": asdict(spec), "free": self._pools.free_slots()}
        self.host.send(message, (descriptor,))
        self._forget(self._pools.drop_empty())

    def _forget(self, gone: list[PoolSpec]) -> None:
        for spec in gone:
            for lane in self._lanes.values():
                lane.forget_pool(spec)

    def _tell_free(self) -> None:
        """Tell the child which slots are free again; if it does not read now, a little later."""
        if self._free_timer is not None or self.facts is None:
            return
        freed = self._pools.freed()
        if freed and not self.host.offer({"t": "free", "p": self._pools.current()[0].pool, "slots": freed}):
            self._pools.keep_freed(freed)
            self._free_timer = self._later(FREE_AGAIN_S, self._tell_free_again)

    def _tell_free_again(self) -> None:
        self._free_timer = None
        self._tell_free()
