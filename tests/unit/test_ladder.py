"""The bench's ladder: what counts as lost, and how rounds become a table with budgets."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from tests.bench.ladder.plot import BAR, LOSING_BAR, NAME_PX, plot
from tests.bench.ladder.rows import Row, budgets, table
from tests.bench.ladder.tally import Round, Tally, intervals_ms, over_rounds

SOUND = Round(
    given=200,
    answered=200,
    told=0,
    frames_per_s=40.0,
    cpu_ms=50.0,
    p50_ms=25.0,
    p99_ms=30.0,
    interval_p99_ms=125.0,
    anonymous_mb=100.0,
)
LOSING = replace(SOUND, answered=150, told=2)


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def taken(tally: Tally, count: int) -> list[int]:
    return [frame for _ in range(count) if (frame := tally.take()) is not None]


def test_a_frame_without_result_and_without_its_own_error_is_lost(clock: Clock) -> None:
    """An error that names the frame is told: somebody can act on it. Silence, or another frame's error, is a loss."""
    tally = Tally(clock, 10.0)
    for frame in taken(tally, 6)[:3]:
        tally.answered(frame)
    tally.told(3)
    done = tally.round(cpu_s=0.3, anonymous_mb=1.0)
    assert (done.given, done.answered, done.told, done.lost) == (6, 3, 1, 2)


def test_a_frame_that_is_answered_twice_counts_once(clock: Clock) -> None:
    """Else one result too many would hide one that is missing."""
    tally = Tally(clock, 10.0)
    first, _ = taken(tally, 2)
    tally.answered(first)
    tally.answered(first)
    tally.told(first)
    done = tally.round(cpu_s=0.0, anonymous_mb=1.0)
    assert (done.answered, done.told, done.lost) == (1, 0, 1)


def test_latency_is_from_taking_a_frame_and_cpu_is_per_result(clock: Clock) -> None:
    tally = Tally(clock, 10.0)
    for step_s in (0.010, 0.020, 0.030, 0.040):
        (frame,) = taken(tally, 1)
        clock.now_s += step_s
        tally.answered(frame)
    done = tally.round(cpu_s=0.2, anonymous_mb=1.0)
    assert done.p50_ms == pytest.approx(20.0)
    assert done.p99_ms == pytest.approx(40.0)
    assert done.interval_p99_ms == pytest.approx(40.0)
    assert done.cpu_ms == pytest.approx(50.0)
    assert done.frames_per_s == pytest.approx(40.0)


@pytest.mark.parametrize(("passed_s", "frames", "goes_on"), [(1, 0, True), (4, 2, True), (4, 3, False), (9, 0, False)])
def test_a_round_lasts_until_it_has_its_frames_but_not_for_ever(
    clock: Clock, passed_s: float, frames: int, goes_on: bool
) -> None:
    """One slowed inference in fifty needs some hundreds of frames, whatever the model's size."""
    tally = Tally(clock, 3.0, frames_min=3, seconds_max=8.0)
    taken(tally, frames)
    clock.now_s += passed_s
    assert (tally.take() is not None) == goes_on


def test_a_round_without_results_has_no_rate_and_no_times(clock: Clock) -> None:
    """A stuck rung still says what it took."""
    tally = Tally(clock, 10.0)
    taken(tally, 4)
    done = tally.round(cpu_s=0.1, anonymous_mb=1.0, is_stuck=True)
    assert (done.lost, done.frames_per_s, done.is_stuck) == (4, 0.0, True)
    assert math.isnan(done.cpu_ms)
    assert math.isnan(done.p99_ms)


def test_intervals_do_not_depend_on_the_order_in_which_threads_noted_them() -> None:
    assert intervals_ms([1.0, 1.5, 1.25]) == [250.0, 250.0]


