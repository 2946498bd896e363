"""mAP50 of detections against labels in YOLO's text form. Small, for tests; not a quality figure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_IOU = 0.5

Row = tuple[float, float, float, float, float, int]
"""x1 y1 x2 y2 in px, score, class."""


def read_labels(path: Path, width_px: int, height_px: int) -> list[Row]:
    """True boxes of one picture: `class cx cy w h`, in 0..1. Their score is 1."""
    rows: list[Row] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        kind, cx, cy, w, h = (float(word) for word in line.split())
        x, y, w, h = (cx - w / 2) * width_px, (cy - h / 2) * height_px, w * width_px, h * height_px
        rows.append((x, y, x + w, y + h, 1.0, int(kind)))
    return rows


def ap50(found: Mapping[str, Sequence[Row]], true: Mapping[str, Sequence[Row]]) -> dict[int, float]:
    """Give the average precision of each class: greedy matching at IoU 0.5, area under the envelope."""
    hits: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    totals: dict[int, int] = defaultdict(int)
    for picture, truths in true.items():
        for kind in {row[5] for row in truths} | {row[5] for row in found[picture]}:
            of_kind = [row for row in truths if row[5] == kind]
            totals[kind] += len(of_kind)
            hits[kind] += _match([row for row in found[picture] if row[5] == kind], of_kind)
    return {kind: _average_precision(hits[kind], totals[kind]) for kind in sorted(totals) if totals[kind]}


def map50(found: Mapping[str, Sequence[Row]], true: Mapping[str, Sequence[Row]]) -> float:
    """Mean over the classes that occur."""
    return float(np.mean(list(ap50(found, true).values())))


def furthest(found: Sequence[Row], expected: Iterable[Row]) -> tuple[float, float]:
    """Pair two lists of boxes one to one; give the largest difference in px and in score. Infinite if any is left."""
    rest = list(found)
    worst_px = worst_score = 0.0
    for row in expected:
        near = min((other for other in rest if other[5] == row[5]), key=lambda other: _apart(row, other), default=None)
        if near is None:
            return float("inf"), float("inf")
        rest.remove(near)
        worst_px, worst_score = max(worst_px, _apart(row, near)), max(worst_score, abs(row[4] - near[4]))
    return (worst_px, worst_score) if not rest else (float("inf"), float("inf"))


def _apart(one: Row, other: Row) -> float:
    return max(abs(a - b) for a, b in zip(one[:4], other[:4], strict=True))


def _match(found: Sequence[Row], true: Sequence[Row]) -> list[tuple[float, bool]]:
    free = list(true)
    hits = []
    for row in sorted(found, key=lambda row: -row[4]):
        best = max(free, key=lambda other: _overlap(row, other), default=None)
        is_hit = best is not None and _overlap(row, best) >= _IOU
        if best is not None and is_hit:
            free.remove(best)
        hits.append((row[4], is_hit))
    return hits


def _overlap(one: Row, other: Row) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    both = max(width, 0) * max(height, 0)
    union = (one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1]) - both
    return both / union if union > 0 else 0.0


def _average_precision(hits: list[tuple[float, bool]], total: int) -> float:
    if not hits:
        return 0.0
    right = np.cumsum([is_hit for _, is_hit in sorted(hits, key=lambda hit: -hit[0])])
    recall = right / total
    precision: NDArray[np.float64] = right / np.arange(1, len(right) + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * envelope))
