"""The counters and the sets of numbers: what a record adds, and that no number is added twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.journaling import inspection, lost

from inspectd.publish.counters import Counters, Tally
from inspectd.publish.intervals import IntervalSet, Overlap, spans_of
from inspectd.publish.ring import Ring
from inspectd.records import Code, Evaluation, Inspection, LostRun, Record, ResultState

NUMBERS = st.integers(min_value=1, max_value=60)


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    made: list[Record] = []
    number = 1
    for kind in draw(st.lists(st.integers(min_value=0, max_value=5), max_size=30)):
        if kind < 4:
            made.append(inspection(number, Evaluation(kind), camera=draw(st.sampled_from(["top", "side"]))))
            number += 1
        else:
            count = draw(st.integers(min_value=1, max_value=9))
            made.append(lost(number, number + count - 1, upper_bound=kind == 5))
            number += count
    return made


def counted(made: list[Record]) -> Counters:
    counters = Counters(5.0)
    for record in made:
        counters = counters.add(record)
    return counters


@given(records())
def test_every_frame_is_counted_once_in_each_view(made: list[Record]) -> None:
    """The sums by evaluation, by code, by camera and by part are the same number: that of the frames."""
    counters = counted(made)
    frames = sum(
        1 if isinstance(record, Inspection) else record.count
        for record in made
        if isinstance(record, Inspection) or not record.count_is_upper_bound
    )
    assert counters.accounted == frames
    assert sum(counters.by_code.values()) == frames
    assert sum(tally.total for tally in counters.per_camera.values()) == frames
    assert counters.parts.total == frames


@given(records())
def test_counters_survive_their_round_trip_through_json(made: list[Record]) -> None:
    counters = counted(made)
    assert Counters.from_json(counters.to_json()) == counters


def test_numbers_that_may_never_have_been_captured_are_outside_every_other_count() -> None:
    counters = Counters(0.0).add(lost(1, 300, Code.INTERRUPTED, upper_bound=True))
    assert counters == Counters(0.0, possibly_lost=300)


def test_simulated_and_challenge_frames_are_counted_but_are_no_parts() -> None:
    counters = Counters(0.0).add(inspection(1, simulated=True)).add(inspection(2), challenge=True).add(inspection(3))
    assert (counters.ok, counters.simulated, counters.challenge) == (3, 1, 1)
    assert counters.parts == Tally(ok=1)


def test_late_and_skipped_frames_are_counted_besides_their_evaluation() -> None:
    """Skipped are 301, 303 and 304, alone or in runs; a late one is late whatever was decided."""
    counters = Counters(0.0).add(inspection(1, latency_s=0.4)).add(lost(2, 4, Code.QUEUE_FULL))
    counters = counters.add(lost(5, 5, Code.INTERRUPTED)).add(inspection(6, Evaluation.UNDEFINED, code=304))
    assert (counters.late, counters.skipped, counters.undefined) == (1, 4, 5)
    assert counters.by_code == {0: 1, 301: 3, 302: 1, 304: 1}


def test_counts_of_a_newer_release_are_passed_over() -> None:
    assert Counters.from_json('{"since_wall_s": 3.0, "ok": 7, "invented": {"a": 1}}') == Counters(3.0, ok=7)


@pytest.mark.parametrize("text", ["", "[]", '{"per_camera": {"top": 3}}', '{"by_code": {"x": 1}}'])
def test_text_that_is_no_counters_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Counters.from_json(text)


@given(st.lists(st.tuples(NUMBERS, NUMBERS)))
def test_a_set_of_numbers_is_a_set_and_refuses_what_it_has(pairs: list[tuple[int, int]]) -> None:
    """Compared with Python's own set after every step: same numbers, same holes; overlap is refused."""
    numbers, model = IntervalSet(), set[int]()
    for first, last in (sorted(pair) for pair in pairs):
        wanted = set(range(first, last + 1))
        if wanted & model:
            with pytest.raises(Overlap):
                numbers.add(first, last)
        else:
            numbers, model = numbers.add(first, last), model | wanted
        assert numbers.spans == spans_of(sorted(model))
        assert numbers.missing(60) == spans_of(sorted(set(range(1, 61)) - model))
        assert numbers.count == len(model)


def test_a_set_of_numbers_stays_small_because_the_watermark_absorbs() -> None:
    numbers = IntervalSet()
    for number in (2, 1, 4, 3, 6, 5, 8, 7):
        numbers = numbers.add(number, number)
        assert len(numbers.above) <= 1
    assert numbers == IntervalSet(8)


@given(st.permutations(range(1, 41)), st.integers(min_value=1, max_value=20))
def test_a_full_ring_keeps_the_sum_exact(order: list[int], capacity: int) -> None:
    """Beyond its bound consecutive records are merged to runs with code 700: each number is still in exactly one."""
    ring = Ring(capacity)
    fitted = sum(ring.submit(inspection(number), 0.0) for number in order)
    assert fitted == capacity
    numbers = IntervalSet()
    while taken := ring.batch(7):
        for record in taken:
            if isinstance(record, LostRun):
                assert record.code is Code.NOT_COMMITTED
                numbers = numbers.add(record.from_frame_id, record.to_frame_id)
            else:
                numbers = numbers.add(record.frame_id, record.frame_id)
        ring.done(len(taken))
    assert numbers == IntervalSet(40)
    assert ring.oldest_s() is None


def test_numbers_that_may_not_exist_stay_apart_in_a_full_ring() -> None:
    ring = Ring(1)
    ring.submit(inspection(1), 0.0)
    for run in (lost(2, 3), lost(4, 9, upper_bound=True), lost(10, 10)):
        assert not ring.submit(run, 1.0)
    ring.done(1)
    runs = [record for record in ring.batch(9) if isinstance(record, LostRun)]
    assert [(run.from_frame_id, run.to_frame_id, run.count_is_upper_bound) for run in runs] == [
        (2, 3, False),
        (10, 10, False),
        (4, 9, True),
    ]


def test_a_result_that_was_tried_in_vain_is_turned_into_700_once() -> None:
    """601 and 600 come before 700 in the contract's order, so they stay what they are."""
    ring = Ring()
    ring.submit(inspection(1), 0.0)
    ring.submit(inspection(2, Evaluation.UNDEFINED, code=Code.PART_ID), 0.0)
    turned = ring.tried_in_vain("no room")
    assert [(record.decision.code, record.decision.state) for record in turned] == [
        (Code.NOT_COMMITTED, ResultState.FAILED),
        (Code.PART_ID, ResultState.FAILED),
    ]
    assert ring.tried_in_vain("no room") == ()
    assert ring.batch(9) == list(turned)