def test_rounds_are_put_together_by_medians_and_counts_by_sums() -> None:
    """A round that other work on the host has spoilt must not move the figure."""
    rounds = [replace(SOUND, frames_per_s=rate) for rate in (40.0, 5.0, 42.0)]
    rounds[1] = replace(rounds[1], answered=199, is_stuck=True)
    found = over_rounds(rounds)
    assert (found.frames_per_s, found.given, found.lost, found.is_stuck) == (40.0, 600, 1, True)


def test_the_table_says_what_was_lost_and_who_was_stuck() -> None:
    rows = [
        Row("callbacks, 4", SOUND, SOUND, replace(LOSING, is_stuck=True)),
        Row("benchmark_app", replace(SOUND, given=0, answered=0, p50_ms=math.nan)),
    ]
    _, _, callbacks, reference = table(rows).splitlines()
    assert [cell.strip() for cell in callbacks.split("|")[7:12]] == [
        "0 of 200", "125 ms", "0 of 200", "48 of 200, stuck", "2",
    ]  # fmt: skip
    assert [cell.strip() for cell in reference.split("|")[4:12]] == ["–", "30.0", "100", "–", "–", "–", "–", "–"]


def ladder(**rates: float) -> list[Row]:
    """Synchronous loop, a faster rung that loses results, our pool, daemon, benchmark_app."""
    plain = {name: replace(SOUND, frames_per_s=rate) for name, rate in rates.items()}
    return [
        Row("synchronous loop", plain["loop"], SOUND, SOUND),
        Row("AsyncInferQueue, 4", plain["queue"], SOUND, LOSING),
        Row("our pool, 2", plain["pool"], replace(SOUND, interval_p99_ms=50.0), SOUND),
        Row("whole daemon", plain["daemon"]),
        Row("benchmark_app", plain["reference"]),
    ]


def test_the_daemon_is_measured_against_the_fastest_rung_that_loses_nothing() -> None:
    """What is fast because it drops results is no measure."""
    rows = ladder(loop=40.0, queue=50.0, pool=48.0, daemon=38.0, reference=50.0)
    found = {figure.name.removeprefix("m: "): figure for figure in budgets("m", rows, is_large=True)}
    fastest = found["daemon ÷ fastest rung that loses nothing"]
    assert fastest.value == pytest.approx(0.95)
    assert (fastest.note, fastest.verdict) == ("synchronous loop", "over")
    assert found["daemon ÷ benchmark_app"].verdict == "over"
    assert found["every 50th slowed, interval p99, our pool ÷ synchronous loop"].value == pytest.approx(0.4)
    assert found["results that our pool lost"].verdict == "ok"


def test_the_budget_of_a_large_model_does_not_judge_a_small_one() -> None:
    rows = ladder(loop=40.0, queue=50.0, pool=48.0, daemon=38.0, reference=50.0)
    first = next(budgets("m", rows, is_large=False))
    assert (first.budget, first.verdict) == (None, "")


def test_a_rung_that_has_not_met_a_fault_is_not_called_sound() -> None:
    """A slow model may end its round before anything could fail."""
    assert not Row("callbacks, 4", SOUND, SOUND, replace(SOUND, given=9, answered=9)).is_tried
    assert Row("callbacks, 4", SOUND, SOUND, SOUND).is_tried


def test_the_plot_has_a_bar_for_each_rung_as_long_as_its_figure(tmp_path: Path) -> None:
    """And another colour for one that lost results: its speed is worth nothing."""
    rows = ladder(loop=50.0, queue=100.0, pool=48.0, daemon=38.0, reference=50.0)
    plot({"m": rows}, tmp_path / "ladder.png")
    picture = cv2.imread(str(tmp_path / "ladder.png"))
    assert picture is not None
    frames = picture[: len(picture) // 2, NAME_PX:]
    lengths_px = {
        color: int((np.asarray(frames) == color).all(axis=2).sum(axis=1).max()) for color in (BAR, LOSING_BAR)
    }
    assert lengths_px[LOSING_BAR] == pytest.approx(2 * lengths_px[BAR], abs=2)
