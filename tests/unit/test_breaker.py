"""A breaker stops asking after so many failures in a row, lets one attempt through, and cannot get stuck."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from inspectd.lane.breaker import Breaker, BreakerPolicy, BreakerState
from inspectd.records import Code, Done, Dropped, Failed, Outcome, TimedOut, Unavailable

DONE = Done((), 0.01)
BAD = Failed(Code.MODEL_ERROR, "top/defects: out of order")
LATE = TimedOut(0.15, 1, "no result")
CUT_SHORT = TimedOut(0.15, 1, "deadline", deadline=True)
BLAMING: list[Outcome] = [BAD, LATE, Failed(Code.MODEL_OUTPUT, "NaN")]
SILENT: list[Outcome] = [CUT_SHORT, Dropped(Code.QUEUE_FULL, "full"), Unavailable("none")]
DAY_S = 86_400.0


def opened(now: float = 0.0) -> Breaker:
    """After five failures at `now`, attempts 1 to 5."""
    breaker = Breaker("defects", BreakerPolicy())
    for attempt in range(1, 6):
        breaker.begun(attempt)
        assert breaker.ended(attempt, BAD, now) == (attempt == 5)
    return breaker


def state(breaker: Breaker) -> BreakerState:
    """Read anew: mypy takes an attribute for unchanged by what a method does."""
    return breaker.state


def test_it_opens_after_the_fifth_failure_in_a_row_and_says_why() -> None:
    breaker = opened()
    assert state(breaker) is BreakerState.OPEN
    assert breaker.refusal(4.9) == (
        "defects: stopped asking after 5 failures in a row, the last: top/defects: out of order"
    )


def test_attempts_that_were_out_together_are_one_failure() -> None:
    """A device that stood still for a moment let eight requests time out at once: five seconds without it were lost."""
    breaker = Breaker("defects", BreakerPolicy(failures=2))
    for attempt in range(1, 9):
        breaker.begun(attempt)
    assert not any(breaker.ended(attempt, LATE, 0.15) for attempt in range(1, 9))
    breaker.begun(9)
    assert breaker.ended(9, LATE, 0.4)


def test_a_success_among_failures_that_were_out_together_begins_the_count_again() -> None:
    """Every second frame fails: the model is asked on."""
    breaker = Breaker("defects", BreakerPolicy(failures=2))
    for attempt in range(1, 100, 2):
        breaker.begun(attempt)
        breaker.begun(attempt + 1)
        assert not breaker.ended(attempt, BAD, 0.0)
        assert not breaker.ended(attempt + 1, DONE, 0.0)
    assert state(breaker) is BreakerState.CLOSED


def test_a_success_between_failures_begins_the_count_again() -> None:
    breaker = Breaker("defects", BreakerPolicy())
    for attempt in range(1, 100):
        assert not breaker.ended(attempt, DONE if attempt % 5 == 0 else BAD, 0.0)
    assert state(breaker) is BreakerState.CLOSED


@pytest.mark.parametrize("outcome", SILENT)
def test_what_says_nothing_about_the_model_neither_opens_nor_resets(outcome: Outcome) -> None:
    """A frame too old is the queue's matter; between failures it must not hide them either."""
    breaker = Breaker("defects", BreakerPolicy(failures=2))
    for attempt in range(1, 20):
        assert not breaker.ended(attempt, outcome, 0.0)
    assert not breaker.ended(20, BAD, 0.0)
    assert not breaker.ended(21, outcome, 0.0)
    assert breaker.ended(22, BAD, 0.0)


def test_a_fault_of_the_cameras_side_does_not_count() -> None:
    """A slot that was given away is no failure of the model."""
    breaker = Breaker("defects", BreakerPolicy(failures=1))
    assert not breaker.ended(1, BAD, 0.0, blameless=True)
    assert breaker.allows(0.0)


def test_after_open_s_exactly_one_attempt_is_let_through() -> None:
    breaker = opened()
    assert breaker.allows(5.0)
    breaker.begun(6)
    assert state(breaker) is BreakerState.PROBING
    assert not breaker.allows(5.0)
    assert not breaker.allows(60 * DAY_S), "until it has ended"
    breaker.ended(6, DONE, 5.1)
    assert state(breaker) is BreakerState.CLOSED
    assert breaker.reason == ""


def test_a_failed_probe_opens_it_again_and_asks_for_more_than_waiting() -> None:
    breaker = opened()
    breaker.begun(6)
    assert breaker.ended(6, LATE, 5.2)
    assert breaker.openings == 2
    assert not breaker.allows(10.1)
    assert breaker.allows(10.2)


