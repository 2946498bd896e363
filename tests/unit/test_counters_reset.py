"""captured = accounted + in flight, whenever the counters begin anew: after each step, as the loop sees it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.journaling import inspection, lost

from inspectd.accounts import Accounts, Mark, recover
from inspectd.publish.announcer import Announcer, Wording
from inspectd.publish.counters import Counters
from inspectd.publish.effects import Row
from inspectd.publish.journal import Committed, Recovered
from inspectd.publish.journalstate import JournalState
from inspectd.publish.writerport import Commit, CountersReset
from inspectd.records import Code, Evaluation, Record


class Wire:
    """A publisher that nobody listens to."""

    def committed(self, rows: Iterable[Row]) -> None:
        """Nobody listens."""

    def verdict(self, payload: bytes, expires_s: float) -> None:
        """Nobody listens."""

    def retain(self, leaf: str, payload: bytes, qos: int) -> None:
        """Nobody listens."""


class ResetMachine(RuleBasedStateMachine):
    """Accounts, announcer and the journal's state are real; ledger, disk and the way to the loop are played."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger_last = 0
        self.disk = JournalState("stream", 1, 0, Counters(0.0), "boot", clean=False, software_version="0")
        self._start()

    def _start(self) -> None:
        """Begin as the daemon does: every number without a row gets one before a camera takes the next."""
        mark = self.disk.marks["top"].mark if "top" in self.disk.marks else Mark()
        for first, last in recover(mark, self.ledger_last, exact=True).lost:
            self.disk = self.disk.with_record(lost(first, last, Code.INTERRUPTED))
        self.memory = self.disk
        self.reset_waits = False
        self.ring: list[Record] = []
        self.told: deque[Callable[[], None]] = deque()
        self.accounts = Accounts(self.ledger_last, mark.excluded)
        wording = Wording(None, lambda *_: b"")
        self.announcer = Announcer(Wire, {"top": self.accounts}, self.disk.counters, wording, lambda: 0.0)

    @rule(count=st.integers(1, 4))
    def the_camera_takes_numbers(self, count: int) -> None:
        self.ledger_last += count

    @precondition(lambda self: self.accounts.seen < self.ledger_last)
    @rule()
    def main_hears_of_the_last(self) -> None:
        gap = self.accounts.announce(self.ledger_last)
        if gap:
            self.ring.append(lost(*gap))

    @precondition(lambda self: self.accounts.open_numbers)
    @rule(oldest=st.booleans(), evaluation=st.sampled_from(list(Evaluation)))
    def a_frame_is_decided(self, oldest: bool, evaluation: Evaluation) -> None:
        number = (min if oldest else max)(self.accounts.open_numbers)
        self.accounts.record(number)
        self.ring.append(inspection(number, evaluation))

    @rule()
    def a_reset_is_taken(self) -> None:
        """By the writer's thread, with the notes: on the disk with the first commit that succeeds."""
        self.memory = self.memory.counting_anew(60.0)
        self.reset_waits = True

    @rule(count=st.integers(0, 3))
    def a_commit_succeeds(self, count: int) -> None:
        before, batch, self.ring = self.memory, self.ring[:count], self.ring[count:]
        for record in batch:
            self.memory = self.memory.with_record(record)
        self.disk = self.memory
        if self.reset_waits:
            excluded = {name: marks.excluded for name, marks in before.marks.items()}
            self.told.append(partial(self.announcer.on_counters_reset, CountersReset(before.counters, excluded)))
            self.reset_waits = False
        rows = tuple(Committed(record, None, None) for record in batch)
        commit = Commit(rows, self.memory.counters, self.memory.next_seq, 0.0)
        self.told.append(partial(self.announcer.on_commit, commit))

    @rule()
    def the_journal_is_set_aside(self) -> None:
        self.memory = self.disk = self.memory.anew("next", 90.0)
        marks = {name: marks.mark for name, marks in self.memory.marks.items()}
        recovered = Recovered("next", 1, 0, self.memory.counters, marks, False, True, "damage", 1, 0, "")
        self.told.append(partial(self.announcer.on_new_stream, recovered))

    @precondition(lambda self: self.told)
    @rule()
    def the_loop_hears(self) -> None:
        self.told.popleft()()

    @rule(clean=st.booleans())
    def everything_is_killed(self, clean: bool) -> None:
        self.disk = replace(self.disk, clean=clean)
        self._start()

    @invariant()
    def captured_is_accounted_plus_in_flight(self) -> None:
        captured = self.accounts.captured(self.ledger_last)
        assert captured == self.announcer.counters.accounted + self.accounts.in_flight(self.ledger_last)

    @invariant()
    def no_number_is_negative(self) -> None:
        assert self.accounts.captured(self.ledger_last) >= self.announcer.counters.accounted >= 0


TestReset = ResetMachine.TestCase
TestReset.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
