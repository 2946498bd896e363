"""The ladder itself: every rung with one model, in turns; then slowed, then failing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.figures import DEADLINE_MS, MB, PRECISION, THREADS, Bench
from tests.bench.ladder.articles import RUNGS
from tests.bench.ladder.boards import write_boards
from tests.bench.ladder.rows import Row
from tests.bench.ladder.tally import Round, intervals_ms, over_rounds
from tests.bench.ladder.workers import OURS, Worker, worker
from tests.bench.measure import memory, percentile
from tests.bench.reference import benchmark_app
from tests.bench.running import Interval, daemon

DAEMON, REFERENCE = "whole daemon", "benchmark_app"
SLOW_EVERY, SLOW_FACTOR = 50, 5
FAIL_EVERY = 100
SLOW_FRAMES, FAIL_FRAMES, DISTURBED_FACTOR = 200, 450, 4
"""A disturbed round goes on until it has so many frames, at most so many times as long: 4 of 450 fail."""
SETTLE_RESULTS = 10


@dataclass(frozen=True, slots=True)
class Means:
    """What every group of the ladder is measured with."""

    disk: Path
    seconds: float
    rounds: int

    def bench(self, model: Path) -> Bench:
        return Bench(self.disk, model, model, self.seconds, self.rounds)


def climb(means: Means, model: Path) -> Iterator[Row]:
    """Give a row for every rung, as soon as all rounds are done."""
    folder = write_boards(means.disk)
    plain: dict[str, list[Round]] = {name: [] for name in (*RUNGS, OURS, DAEMON, REFERENCE)}
    with ExitStack() as stack:
        requests, workers = 0, dict[str, Worker]()
        for _ in range(means.rounds):
            reference = benchmark_app(model, means.seconds, THREADS, PRECISION)
            plain[REFERENCE].append(_bare(reference.frames_per_s, reference.cpu_ms))
            if not workers:
                requests = reference.requests
                workers = {
                    name: stack.enter_context(worker(name, model, THREADS, requests, folder)) for name in (*RUNGS, OURS)
                }
            for name, one in workers.items():
                plain[name].append(one.round(means.seconds))
            plain[DAEMON].append(_daemon(means, model, folder, requests))
        medians = {name: over_rounds(rounds) for name, rounds in plain.items()}
        inference_ms = medians["synchronous loop"].p50_ms
        slow: dict[str, Any] = {"every": SLOW_EVERY, "sleep_s": (SLOW_FACTOR - 1) * inference_ms / 1000}
        failing: dict[str, Any] = {"every": FAIL_EVERY, "fails": True}
        disturbed: dict[str, list[Round]] = {name: [] for name in workers}
        for plan, frames_min in ((slow, SLOW_FRAMES), (failing, FAIL_FRAMES)):
            for name, one in workers.items():
                if not any(done.is_stuck for done in disturbed[name]):
                    disturbed[name].append(_disturbed(means, one, plan, frames_min))
    for name, found in medians.items():
        slowed, failed = (*disturbed.get(name, ()), None, None)[:2]
        yield Row(f"{OURS}, {requests}" if name == OURS else name, found, slowed, failed)


def _disturbed(means: Means, one: Worker, plan: dict[str, Any], frames_min: int) -> Round:
    longest_s = DISTURBED_FACTOR * means.seconds
    return one.round(means.seconds, plan=plan, frames_min=frames_min, seconds_max=longest_s)


def files_camera(folder: Path, model: str) -> dict[str, Any]:
    """One camera's section: the folder again and again, as fast as the model takes them."""
    source = {"kind": "files", "path": str(folder), "loop": True, "pace": "lossless"}
    return {"source": source, "deadline_ms": DEADLINE_MS, "models": [model]}


def _daemon(means: Means, model: Path, folder: Path, requests: int) -> Round:
    models = means.bench(model).detector(model, requests=requests)
    with daemon(means.disk, cameras={"top": files_camera(folder, "defects")}, models=models) as running:
        running.settle(SETTLE_RESULTS)
        interval = running.interval(means.seconds)
        anonymous = sum(memory(pid).anonymous for pid in running.pids.values())
        running.stop()
    return of_interval(interval, anonymous / MB)


def of_interval(interval: Interval, anonymous_mb: float) -> Round:
    """Say it in the words of a rung. CPU is without the camera's; latency is from capture to the subscriber."""
    documents = [heard.document for heard in interval.results]
    at_s = [heard.at_s for heard in interval.results]
    waited_ms = [heard.beyond_inference_ms() for heard in interval.results]
    latencies_ms = [
        waited + sum(run["durationMs"] for run in document["models"])
        for waited, document in zip(waited_ms, documents, strict=True)
        if waited is not None
    ]
    given = documents[-1]["seq"] - documents[0]["seq"] + 1
    return Round(
        given=given,
        answered=len({document["seq"] for document in documents}),
        told=0,
        frames_per_s=interval.frames_per_s,
        cpu_ms=interval.cpu_ms_per_result("main") + interval.cpu_ms_per_result("model"),
        p50_ms=percentile(latencies_ms, 50),
        p99_ms=percentile(latencies_ms, 99),
        interval_p99_ms=percentile(intervals_ms(at_s), 99),
        anonymous_mb=anonymous_mb,
    )


def _bare(frames_per_s: float, cpu_ms: float) -> Round:
    """What `benchmark_app` tells: no more than this."""
    return Round(0, 0, 0, frames_per_s, cpu_ms, math.nan, math.nan, math.nan, math.nan)
