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
from dataclasses import dataclass

from inspectd.accounts import Accounts, Span
from inspectd.camera.pools import Pools
from inspectd.camera.store import LINE_READER, FrameStore
from inspectd.decide import decide
from inspectd.errors import OutsideError, WorkerError
from inspectd.join import Join
from inspectd.lane.everynth import Choice
from inspectd.ledger import Ledger
from inspectd.lineports import Book, ClosedFrame, LineSpec, ModelLane
from inspectd.records import (
    CameraFacts,
    Code,
    Done,
    Dropped,
    Frame,
    Interrupted,
    Outcome,
)
from inspectd.worker.channel import Message, understood
from inspectd.worker.frames import PoolSpec
from inspectd.worker.ports import Later, MakeHost

log = logging.getLogger(__name__)

RATE_FRAMES = 64
RATE_WINDOW_S = 5.0
"""The rate is that of the last frames, and 0 when none came for so long."""
FIRST_FRAME_S = 10.0
"""An opened camera that gives nothing for so long after it may is no reason to keep the others waiting."""
SILENT_PERIODS = 10
SILENT_S = 2.0
"""A camera is silent when no frame came for so many of its periods, and for so long."""


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
        self.received = self.incomplete = self.missed = self.opens = 0
        """Since the start: pictures; pictures that could not be read; numbers that were lost before main had a picture
        (no slot, no announcement, the camera process died); how often the camera was opened."""
        self._arrivals_s: deque[float] = deque(maxlen=RATE_FRAMES)
        self._first = ledger.last + 1
        self._lanes, self._book, self._clock = lanes, book, clock
        levels = {model: level for model, lane in lanes.items() if (level := lane.level(spec.camera)) is not None}
        required = [levels.pop(model) for model, is_required in spec.plan.models if is_required and model in levels]
        self._choice = Choice(required, levels)
        self._open: dict[int, _Open] = {}
        self._enabled_s: float | None = None
        self._died_at: int | None = None
        """Last number of the ledger when the opened camera process died; None if it did not, or was asked to end."""
        self._skip_next = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._later = later
        self.host = make_host(self)
        self._store = FrameStore(Pools(spec.camera, slots), self.host, tuple(lanes.values()), later)

    # Life

    def start(self) -> None:
        """Start the camera child; it opens its device, and waits for `enable`."""
        self.host.start()

    def enable(self) -> None:
        """Let frames come: the models are admitted, or their repair is reported."""
        self._enabled_s = self._clock()
        self._later(FIRST_FRAME_S, self._first_frame_was_due)
        if self.facts is not None:
            self._give_first_pool()

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
        self._store.close()

    # State, for whoever reports it

    @property
    def in_flight(self) -> int:
        """Numbers that are captured and not yet accounted."""
        return self.accounts.in_flight(self.ledger.last)

    @property
    def slots(self) -> int:
        """Frame slots: how many frames can be open at once."""
        return self._store.slots

    def rate_per_s(self, now: float) -> float:
        """Frames per second, of late."""
        arrivals_s = [arrival_s for arrival_s in self._arrivals_s if now - arrival_s <= RATE_WINDOW_S]
        if len(arrivals_s) < 2:
            return 0.0
        return (len(arrivals_s) - 1) / max(arrivals_s[-1] - arrivals_s[0], 1e-6)

    @property
    def last_frame_s(self) -> float | None:
        """When the last number came (monotonic clock)."""
        return self._arrivals_s[-1] if self._arrivals_s else None

    @property
    def is_settled(self) -> bool:
        """Whether nobody need wait for the camera: it has given a frame, is used up, or its trouble is reported."""
        if self.has_given_a_frame or self.is_ended or self.host.in_repair:
            return True
        return self._enabled_s is not None and self._clock() - self._enabled_s >= FIRST_FRAME_S

    def is_fit(self, now: float) -> bool:
        """Whether frames come as they are expected, or the source is used up."""
        if self.facts is None or not self.has_given_a_frame:
            return self.is_ended and self.facts is not None
        if self.is_ended or self.spec.lossless or self.spec.fps is None:
            return True
        return now - self._arrivals_s[-1] <= max(SILENT_PERIODS / self.spec.fps, SILENT_S)

    # The camera child speaks

    def on_hello(self) -> None:
        """Host: the child listens."""
        message = {"t": "open", "source": self.spec.source, "first": self._first, "lossless": self.spec.lossless}
        self.host.send({**message, "skip": self._skip_next}, (self.ledger.descriptor,))
        self._skip_next = False

    def on_message(self, message: Message) -> None:
        """Host: what the camera has to say."""
        match message.get("t"):
            case "frame":
                self._announced(message)
            case "lost":
                self._announced_lost(message)
            case "opened":
                self._opened(message)
            case "grow":
                self._grow(message)
            case "ended":
                self.is_ended = True
                log.info("camera %s: source used up after number %d", self.name, self.ledger.last)
                self.on_change()
            case other:
                raise WorkerError(f"camera {self.name}: unknown message {other!r}")

    def on_ending(self) -> None:
        """Host: the child is dead. Its last messages are read like any others."""

    def on_gone(self, reason: str, *, life: int, reaped: bool) -> None:
        """Host: the child is gone. What it numbered and did not announce is lost."""
        died_at = None if self.facts is None else self.ledger.last
        self._skip_next = self.spec.simulated and died_at is not None and died_at == self._died_at
        self._died_at = died_at
        self.facts, self.has_given_a_frame = None, False
        self._store.child_gone()
        if not reaped:
            self._store.quarantine(life)
        self._record_gap(self.accounts.skip_to(self.ledger.last), Code.INTERRUPTED, f"camera process: {reason}")
        self.on_change()

    def on_reaped(self, life: int) -> None:
        """Host: the stuck child has ended: nobody writes to its pool any more."""
        self._store.release_quarantined(life)

    # The lanes speak

    def pools(self) -> list[tuple[PoolSpec, int]]:
        """Every pool that a frame may lie in, with its descriptor."""
        return self._store.pools()

    def read(self, frame: Frame, reader: tuple[str, int]) -> None:
        """A model child reads the frame's slot. Raises WorkerError if it was given away."""
        self._store.read(frame, reader)

    def release(self, frame: Frame, reader: tuple[str, int]) -> None:
        """A reader is done with the frame's slot; the last one gives it back to the camera."""
        self._store.release(frame, reader)

    def model_admitted(self) -> None:
        """A model's child has so and so many requests: there may be need of more slots."""
        if self.facts is not None and self._store.slots:
            self._store.provide(self._no_more_slots)

    def finished(self, frame: Frame, model: str, outcome: Outcome) -> None:
        """The model's word on the frame; the last model closes it."""
        opened = self._open.get(frame.frame_id)
        if opened is not None and opened.join.add(model, outcome):
            self._close(frame.frame_id, None)

    # Frames

    def _announced(self, message: Message) -> None:
        with understood(f"camera {self.name}"):
            frame = Frame(
                camera=self.name,
                frame_id=self._new_number(message),
                pool=message["p"],
                slot=message["s"],
                generation=message["g"],
                width_px=message["w"],
                height_px=message["h"],
                captured_s=float(message["at"]),
                captured_wall_s=float(message["wall"]),
                acquisition_s=float(message["acq"]),
                name=message["name"],
            )
        self._store.announce(frame)
        self.received += 1
        self._record_missed(self.accounts.announce(frame.frame_id))
        self._open[frame.frame_id] = _Open(frame, Join(self._lanes))
        self._idle.clear()
        self._note_frame()
        overload = self._choice.refusal()
        for model, lane in self._lanes.items():
            refusal = overload or self._choice.refusal_by(model)
            if refusal is None:
                lane.offer(frame, frame.captured_s + self.spec.deadline_s)
            else:
                lane.note_skipped()
                self.finished(frame, model, Dropped(Code.SKIPPED_BY_POLICY, refusal))

    def _announced_lost(self, message: Message) -> None:
        with understood(f"camera {self.name}"):
            number, code = self._new_number(message), Code(message["code"])
            captured_s, captured_wall_s = float(message["at"]), float(message["wall"])
            text = f"{message['name']}: {message['reason']}" if message["name"] else str(message["reason"])
        self._record_missed(self.accounts.announce(number))
        if code is Code.NO_FREE_SLOT:
            self.missed += 1
        else:
            self.incomplete += 1
        self._note_frame()
        decision = decide(self.spec.plan, {}, late=False, interrupted=Interrupted(code, text))
        self.accounts.record(number)
        self._book.closed(
            self,
            ClosedFrame(None, number, captured_s, captured_wall_s, self._clock(), decision, (), ()),
        )

    def _close(self, frame_id: int, interrupted: Interrupted | None) -> None:
        opened = self._open.pop(frame_id)
        if interrupted is not None:
            opened.join.give_up(interrupted.code, interrupted.reason)
        frame, outcomes, now = opened.frame, opened.join.outcomes, self._clock()
        late = now - frame.captured_s >= self.spec.deadline_s
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

    def _new_number(self, message: Message) -> int:
        """The number in a message: above those seen, and on the ledger. Raises ValueError."""
        number = int(message["n"])
        if not self.accounts.seen < number <= self.ledger.last:
            raise ValueError(f"number {number} after {self.accounts.seen}, the ledger is at {self.ledger.last}")
        return number

    def _record_missed(self, gap: Span | None) -> None:
        self._record_gap(gap, Code.QUEUE_FULL, "announcement lost: the camera's channel to main was full")

    def _record_gap(self, gap: Span | None, code: Code, reason: str) -> None:
        if gap is not None:
            self.missed += gap[1] - gap[0] + 1
            self._book.lost(self, gap, code, reason)

    def _first_frame_was_due(self) -> None:
        """Whoever waits for the camera looks again."""
        self.on_change()

    def _note_frame(self) -> None:
        self.frames += 1
        self._arrivals_s.append(self._clock())
        if not self.has_given_a_frame:
            self.has_given_a_frame = True
            self.on_change()

    # The child's device and pictures

    def _opened(self, message: Message) -> None:
        with understood(f"camera {self.name}"):
            self.facts = CameraFacts(**message["facts"])
            self._store.need(int(message["bytes"]))
        self.opens += 1
        self.host.ready()
        facts = self.facts
        log.info("camera %s: opened (%s, %d × %d px)", self.name, facts.kind, facts.width_px, facts.height_px)
        if self._enabled_s is not None:
            self._give_first_pool()
        self.on_change()

    def _grow(self, message: Message) -> None:
        """The camera has a picture that is too large for its slots."""
        with understood(f"camera {self.name}"):
            self._store.need(int(message["bytes"]))
        self._store.provide(self._no_larger_slots)

    def _give_first_pool(self) -> None:
        self._store.begin(lambda error: self.host.kill(str(error)))

    def _no_more_slots(self, error: OutsideError) -> None:
        log.warning("%s; it goes on with %d slots", error, self._store.slots)

    def _no_larger_slots(self, error: OutsideError) -> None:
        log.error("%s", error)
        self.host.offer({"t": "full"})  # this picture is recorded as too large (404), the next ones may fit
