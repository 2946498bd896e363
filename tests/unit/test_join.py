"""A frame's outcomes come together once, whatever order, number and lateness its models' answers have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspectd.join import Join
from inspectd.records import Code, Done, Dropped, Failed, Outcome, Unavailable

DONE = Done((), 0.01)
FAILED = Failed(Code.MODEL_ERROR, "out of resources")
MODELS = ("defects", "code", "colour")
outcomes = st.sampled_from([DONE, FAILED, Dropped(Code.QUEUE_FULL, "full"), Unavailable("open")])


def test_is_complete_with_the_last_model_and_only_then() -> None:
    join = Join(MODELS)
    assert [join.add("code", DONE), join.add("defects", FAILED), join.add("colour", DONE)] == [False, False, True]
    assert join.outcomes == {"code": DONE, "defects": FAILED, "colour": DONE}


def test_the_first_outcome_stands_and_a_second_completes_nothing_again() -> None:
    """A late answer after a time limit must not turn "not inspected" into a verdict, nor close a frame twice."""
    join = Join(("defects",))
    assert join.add("defects", FAILED)
    assert not join.add("defects", DONE)
    assert join.outcomes == {"defects": FAILED}


def test_names_what_is_missing_in_yaml_order() -> None:
    join = Join(MODELS)
    join.add("code", DONE)
    assert join.missing == ("defects", "colour")
    assert not join.complete


def test_outcomes_are_in_yaml_order_whoever_answered_first() -> None:
    """A result lists models and detections the same way every time."""
    join = Join(MODELS)
    for model in reversed(MODELS):
        join.add(model, DONE)
    assert tuple(join.outcomes) == MODELS


def test_giving_up_completes_the_frame_and_keeps_what_was_answered() -> None:
    join = Join(MODELS)
    join.add("code", DONE)
    join.give_up(Code.INTERRUPTED, "stopped")
    dropped = Dropped(Code.INTERRUPTED, "stopped")
    assert join.outcomes == {"defects": dropped, "code": DONE, "colour": dropped}
    assert join.complete


def test_a_frame_for_no_model_is_complete_at_once() -> None:
    assert Join(()).complete


def test_a_model_that_was_not_to_run_is_refused_by_name() -> None:
    join = Join(("defects",))
    with pytest.raises(ValueError, match="outcome of 'code', but this frame goes to defects"):
        join.add("code", DONE)


@given(st.lists(st.tuples(st.sampled_from(MODELS), outcomes)))
def test_completes_exactly_once_and_keeps_each_models_first_outcome(answers: list[tuple[str, Outcome]]) -> None:
    join = Join(MODELS)
    completions = sum(join.add(model, outcome) for model, outcome in answers)
    first = dict(reversed(answers))
    assert join.outcomes == first
    assert completions == int(len(first) == len(MODELS))