@pytest.mark.parametrize(("outcome", "blameless"), [(CUT_SHORT, False), (BAD, True)])
def test_a_probe_that_told_nothing_is_made_anew_at_once(outcome: Outcome, blameless: bool) -> None:
    """It must not stay in `probing` for an attempt that is over."""
    breaker = opened()
    breaker.begun(6)
    assert not breaker.ended(6, outcome, 5.2, blameless=blameless)
    assert breaker.allows(5.2)
    assert breaker.openings == 1


def test_attempts_from_before_it_opened_say_nothing_later() -> None:
    """Four requests were at work when it opened: their late word neither closes it nor counts after it closed."""
    breaker = opened()
    breaker._policy = BreakerPolicy(failures=1)
    assert not breaker.ended(3, DONE, 1.0)
    assert state(breaker) is BreakerState.OPEN
    breaker.begun(20)
    assert not breaker.ended(4, DONE, 5.1)
    breaker.ended(20, DONE, 5.2)
    assert not breaker.ended(5, BAD, 5.3)
    assert state(breaker) is BreakerState.CLOSED


def test_a_dead_child_is_one_failure_however_many_attempts_it_had() -> None:
    """A crash with six requests in hand must not keep their second attempts from the next child."""
    breaker = Breaker("defects", BreakerPolicy(failures=2))
    assert not breaker.child_gone("was ended by SIGSEGV", 0.0)
    assert breaker.child_gone("was ended by SIGSEGV", 1.0)
    assert not breaker.child_gone("was ended by SIGSEGV", 1.1), "while it is open nothing is counted"


def test_a_new_child_is_probed_at_once() -> None:
    breaker = opened()
    assert not breaker.allows(1.0)
    breaker.repaired(1.0)
    assert breaker.allows(1.0)
    assert state(breaker) is BreakerState.OPEN


class BreakerMachine(RuleBasedStateMachine):
    """Any history of attempts, with leaps of up to 60 days."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 2.0**32 / 1000  # milliseconds of 49.7 days have just wrapped
        self.attempt = 2**32 - 3
        self.policy = BreakerPolicy(failures=3, open_s=5.0)
        self.breaker = Breaker("defects", self.policy)
        self.flying: list[int] = []
        self.since_open: list[int] = []
        self.row = 0

    @rule(seconds=st.sampled_from([0.0, 0.001, 1.0, 4.999, 5.0, 5.001, DAY_S, 60 * DAY_S]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.breaker.allows(self.now))
    @rule()
    def begin(self) -> None:
        self.attempt += 1
        if self.breaker.state is not BreakerState.CLOSED:
            self.since_open.append(self.attempt)
        self.breaker.begun(self.attempt)
        self.flying.append(self.attempt)

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), outcome=st.sampled_from([DONE, *BLAMING, *SILENT]), blameless=st.booleans())
    def end(self, data: st.DataObject, outcome: Outcome, blameless: bool) -> None:
        attempt = data.draw(st.sampled_from(self.flying))
        self.flying.remove(attempt)
        was = self.breaker.state
        if self.breaker.ended(attempt, outcome, self.now, blameless=blameless):
            assert outcome in BLAMING
            assert not blameless
            assert self.breaker.state is BreakerState.OPEN
        elif was is BreakerState.OPEN:
            assert self.breaker.state is BreakerState.OPEN
        if attempt in self.since_open:
            self.since_open.remove(attempt)

    @rule()
    def child_gone(self) -> None:
        if self.flying:
            self.breaker.child_gone("died", self.now)
        self.flying, self.since_open = [], []
        self.breaker.repaired(self.now)

    @invariant()
    def one_attempt_at_most_is_out_while_it_is_not_closed(self) -> None:
        if self.breaker.state is not BreakerState.CLOSED:
            assert len(self.since_open) <= 1
            assert self.breaker.reason
        else:
            assert self.breaker.reason == ""
            assert self.breaker.openings == 0
            assert self.breaker._failures < self.policy.failures

    @invariant()
    def probing_has_its_attempt_out(self) -> None:
        """Else nothing would ever end it."""
        assert (self.breaker.state is BreakerState.PROBING) == (self.breaker._probe is not None)
        if self.breaker.state is BreakerState.PROBING:
            assert self.since_open == [self.breaker._probe]

    @invariant()
    def an_open_one_lets_through_after_open_s_at_the_latest(self) -> None:
        if self.breaker.state is BreakerState.OPEN:
            assert self.breaker.allows(self.now + self.policy.open_s)


TestBreaker = BreakerMachine.TestCase
TestBreaker.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
