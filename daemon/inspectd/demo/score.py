"""Compares published results with the simulator's truth: true recall and false alarms. Pure.

A detection finds a true box of its own class if their IoU is at least IOU_MIN or its centre lies inside; the best
detections choose first, and each box is found once. Detections below `min_confidence` decide nothing and do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inspectd.camera.boards.scene import BOARD_CLASS, TrueBox
from inspectd.records import Box, Evaluation, ResultState

IOU_MIN = 0.3
"""Low, because true defects are some ten px wide: two px beside halve their IoU."""


@dataclass(slots=True)
class Tally:
    """What became of one class."""

    true: int = 0
    found: int = 0
    false_alarms: int = 0
    """Detections where nothing of this class is."""

    @property
    def recall(self) -> float | None:
        """Share of the true ones that were found; None if there were none."""
        return self.found / self.true if self.true else None


@dataclass(slots=True)
class Score:
    """Sums over all inspected pictures. Parts are judged by their verdict, classes by their boxes."""

    min_confidence: float
    classes: dict[str, Tally] = field(default_factory=dict)
    good: int = 0
    """Boards without a defect."""
    good_rejected: int = 0
    """False alarms: good boards that got NotOK."""
    defective: int = 0
    defective_passed: int = 0
    """Missed parts: defective boards that got OK."""
    empty: int = 0
    """Places without a board."""
    empty_passed: int = 0
    """Must stay 0: nothing to inspect is not OK."""
    not_decidable: int = 0
    """Boards that were left to a person."""

    def add(self, truth: Sequence[TrueBox], result: Mapping[str, Any]) -> None:
        """Count one result message. One that is not completed has inspected nothing and is left out."""
        if result["resultState"] != ResultState.COMPLETED:
            return
        evaluation = Evaluation(result["resultEvaluation"])
        self._add_part({box.class_name for box in truth}, evaluation)
        found = [
            detection
            for detection in result["resultContent"]["detections"]
            if detection["confidence"] >= self.min_confidence
        ]
        self._add_boxes(truth, sorted(found, key=lambda detection: -float(detection["confidence"])))

    @property
    def defects(self) -> Tally:
        """All classes but the board itself."""
        tallies = [tally for name, tally in self.classes.items() if name != BOARD_CLASS]
        return Tally(
            true=sum(tally.true for tally in tallies),
            found=sum(tally.found for tally in tallies),
            false_alarms=sum(tally.false_alarms for tally in tallies),
        )

    def _add_part(self, true_classes: set[str], evaluation: Evaluation) -> None:
        passed = evaluation == Evaluation.OK
        if not true_classes:
            self.empty += 1
            self.empty_passed += passed
            return
        self.not_decidable += evaluation == Evaluation.NOT_DECIDABLE
        if true_classes == {BOARD_CLASS}:
            self.good += 1
            self.good_rejected += evaluation == Evaluation.NOT_OK
        else:
            self.defective += 1
            self.defective_passed += passed

    def _add_boxes(self, truth: Sequence[TrueBox], best_first: Sequence[Mapping[str, Any]]) -> None:
        left = list(truth)
        for true in truth:
            self._tally(true.class_name).true += 1
        for detection in best_first:
            tally = self._tally(str(detection["className"]))
            box = Box(**detection["bbox"])
            hits = [true for true in left if true.class_name == detection["className"] and is_hit(box, true)]
            if hits:
                left.remove(max(hits, key=lambda true: iou(box, true)))
                tally.found += 1
            else:
                tally.false_alarms += 1

    def _tally(self, class_name: str) -> Tally:
        return self.classes.setdefault(class_name, Tally())


def is_hit(box: Box, true: TrueBox) -> bool:
    """Whether a detection's box is near enough to be this true one."""
    centre_x, centre_y = box.x + box.w / 2, box.y + box.h / 2
    is_inside = true.x <= centre_x <= true.x + true.w and true.y <= centre_y <= true.y + true.h
    return is_inside or iou(box, true) >= IOU_MIN


def iou(box: Box, true: TrueBox) -> float:
    """Intersection over union, 0..1."""
    width = min(box.x + box.w, true.x + true.w) - max(box.x, true.x)
    height = min(box.y + box.h, true.y + true.h) - max(box.y, true.y)
    if width <= 0 or height <= 0:
        return 0.0
    both = width * height
    return both / (box.w * box.h + true.w * true.h - both)
