"""The promise, as a state machine: whatever dies or comes late, every captured number ends in exactly one record.

The real line, lanes, pools, slots, ledger, bookkeeper, journal state and outbox run here; only processes, disk and
broker are played, under any policy of the lanes, long after 2³² frames and 49.7 days. After every step: captured =
accounted + in flight, no slot is written while somebody may still read it, no OK without a completed inference of the
required model on that very frame; nothing that is too old reaches a device, and nothing waits for an open breaker.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from inspectd.accounts import recover
from inspectd.book import Bookkeeper, Identity
from inspectd.lane.breaker import BreakerPolicy, BreakerState
from inspectd.lane.driver import LaneDriver
from inspectd.lane.inbox import CameraShare, WhenFull
from inspectd.lane.lane import Lane
from inspectd.lane.policy import LanePolicy
from inspectd.lane.skip import QUARTERS, SkipPolicy
from inspectd.ledger import Ledger
from inspectd.line import Line
from inspectd.lineports import LineSpec
from inspectd.publish.counters import Counters
from inspectd.publish.effects import Ack, Effect, Read, Send
from inspectd.publish.journalstate import JournalState, marks_of_ledgers
from inspectd.publish.outbox import Outbox
from inspectd.records import (
    Code,
    ConfigurationId,
    DecisionPlan,
    Evaluation,
    Inspection,
    LostRun,
    Record,
)
from inspectd.worker.channel import Message
from inspectd.worker.frames import slot_bytes
from inspectd.worker.ports import FailureKind, Told

SLOTS = 4
CHANNEL_ROOM = 3
DEADLINE_S = 1.0
REQUESTS = 2
MODELS = {"defects": True, "code": False}
FIRST = 2**32 - 5
"""Numbers that are given before: most of a run's are above 2³²."""
START_S = 2.0**32 / 1000 - 1
"""Milliseconds in 32 bits wrap within a second."""
DAYS_60_S = 60 * 86_400.0
IDENTITY = ConfigurationId("recipe", "1", "00")
FACTS: dict[str, Any] = {"task": "detect", "device": "CPU", "precision": "f32", "hash": "00", "classes": ["open"]}
FACTS |= {"requests": REQUESTS, "input_width_px": 64, "input_height_px": 64, "layout": "yolo", "warmup_p95_s": 0.01}
CAMERA_FACTS = {"kind": "test", "simulated": False, "finite": False, "width_px": 64, "height_px": 64}


class PlayedHost:
    """A child process that does what the machine's rules say."""

    def __init__(self, handler: Any) -> None:
        self.handler = handler
        self.alive = False
        self.in_repair = False
        self.told: Told | None = None
        self.replaces = True
        self.pid: int | None = None
        self.stuck: tuple[int, ...] = ()
        self.trouble = ""
        self.received: list[Message] = []
        self.room = 1000

    def start(self) -> None:
        """The machine's rules start it."""

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> bool:
        del descriptors
        return self.offer(message)

    def offer(self, message: Message) -> bool:
        if not self.alive or len(self.received) >= self.room:
            return False
        self.received.append(message)
        return True

    def ready(self) -> None:
        self.in_repair = False

    def kill(self, reason: str) -> None:
        """It dies when the machine's rules say so: a kill is never at once."""

    def recycle(self, grace_s: float) -> None:
        del grace_s
        raise AssertionError("not part of this machine")

    def dismiss(self, grace_s: float) -> None:
        del grace_s
        raise AssertionError("not part of this machine")

    async def stop(self, grace_s: float) -> None:
        del grace_s
        raise AssertionError("not part of this machine")

    def take(self) -> list[Message]:
        taken, self.received = self.received, []
        return taken


@dataclass
class PlayedTimer:
    due_s: float
    call: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Camera:
    """The camera child: what it holds, and what it has sent."""

    pool: int = 0
    free: list[int] = field(default_factory=list)
    channel: list[Message] = field(default_factory=list)
    generation: int = 0


@dataclass
class Disk:
    """What survives a kill of everything: the journal's committed state and rows."""

    state: JournalState
    rows: list[Record] = field(default_factory=list)
    payloads: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    seq: int
    payload: bytes


