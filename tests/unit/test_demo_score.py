"""The demo's score: what counts as found, as false alarm, as missed part."""

from __future__ import annotations

from typing import Any

import pytest

from inspectd.camera.boards.scene import TrueBox
from inspectd.demo.score import Score, iou, is_hit
from inspectd.records import Box

BOARD = TrueBox("board", 20, 20, 600, 600)
OPEN = TrueBox("open", 100, 100, 20, 20)
SHORT = TrueBox("short", 300, 100, 20, 20)
OK, NOT_OK, NOT_DECIDABLE = 1, 2, 3


def found(class_name: str, x: float, y: float, w: float = 20, h: float = 20, confidence: float = 0.9) -> dict[str, Any]:
    return {"className": class_name, "confidence": confidence, "bbox": {"x": x, "y": y, "w": w, "h": h}}


def result(evaluation: int, *detections: dict[str, Any], state: int = 1) -> dict[str, Any]:
    return {
        "resultState": state,
        "resultEvaluation": evaluation,
        "resultContent": {"detections": list(detections)},
    }


def scored(truth: tuple[TrueBox, ...], *results: dict[str, Any]) -> Score:
    score = Score(min_confidence=0.4)
    for document in results:
        score.add(truth, document)
    return score


def test_iou_of_equal_apart_and_half_overlapping_boxes() -> None:
    assert iou(Box(100, 100, 20, 20), OPEN) == 1
    assert iou(Box(120, 100, 20, 20), OPEN) == 0
    assert iou(Box(110, 100, 20, 20), OPEN) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("box", "hit"),
    [
        (Box(110, 100, 20, 20), True),  # IoU 1/3, centre on the edge
        (Box(111, 100, 20, 20), False),  # IoU 0.29, centre outside
        (Box(109, 109, 2, 2), True),  # tiny, but its centre is inside
        (Box(90, 90, 40, 40), True),  # IoU 1/4, centre inside
    ],
)
def test_a_box_is_hit_by_overlap_or_by_centre(box: Box, hit: bool) -> None:
    assert is_hit(box, OPEN) is hit


def test_a_found_defect_counts_for_its_class() -> None:
    score = scored((BOARD, OPEN, SHORT), result(NOT_OK, found("board", 21, 19, 600, 600), found("open", 101, 99)))
    assert (score.classes["open"].true, score.classes["open"].found, score.classes["open"].recall) == (1, 1, 1.0)
    assert (score.classes["short"].true, score.classes["short"].found, score.classes["short"].recall) == (1, 0, 0.0)
    assert score.classes["board"].recall == 1.0


def test_the_right_place_with_the_wrong_class_is_a_miss_and_a_false_alarm() -> None:
    score = scored((BOARD, OPEN), result(NOT_OK, found("spur", 100, 100)))
    assert score.classes["open"].found == 0
    assert score.classes["spur"].false_alarms == 1
    assert score.classes["spur"].recall is None


def test_a_box_is_found_once_and_the_second_detection_is_a_false_alarm() -> None:
    score = scored((BOARD, OPEN), result(NOT_OK, found("open", 100, 100), found("open", 102, 100, confidence=0.8)))
    assert (score.classes["open"].found, score.classes["open"].false_alarms) == (1, 1)


def test_each_detection_takes_the_box_that_it_overlaps_most() -> None:
    """Two defects side by side: the better detection of the one must not use up the other."""
    left, right = TrueBox("open", 100, 100, 20, 20), TrueBox("open", 112, 100, 20, 20)
    score = scored(
        (BOARD, left, right), result(NOT_OK, found("open", 110, 100), found("open", 99, 100, confidence=0.5))
    )
    assert (score.classes["open"].found, score.classes["open"].false_alarms) == (2, 0)


def test_what_is_below_the_rules_confidence_does_not_count() -> None:
    score = scored(
        (BOARD, OPEN), result(OK, found("open", 100, 100, confidence=0.39), found("spur", 5, 5, confidence=0.1))
    )
    assert score.classes["open"].found == 0
    assert "spur" not in score.classes


def test_parts_are_judged_by_their_verdict() -> None:
    """Missed: a defective board that got OK. False alarm: a good board that got NotOK. NotDecidable is neither."""
    score = scored((BOARD, OPEN), result(OK), result(NOT_OK), result(NOT_DECIDABLE))
    assert (score.defective, score.defective_passed, score.not_decidable) == (3, 1, 1)
    score = scored((BOARD,), result(OK), result(NOT_OK), result(NOT_OK), result(NOT_DECIDABLE))
    assert (score.good, score.good_rejected, score.not_decidable) == (4, 2, 1)


def test_an_empty_place_that_got_ok_is_counted_of_its_own() -> None:
    score = scored((), result(NOT_DECIDABLE), result(OK))
    assert (score.empty, score.empty_passed, score.good, score.defective, score.not_decidable) == (2, 1, 0, 0, 0)


@pytest.mark.parametrize("state", [3, 4])
def test_a_picture_that_was_not_inspected_is_neither_missed_nor_found(state: int) -> None:
    """Aborted and failed results say nothing about the model."""
    score = scored((BOARD, OPEN), result(0, state=state))
    assert score == Score(min_confidence=0.4)


def test_all_defects_leave_the_board_out() -> None:
    score = scored((BOARD, OPEN, SHORT), result(NOT_OK, found("open", 100, 100), found("board", 0, 0, 9, 9)))
    assert (score.defects.true, score.defects.found, score.defects.false_alarms) == (2, 1, 0)
    assert score.defects.recall == 0.5
    assert Score(0.4).defects.recall is None
