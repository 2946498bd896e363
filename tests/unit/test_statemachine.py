"""The state machine does what OPC 40100-1 allows, and follows the facts in few steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.docs import between_markers

from inspectd.publish.reports import Automatic, Vision
from inspectd.statemachine import (
    MEANING,
    OPERATIONAL,
    TRANSITIONS,
    Facts,
    Refused,
    State,
    Trigger,
    due,
    follow,
    step,
    table,
    triggers_of,
)

UP = Facts(started=True)
STANDARD = {
    (Vision.PREOPERATIONAL, Vision.HALTED),
    (Vision.PREOPERATIONAL, Vision.ERROR),
    (Vision.PREOPERATIONAL, Vision.OPERATIONAL),
    (Vision.HALTED, Vision.PREOPERATIONAL),
    (Vision.ERROR, Vision.PREOPERATIONAL),
    (Vision.ERROR, Vision.HALTED),
    (Vision.ERROR, Vision.OPERATIONAL),
    (Vision.OPERATIONAL, Vision.PREOPERATIONAL),
    (Vision.OPERATIONAL, Vision.HALTED),
    (Vision.OPERATIONAL, Vision.ERROR),
}
"""OPC 40100-1, 8.2.7."""
STANDARD_AUTOMATIC = {
    (Automatic.INITIALIZED, Automatic.READY),
    (Automatic.READY, Automatic.INITIALIZED),
    (Automatic.READY, Automatic.SINGLE_EXECUTION),
    (Automatic.READY, Automatic.CONTINUOUS_EXECUTION),
    (Automatic.SINGLE_EXECUTION, Automatic.READY),
    (Automatic.CONTINUOUS_EXECUTION, Automatic.READY),
}
"""OPC 40100-1, 8.3.6."""

facts = st.builds(Facts, st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 2))
states = st.sampled_from(State)


def after(state: State, now: Facts) -> State:
    return ([state] + [reached for _, reached in follow(state, now)])[-1]


def test_every_transition_is_one_of_the_standards() -> None:
    for row in TRANSITIONS:
        for source in row.sources:
            if source.vision is not row.target.vision:
                assert (source.vision, row.target.vision) in STANDARD
            elif source is not row.target:
                assert (source.automatic, row.target.automatic) in STANDARD_AUTOMATIC


def test_every_transition_of_the_standard_is_used() -> None:
    used = {(source.vision, row.target.vision) for row in TRANSITIONS for source in row.sources}
    inner = {(source.automatic, row.target.automatic) for row in TRANSITIONS for source in row.sources}
    assert used >= STANDARD
    assert inner >= STANDARD_AUTOMATIC


def test_operational_is_entered_at_initialized_only() -> None:
    """The standard's way in, from Preoperational and back from Error."""
    entered = [row for row in TRANSITIONS for source in row.sources if source.vision is not row.target.vision]
    assert {row.target for row in entered if row.target in OPERATIONAL} == {State.INITIALIZED}


def test_a_trigger_leads_from_a_state_to_one_other() -> None:
    pairs = [(source, row.trigger) for row in TRANSITIONS for source in row.sources]
    assert len(pairs) == len(set(pairs))


def test_a_transition_is_called_as_the_standard_calls_it() -> None:
    for row in TRANSITIONS:
        source = Vision.OPERATIONAL.value if row.sources == OPERATIONAL else row.sources[0].word
        target = (
            Vision.OPERATIONAL.value if row.sources == (State.ERROR,) and row.target in OPERATIONAL else row.target.word
        )
        assert row.standard.startswith(f"{source}To{target}") or row.standard == ""


def test_the_line_runs_by_itself_after_the_start() -> None:
    steps = follow(State.PREOPERATIONAL, UP)
    assert [trigger for trigger, _ in steps] == [Trigger.STARTED, Trigger.RECIPE_PREPARED, Trigger.CAMERAS_RUN]
    assert steps[-1][1] is State.CONTINUOUS_EXECUTION


@pytest.mark.parametrize(
    ("state", "now", "reached"),
    [
        (State.PREOPERATIONAL, Facts(started=False, fault=True), State.PREOPERATIONAL),
        (State.PREOPERATIONAL, Facts(started=True, fault=True), State.ERROR),
        (State.PREOPERATIONAL, Facts(started=True, recipe=False), State.INITIALIZED),
        (State.PREOPERATIONAL, Facts(started=True, cameras_run=False), State.READY),
        (State.READY, Facts(started=True, cameras_run=False, jobs=2), State.SINGLE_EXECUTION),
        (State.SINGLE_EXECUTION, Facts(started=True, cameras_run=False, jobs=1), State.SINGLE_EXECUTION),
        (State.SINGLE_EXECUTION, Facts(started=True, cameras_run=False), State.READY),
        (State.CONTINUOUS_EXECUTION, Facts(started=True, recipe=False), State.INITIALIZED),
        (State.CONTINUOUS_EXECUTION, Facts(started=True, fault=True), State.ERROR),
        (State.ERROR, UP, State.CONTINUOUS_EXECUTION),
        (State.ERROR, Facts(started=True, stopping=True, fault=True), State.PREOPERATIONAL),
        (State.CONTINUOUS_EXECUTION, Facts(started=True, stopping=True), State.PREOPERATIONAL),
        (State.HALTED, UP, State.HALTED),
    ],
)
def test_the_state_follows_the_facts(state: State, now: Facts, reached: State) -> None:
    assert after(state, now) is reached


@given(states, facts)
def test_following_ends_soon_and_agrees_with_the_facts(state: State, now: Facts) -> None:
    """Operational is never said while something is in the way, while starting, or while stopping."""
    assert len(follow(state, now)) <= 3
    reached = after(state, now)
    assert due(reached, now) is None
    assert (reached is State.HALTED) == (state is State.HALTED)
    if reached is not State.HALTED:
        is_up = now.started and not now.stopping
        assert (reached is State.PREOPERATIONAL) == (not is_up)
        assert (reached is State.ERROR) == (is_up and now.fault)


@given(states, facts)
def test_each_step_of_following_is_a_transition(state: State, now: Facts) -> None:
    for trigger, reached in follow(state, now):
        assert step(state, trigger) is reached
        state = reached


@given(states, st.sampled_from(Trigger))
def test_a_trigger_leads_somewhere_or_is_refused_with_what_is_possible(state: State, trigger: Trigger) -> None:
    answer = step(state, trigger)
    if isinstance(answer, Refused):
        assert answer.reason.startswith(f"not possible in {state.word}: {trigger}; possible there: ")
    assert isinstance(answer, Refused) == (trigger not in triggers_of(state))


def test_halted_is_left_by_a_reset_only() -> None:
    assert triggers_of(State.HALTED) == (Trigger.RESET,)


def test_every_trigger_is_explained_and_used() -> None:
    assert set(MEANING) == set(Trigger)
    assert {row.trigger for row in TRANSITIONS} == set(Trigger)


def test_the_documentation_has_the_table_of_the_transitions() -> None:
    """`statemachine.table()` between its markers, to the letter."""
    assert between_markers("statemachine") == table()
