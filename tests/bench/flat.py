"""`python -m tests.bench.flat`: minutes at full load; memory and descriptors of every process must stay flat.

MINUTES=5 by default. The slope is Theil–Sen's (median of all pairs), so that a single step is not taken for a leak; its
95 % interval is Sen's. A process fails if it surely grew by more than the limit within the run. Exit 1 then, else 0.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.__main__ import add_places
from tests.bench.figures import Bench
from tests.bench.measure import Memory, NotMeasured, descriptors, memory
from tests.bench.report import machine
from tests.bench.running import Running, daemon

from inspectd.resources import model_path

RUN_IN_S, RUN_IN_RESULTS = 30.0, 1500
"""Caches, allocator and frame pools fill in this time; SQLite's page cache (2 MB) with these results."""
PERIOD_S = 3.0
SAMPLES_MIN = 10
GROWTH_MB = 1.0
"""Within the run: 12 MB an hour in 5 minutes, 1 MB an hour in 60."""
GROWTH_DESCRIPTORS = 0.5
"""Within the run: less than one."""
Z_95 = 1.96
HOUR_S = 3600.0
MB = 1e6


@dataclass(frozen=True, slots=True)
class Slope:
    """Per second, with its 95 % interval."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Measure:
    """What is watched of a process."""

    name: str
    read: Callable[[Memory, int], float]
    """Of the process's memory and its descriptors."""
    growth: float | None
    """What may be gained within the run; None: only printed."""


MEASURES = (
    Measure("RSS MB", lambda used, _: used.rss / MB, GROWTH_MB),
    Measure("RssAnon MB", lambda used, _: used.anonymous / MB, GROWTH_MB),
    Measure("PSS MB", lambda used, _: used.pss / MB, None),  # moves with other programs that share pages
    Measure("descriptors", lambda _, count: count, GROWTH_DESCRIPTORS),
)


def theil_sen(times_s: Sequence[float], values: Sequence[float]) -> Slope:
    """Median of the slopes of all pairs; interval by Sen (1968) from Kendall's variance, without ties in time."""
    pairs = itertools.combinations(zip(times_s, values, strict=True), 2)
    slopes = sorted((later - earlier) / (end - begin) for (begin, earlier), (end, later) in pairs)
    count = len(times_s)
    spread = Z_95 * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = max(0, math.floor((len(slopes) - spread) / 2))
    high = min(len(slopes) - 1, math.ceil((len(slopes) + spread) / 2))
    return Slope(slopes[len(slopes) // 2], slopes[low], slopes[high])


def run(model: Path, disk: Path | None, seconds: float) -> tuple[list[float], dict[tuple[str, str], list[float]], int]:
    """Run a daemon at full load. Gives what `watch` gives, and how many results came. Raises NotMeasured."""
    with tempfile.TemporaryDirectory(prefix="inspectd-flat-", dir=disk) as folder:
        bench = Bench(Path(folder), model, model, seconds=0, rounds=0)
        with daemon(bench.disk, **bench.full_load()) as running:
            running.pause(RUN_IN_S)
            running.settle(RUN_IN_RESULTS)
            before = len(running.ears.results)
            times_s, values = watch(running, seconds)
            results = len(running.ears.results) - before
            running.stop()
    if len(times_s) < SAMPLES_MIN:
        raise NotMeasured(f"{len(times_s)} samples in {seconds:g} s say nothing (at least {SAMPLES_MIN}); take longer")
    return times_s, values, results


def watch(running: Running, seconds: float) -> tuple[list[float], dict[tuple[str, str], list[float]]]:
    """Sample every process. Gives the times, and by process and measure the values."""
    begun_s, times_s = time.monotonic(), list[float]()
    values: dict[tuple[str, str], list[float]] = {
        (process, measure.name): [] for process in running.pids for measure in MEASURES
    }
    while time.monotonic() - begun_s < seconds:
        times_s.append(time.monotonic() - begun_s)
        for process, pid in running.pids.items():
            used, count = memory(pid), descriptors(pid)
            for measure in MEASURES:
                values[process, measure.name].append(measure.read(used, count))
        running.pause(PERIOD_S)
    return times_s, values


def judge(times_s: Sequence[float], values: Mapping[tuple[str, str], Sequence[float]]) -> tuple[list[str], bool]:
    """Word a line for each process and measure; whether all are flat."""
    lines, all_flat = [], True
    for (process, name), found in values.items():
        measure = next(measure for measure in MEASURES if measure.name == name)
        slope = theil_sen(times_s, found)
        limit = math.inf if measure.growth is None else measure.growth / times_s[-1]
        is_flat = slope.low <= limit
        all_flat &= is_flat
        hourly = [part * HOUR_S for part in (slope.middle, slope.low, slope.high)]
        verdict = "" if measure.growth is None else "PASS" if is_flat else "FAIL"
        lines.append(
            f"| {process:15} | {name:11} | {found[0]:8.1f} | {found[-1]:8.1f} | {max(found):8.1f} "
            f"| {hourly[0]:+8.1f} | {hourly[1]:+8.1f} … {hourly[2]:+8.1f} | {verdict:4} |"
        )
    return lines, all_flat


def main() -> None:
    """Run, print, and end with 1 if something grew."""
    made = argparse.ArgumentParser(prog="python -m tests.bench.flat", description=__doc__)
    made.add_argument("--minutes", type=float, default=float(os.environ.get("MINUTES", "5")))
    add_places(made, model_path("pcb-demo.xml"))  # the smaller the model, the more frames pass in a minute
    options = made.parse_args()
    try:
        times_s, values, results = run(options.model, options.folder, options.minutes * 60)
    except NotMeasured as fault:
        raise SystemExit(f"flat: {fault}") from fault
    lines, all_flat = judge(times_s, values)
    print("\n".join(f"{name}: {value}" for name, value in machine().items()))
    print(f"{options.minutes:g} minutes, {results} results of {options.model.name}, {len(times_s)} samples\n")
    print("| process         | measure     |    first |     last |     most |   per hour |      95 % interval |      |")
    print("|-----------------|-------------|----------|----------|----------|----------|---------------------|------|")
    print("\n".join(lines))
    print(f"\n{'PASS' if all_flat else 'FAIL'}: memory and descriptors under full load")
    raise SystemExit(0 if all_flat else 1)


if __name__ == "__main__":
    main()