@dataclass(frozen=True)
class Policies:
    """What one run of the machine is configured with."""

    breaker: BreakerPolicy
    skip: SkipPolicy
    retries: int
    demotes: bool
    may_skip: bool
    when_full: WhenFull
    skipped_as_results: bool


POLICIES = st.builds(
    Policies,
    breaker=st.builds(BreakerPolicy, failures=st.integers(1, 3), open_s=st.sampled_from([0.05, 1.0])),
    skip=st.builds(SkipPolicy, most=st.sampled_from([1, 4]), rise_s=st.just(0.02), fall_s=st.just(0.05)),
    retries=st.integers(0, 2),
    demotes=st.booleans(),
    may_skip=st.booleans(),
    when_full=st.sampled_from(WhenFull),
    skipped_as_results=st.booleans(),
)


class Main:
    """The main process: everything in it is gone when it is killed."""

    def __init__(self, disk: Disk, path: Path, clock: Callable[[], float], policies: Policies) -> None:
        self.disk, self.clock, self.policies = disk, clock, policies
        self.timers: list[PlayedTimer] = []
        self.pending: list[Record] = []
        self.ledger = Ledger.open(path)
        mark = disk.state.marks["top"].mark
        self.identity = Identity(IDENTITY, {"top": IDENTITY})
        self.book = Bookkeeper(self, self.identity, clock, skipped_as_results=policies.skipped_as_results)
        recovery = recover(mark, self.ledger.last if self.ledger.valid else None, exact=True)
        for first, last in recovery.lost:
            self.pending.append(LostRun("top", first, last, Code.INTERRUPTED, "found at start", 0.0))
        self.commit()
        self.ledger.begin(recovery.last, simulated=False)
        self.hosts: dict[str, PlayedHost] = {}
        self.drivers = {name: self._driver(name) for name in MODELS}
        plan = DecisionPlan(tuple(MODELS.items()), (), Evaluation.NOT_OK)
        spec = LineSpec("top", {}, simulated=False, lossless=False, fps=10.0, deadline_s=DEADLINE_S, plan=plan)
        self.line = Line(
            spec, self.ledger, 0, self.drivers, self.book, lambda: SLOTS, self._host("top"), self.later, clock
        )
        self.book.expect("top", self.ledger.last, 10.0)
        for driver in self.drivers.values():
            driver.start({"top": self.line})
        self.line.enable()
        last_seq = disk.state.next_seq - 1
        self.outbox = Outbox("result", acked_seq=disk.state.acked_seq, last_seq=last_seq)
        self.reads: list[Read] = []
        self.sends: list[Send] = []

    def _host(self, name: str) -> Callable[[Any], PlayedHost]:
        def make(handler: Any) -> PlayedHost:
            self.hosts[name] = PlayedHost(handler)
            return self.hosts[name]

        return make

    def _driver(self, name: str) -> LaneDriver:
        chosen = self.policies
        policy = LanePolicy(
            name,
            timeout_s=0.1,
            kill_after_s=0.3,
            retries=chosen.retries,
            when_full=chosen.when_full,
            shares={"top": CameraShare(2, may_skip=chosen.may_skip)},
            breaker=chosen.breaker,
            skip=chosen.skip,
            demotes=chosen.demotes,
        )
        lane = Lane(policy)
        return LaneDriver(lane, "detect", {}, self._host(name), self.later, self.clock)

    def later(self, delay_s: float, call: Callable[[], None]) -> PlayedTimer:
        timer = PlayedTimer(self.clock() + delay_s, call)
        self.timers.append(timer)
        return timer

    def fire(self) -> None:
        due = [timer for timer in self.timers if timer.due_s <= self.clock() + 1e-9]
        self.timers = [timer for timer in self.timers if timer not in due]
        for timer in due:
            if not timer.cancelled:
                timer.call()

    def submit(self, record: Record, *, urgent: bool = False) -> None:
        del urgent
        self.pending.append(record)

    def reserve(self, camera: str, to: int) -> None:
        self.disk.state = self.disk.state.reserving(camera, to)

    def commit(self) -> list[Row]:
        """One transaction: rows, counters and marks together. A number that has its row already raises Overlap."""
        records, self.pending = self.pending, []
        rows: list[Row] = []
        for record in records:
            if isinstance(record, Inspection):
                row = Row(self.disk.state.next_seq, record.result_id)
                self.disk.payloads[row.seq] = row.payload
                rows.append(row)
            self.disk.state = self.disk.state.with_record(record)
            self.disk.rows.append(record)
        return rows

    def act(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.sends.append(effect)
            elif isinstance(effect, Read):
                self.reads.append(effect)
            elif isinstance(effect, Ack):
                self.disk.state = _acked(self.disk.state, effect.seq)

    def close(self) -> None:
        self.line.close()
        self.ledger.close()


def _acked(state: JournalState, seq: int) -> JournalState:
    return JournalState(
        **{name: getattr(state, name) for name in JournalState.__slots__ if name != "acked_seq"}, acked_seq=seq
    )


class AccountingMachine(RuleBasedStateMachine):
    """Kills, delays and overloads in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "top"
        self.now = START_S
        marks = marks_of_ledgers({"top": FIRST})
        self.disk = Disk(JournalState("stream", 1, 0, Counters(0.0), "boot", False, "0", marks))
        self.memory: dict[tuple[int, int], int] = {}
        self.inferred: dict[str, set[int]] = {name: set() for name in MODELS}
        self.reading: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in MODELS}
        self.still_read: dict[int, list[dict[str, Any]]] = {}
        """By life of a stuck model child: what it may still read."""
        self.stuck: dict[int, list[tuple[int, int]]] = {}
        self.delivered: list[bytes] = []
        self.camera: Camera | None = None
        self.stuck_lives: dict[str, list[int]] = {}
        self.life = 0

    @initialize(policies=POLICIES)
    def everything_starts(self, policies: Policies) -> None:
        self.policies = policies
        self._start_main()
        self.the_camera_child_starts()
        for model in MODELS:
            self.a_model_child_is_admitted(model)

    def _start_main(self) -> None:
        self.memory.clear()
        self.main = Main(self.disk, self.path, lambda: self.now, self.policies)

    def teardown(self) -> None:
        """At the end everything is delivered; then everything dies, one more main starts, and nothing is missing."""
        self.the_journal_commits(flush=True)
        self._deliver_all()
        self.main_is_killed()
        self.main.commit()
        assert self.main.line.in_flight == 0
        covered = itertools.chain.from_iterable(_numbers(record) for record in self.disk.rows)
        assert sorted(covered) == list(range(FIRST + 1, self.main.ledger.last + 1))
        self._deliver_all()
        self.main.close()
        self.folder.cleanup()

    def _deliver_all(self) -> None:
        self.the_broker_comes_or_goes(connected=True)
        while self.main.reads or self.main.sends:
            self.the_journal_is_read()
            if self.main.sends:
                self.the_broker_acknowledges(0)
        assert sorted(set(self.delivered)) == sorted(self.disk.payloads.values())
        assert self.disk.state.acked_seq == len(self.disk.payloads)

    # The camera child

    @precondition(lambda self: self.camera is None)
    @rule()
    def the_camera_child_starts(self) -> None:
        host = self.main.hosts["top"]
        host.alive, host.room = True, CHANNEL_ROOM
        self.camera = Camera()
        self.main.line.on_hello()
        opened = {"t": "opened", "facts": {"camera": "top", **CAMERA_FACTS}, "bytes": slot_bytes(4, 4)}
        self.main.line.on_message(opened)
        self._camera_reads()

    def _camera_reads(self) -> None:
        assert self.camera is not None
        for message in self.main.hosts["top"].take():
            if message["t"] == "pool":
                self.camera.pool, self.camera.free = message["spec"]["pool"], list(message["free"])
            elif message["t"] == "free" and message["p"] == self.camera.pool:
                self.camera.free += message["slots"]

    @precondition(lambda self: self.camera is not None)
    @rule(good=st.integers(0, 9), main_is_quick=st.integers(0, 3))
    def the_camera_grabs(self, good: int, main_is_quick: int) -> None:
        """A full channel loses the announcement, never the number."""
        camera = self.camera
        assert camera is not None
        self._camera_reads()
        number = self.main.ledger.take()
        message: Message = {"t": "lost", "n": number, "code": 405, "reason": "bad", "at": self.now, "wall": 0.0}
        message["name"] = ""
        if good and not camera.free:
            message["code"] = int(Code.NO_FREE_SLOT)
        elif good:
            slot = camera.free.pop()
            camera.generation += 1
            self.memory[camera.pool, slot] = number
            message = {"t": "frame", "n": number, "p": camera.pool, "s": slot, "g": camera.generation}
            message |= {"w": 4, "h": 4, "at": self.now, "wall": 0.0, "acq": 0.0, "name": ""}
        if len(camera.channel) < CHANNEL_ROOM:
            camera.channel.append(message)
        elif message["t"] == "frame":
            camera.free.append(message["s"])
        if main_is_quick:
            self.main_reads_the_camera()

    @precondition(lambda self: self.camera is not None and self.camera.channel)
    @rule()
    def main_reads_the_camera(self) -> None:
        assert self.camera is not None
        messages, self.camera.channel = self.camera.channel, []
        for message in messages:
            self.main.line.on_message(message)
        self._models_read()

    @precondition(lambda self: self.camera is not None)
    @rule(reaped=st.booleans(), takes_a_last_number=st.booleans())
    def the_camera_child_dies(self, reaped: bool, takes_a_last_number: bool) -> None:
        """Killed between the ledger and the announcement, or stuck in the kernel."""
        if takes_a_last_number:
            self.main.ledger.take()
        self.main_reads_the_camera()
        assert self.camera is not None
        host = self.main.hosts["top"]
        host.alive = False
        host.take()
        if not reaped:
            self.stuck[self._next_life("top")] = [(self.camera.pool, slot) for slot in self.camera.free]
        self.camera = None
        self.main.line.on_ending()
        self.main.line.on_gone("was ended by SIGKILL", life=self.life, reaped=reaped)

    def _next_life(self, name: str) -> int:
        self.life += 1
        self.stuck_lives.setdefault(name, []).append(self.life)
        return self.life

    @precondition(lambda self: self.stuck_lives.get("top"))
    @rule(last=st.booleans())
    def a_stuck_camera_child_ends(self, last: bool) -> None:
        life = self.stuck_lives["top"].pop(-1 if last else 0)
        del self.stuck[life]
        self.main.line.on_reaped(life)

    # The model children

    @rule(model=st.sampled_from(sorted(MODELS)))
    def a_model_child_is_admitted(self, model: str) -> None:
        host = self.main.hosts[model]
        if host.alive:
            return
        host.alive = True
        host.handler.on_hello()
        host.handler.on_message({"t": "admitted", "facts": {"model": model, **FACTS}})
        self._models_read()

    def _models_read(self) -> None:
        for model in MODELS:
            for message in self.main.hosts[model].take():
                if message["t"] == "infer":
                    frame = message["f"]
                    assert self.now < frame["captured_s"] + DEADLINE_S, "it is too old to matter"
                    self.reading[model][message["a"]] = frame

    @rule(
        model=st.sampled_from(sorted(MODELS)),
        which=st.integers(0, 5),
        word=st.sampled_from(["done", "failed", "output"]),
    )
    def a_model_child_answers(self, model: str, which: int, word: str) -> None:
        self._models_read()
        reading = self.reading[model]
        if not reading:
            return
        attempt = sorted(reading)[which % len(reading)]
        frame = reading.pop(attempt)
        message: Message = {"t": "answer", "a": attempt, "n": frame["frame_id"], "g": frame["generation"], "k": word}
        if word == "done":
            self.inferred[model].add(frame["frame_id"])
            message |= {"d": [], "s": 0.01}
        self.main.hosts[model].handler.on_message({**message, "why": "played"})
        self._models_read()

    @rule(model=st.sampled_from(sorted(MODELS)), reaped=st.booleans(), hopeless=st.booleans())
    def a_model_child_dies(self, model: str, reaped: bool, hopeless: bool) -> None:
        self._models_read()
        host = self.main.hosts[model]
        if not host.alive:
            return
        host.alive, host.told = False, Told("refused its file", FailureKind.REFUSED) if hopeless else None
        host.take()
        left, self.reading[model] = self.reading[model], {}
        if not reaped:
            self.still_read[self._next_life(model)] = list(left.values())
        host.handler.on_ending()
        host.handler.on_gone("was ended by SIGSEGV", life=self.life, reaped=reaped)

    @precondition(lambda self: any(self.stuck_lives.get(name) for name in MODELS))
    @rule(last=st.booleans())
    def a_stuck_model_child_ends(self, last: bool) -> None:
        model = next(name for name in MODELS if self.stuck_lives.get(name))
        life = self.stuck_lives[model].pop(-1 if last else 0)
        del self.still_read[life]
        self.main.hosts[model].handler.on_reaped(life)

    @rule(model=st.sampled_from(sorted(MODELS)), quarters=st.integers(QUARTERS, 4 * QUARTERS))
    def a_device_bears_more_or_less(self, model: str, quarters: int) -> None:
        """Whatever led to it: of so many quarters of a frame four are taken."""
        for level in self.main.drivers[model].lane.levels.values():
            level._change(quarters, self.now)

    @precondition(lambda self: self.camera is not None)
    @rule(
        frames=st.integers(1, 12),
        words=st.lists(st.sampled_from(["done", "done", "failed", "output", ""]), min_size=1, max_size=5),
        seconds=st.sampled_from([0.0, 0.02, 0.06]),
        mended=st.booleans(),
    )
    def the_line_works_for_a_while(self, frames: int, words: list[str], seconds: float, mended: bool) -> None:
        """Most of what happens on a line; single steps alone would hardly ever lead to a whole inspection."""
        answers = itertools.cycle(words)
        for model in MODELS if mended else ():
            self.a_model_child_is_admitted(model)
        for _ in range(frames):
            self.the_camera_grabs(good=1, main_is_quick=1)
            self.time_passes(seconds, main_is_quick=True)
            for model in MODELS:
                if word := next(answers):
                    self.a_model_child_answers(model, 0, word)
            self.everything_holds()

    # Time, disk and broker

    @rule(seconds=st.sampled_from([0.02, 0.02, 0.11, 0.35, 1.1, DAYS_60_S]), main_is_quick=st.booleans())
    def time_passes(self, seconds: float, main_is_quick: bool) -> None:
        """Timers may be late: a message is read before them."""
        self.now += seconds
        if not main_is_quick:
            return
        for _ in range(3):
            self.main.fire()
        self._models_read()
        for opened in self.main.line._open.values():
            assert self.now < opened.frame.captured_s + DEADLINE_S, "a frame has no outcome by its deadline"

    @rule(flush=st.booleans())
    def the_journal_commits(self, flush: bool) -> None:
        if flush:
            self.main.book.flush()
        frames = sum(len(_numbers(record)) for record in self.main.pending)
        pending = self.main.pending[:]
        rows = self.main.commit()
        for record in pending:
            if isinstance(record, Inspection) and record.frame is not None:
                assert {run.model for run in record.runs} == set(MODELS), "a frame was closed before all had answered"
        self.main.line.accounts.committed(frames)
        if flush:
            unseen = self.main.ledger.last - self.main.line.accounts.seen
            waiting = unseen + len(self.main.line.accounts.open_numbers)
            assert self.main.line.in_flight == waiting, "a number was handed over and has no record"
        self.main.act(self.main.outbox.committed(rows, self.now))

    @precondition(lambda self: self.main.reads)
    @rule()
    def the_journal_is_read(self) -> None:
        for read in self.main.reads[:]:
            self.main.reads.remove(read)
            seqs = [seq for seq in range(read.from_seq, read.to_seq + 1) if seq in self.disk.payloads][: read.limit]
            rows = [Row(seq, self.disk.payloads[seq]) for seq in seqs]
            self.main.act(self.main.outbox.loaded(read, rows, self.now))

    @rule(connected=st.booleans())
    def the_broker_comes_or_goes(self, connected: bool) -> None:
        if connected == self.main.outbox.connected_now:
            return
        self.main.sends.clear()
        if connected:
            self.main.act(self.main.outbox.connected(self.now))
        else:
            self.main.act(self.main.outbox.disconnected())

    @precondition(lambda self: self.main.sends)
    @rule(which=st.integers(0, 9))
    def the_broker_acknowledges(self, which: int) -> None:
        send = self.main.sends.pop(which % len(self.main.sends))
        self.delivered.append(send.payload)
        self.main.act(self.main.outbox.puback(send.token, 0, self.now))

    @rule()
    def main_is_killed(self) -> None:
        """With everything that it had not committed; its children die with it."""
        self.main.close()
        self.camera = None
        self.stuck, self.stuck_lives, self.still_read = {}, {}, {}
        for reading in self.reading.values():
            reading.clear()
        self._start_main()

    # What holds after every step

    def everything_holds(self) -> None:
        """Also between the steps of a rule that has several."""
        self.captured_is_accounted_plus_in_flight()
        self.each_lane_ends_what_it_was_given_once()
        self.nothing_waits_for_an_open_breaker()
        self.what_somebody_reads_is_not_the_cameras()

    @invariant()
    def captured_is_accounted_plus_in_flight(self) -> None:
        marks = self.disk.state.marks.get("top")
        captured = self.main.ledger.last - (marks.excluded if marks else 0)
        assert captured == self.disk.state.counters.accounted + self.main.line.in_flight

    @invariant()
    def each_lane_ends_what_it_was_given_once(self) -> None:
        for driver in self.main.drivers.values():
            lane, stats = driver.lane, driver.lane.stats
            ended = stats.done + stats.timed_out + stats.dropped + stats.failed + stats.unavailable
            assert stats.submitted == ended + lane.waiting + len(lane._running)
            assert stats.skipped <= stats.dropped
            assert len(lane._running) + lane.lost <= REQUESTS
        held = sum(driver.lane.waiting + len(driver.lane._running) for driver in self.main.drivers.values())
        assert len(self.main.line._open) <= held, "an open frame is with no model: nothing would ever end it"

    @invariant()
    def nothing_waits_for_an_open_breaker(self) -> None:
        for driver in self.main.drivers.values():
            breaker = driver.lane.breaker
            if not breaker.allows(self.now):
                assert driver.lane.waiting == 0
            assert (breaker.state is BreakerState.CLOSED) == (breaker.reason == "")
            if breaker.state is BreakerState.PROBING:
                assert sum(attempt >= breaker._first for attempt in driver.lane._running) <= 1

    @invariant()
    def what_was_left_out_by_policy_never_reached_a_device(self) -> None:
        """And only frames that may be left out are."""
        for record in (*self.disk.rows, *self.main.pending):
            if isinstance(record, Inspection) and record.decision.code == Code.SKIPPED_BY_POLICY:
                assert self.policies.may_skip
                assert self.policies.skipped_as_results
                assert all(run.attempts == 0 for run in record.runs if run.model == "defects")
            elif isinstance(record, LostRun) and record.code is Code.SKIPPED_BY_POLICY:
                assert self.policies.may_skip
                assert not self.inferred["defects"].intersection(_numbers(record))

    @invariant()
    def no_frame_has_more_attempts_than_are_allowed(self) -> None:
        for record in self.main.pending:
            if isinstance(record, Inspection):
                assert all(run.attempts <= 1 + self.policies.retries for run in record.runs)

    @invariant()
    def what_somebody_reads_is_not_the_cameras(self) -> None:
        """Attempts that were given up still read; a slot is free only when they have answered or were reaped."""
        free = {(self.camera.pool, slot) for slot in self.camera.free} if self.camera else set()
        for frames in (*(reading.values() for reading in self.reading.values()), *self.still_read.values()):
            for frame in frames:
                place = frame["pool"], frame["slot"]
                assert self.memory[place] == frame["frame_id"]
                assert place not in free
        assert not free.intersection(itertools.chain.from_iterable(self.stuck.values())), (
            "a stuck camera process may still write there"
        )

    @invariant()
    def no_ok_without_a_completed_inference(self) -> None:
        for record in (*self.disk.rows, *self.main.pending):
            if isinstance(record, Inspection) and record.decision.evaluation is Evaluation.OK:
                assert record.frame_id in self.inferred["defects"]


def _numbers(record: Record) -> range:
    if isinstance(record, LostRun):
        return range(record.from_frame_id, record.to_frame_id + 1)
    return range(record.frame_id, record.frame_id + 1)


TestAccounting = AccountingMachine.TestCase
TestAccounting.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
