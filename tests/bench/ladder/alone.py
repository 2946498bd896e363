"""Our pool with 1 to 16 requests, and beside an accelerator's stand-in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from tests.bench.figures import SIZE_PX, THREADS
from tests.bench.ladder.boards import write_boards
from tests.bench.ladder.climb import Means
from tests.bench.ladder.disturbance import bare_head
from tests.bench.ladder.tally import over_rounds
from tests.bench.ladder.workers import OURS, worker
from tests.bench.report import Figure

REQUESTS = (1, 2, 4, 8, 16)
STAND_IN_S = 0.015
STAND_IN_REQUESTS = 4
"""Two wait in the accelerator, the others prepare and decode meanwhile."""
STAND_IN_RUNGS = {"synchronous loop": 1, "one asynchronous request": 1, OURS: STAND_IN_REQUESTS}


def requests(means: Means, models: Mapping[str, Path]) -> Iterator[Figure]:
    """Frames/s and latency of our pool by how many requests it has, in turns."""
    boards = write_boards(means.disk)
    for name, model in models.items():
        with ExitStack() as stack:
            workers = {count: stack.enter_context(worker(OURS, model, THREADS, count, boards)) for count in REQUESTS}
            rounds = {count: [one.round(means.seconds)] for count, one in workers.items()}
            for _ in range(means.rounds - 1):
                for count, one in workers.items():
                    rounds[count].append(one.round(means.seconds))
        for count, found in rounds.items():
            done = over_rounds(found)
            note = f"p50 {done.p50_ms:.1f} ms, p99 {done.p99_ms:.1f} ms, CPU {done.cpu_ms:.2f} ms a frame"
            yield Figure(
                f"{name}: our pool, {count} request{'s'[: count > 1]}", done.frames_per_s, "frames/s", note=note
            )


def stand_in(means: Means, _models: Mapping[str, Path]) -> Iterator[Figure]:
    """An operation that waits 15 ms without CPU, two at once: what overlap is worth beside an accelerator.

    The daemon cannot load it, as the product has no door for operations of somebody's own.
    """
    boards = write_boards(means.disk)
    model = bare_head(means.disk / "stand-in.xml", SIZE_PX)
    plan = {"every": 1, "sleep_s": STAND_IN_S}
    rates: dict[str, list[float]] = {name: [] for name in STAND_IN_RUNGS}
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(worker(name, model, THREADS, count, boards))
            for name, count in STAND_IN_RUNGS.items()
        }
        for _ in range(means.rounds):
            for name, one in workers.items():
                rates[name].append(one.round(means.seconds, plan=plan).frames_per_s)
    medians = {name: median(found) for name, found in rates.items()}
    ratio = medians[OURS] / medians["synchronous loop"]
    note = ", ".join(f"{name} {rate:.1f}/s" for name, rate in medians.items())
    yield Figure(
        "accelerator stand-in: our pool ÷ synchronous loop", ratio, "", 2.0, at_least=True, note=f"{note}; no daemon"
    )
