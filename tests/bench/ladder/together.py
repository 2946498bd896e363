"""The whole daemon with two models on two cameras, and with four cameras at 30 frames/s."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.bench.figures import THREADS, four_cameras
from tests.bench.ladder.boards import write_boards
from tests.bench.ladder.climb import SETTLE_RESULTS, Means, files_camera
from tests.bench.measure import NotMeasured
from tests.bench.report import Figure
from tests.bench.running import daemon


def pair(means: Means, models: Mapping[str, Path]) -> Iterator[Figure]:
    """Two models on two cameras at once ÷ the sum of each alone at half the threads."""
    if len(models) < 2 or THREADS < 2:
        raise NotMeasured(f"two models and two cores are needed; here are {len(models)} and {THREADS}")
    half = THREADS // 2
    sections = {name: means.bench(model).detector(model, threads=half)["defects"] for name, model in models.items()}
    alone = {name: _rates(means, {name: section})[name] for name, section in sections.items()}
    both = _rates(means, sections)
    told = ", ".join(f"{name} {both[name]:.1f}/s, alone {alone[name]:.1f}/s" for name in sections)
    ratio = sum(both.values()) / sum(alone.values())
    yield Figure(
        "two models, two cameras ÷ sum of each alone at half the threads", ratio, "", 0.9, at_least=True, note=told
    )


def cameras(means: Means, models: Mapping[str, Path]) -> Iterator[Figure]:
    """Four cameras at 30 frames/s with the first model."""
    yield from four_cameras(means.bench(next(iter(models.values()))))


def _rates(means: Means, sections: dict[str, Any]) -> dict[str, float]:
    """Results/s of each model; camera and model have one name."""
    # a device serves one camera, and so does a folder
    lines = {name: files_camera(write_boards(means.disk, f"boards-{name}"), name) for name in sections}
    with daemon(means.disk, cameras=lines, models=sections) as running:
        running.settle(SETTLE_RESULTS * len(sections))
        interval = running.interval(means.seconds)
        running.stop()
    counts = Counter(heard.document["models"][0]["model"] for heard in interval.results)
    return {name: counts[name] / interval.seconds for name in sections}
