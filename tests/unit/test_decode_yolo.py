"""Layouts `yolo` and `yolo-end2end`: boxes out of raw outputs, and outputs that must never read as "nothing found"."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from inspectd.decode import DECODERS, Found, Reading, detections
from inspectd.decode.geometry import place
from inspectd.errors import OutputError
from inspectd.records import Box

READING = Reading(confidence=0.25, iou=0.5, class_count=6, input_width_px=640, input_height_px=640)
YOLO, END2END = DECODERS["yolo"], DECODERS["yolo-end2end"]
Raw = NDArray[np.float32]


def raw_yolo(*rows: tuple[float, float, float, float, int, float]) -> Raw:
    """[1, 10, 8400] with the given (cx, cy, w, h, class, score) and weak rows everywhere else."""
    raw = np.zeros((1, 10, 8400), dtype=np.float32)
    raw[0, :4] = np.array([[320], [320], [50], [50]])
    raw[0, 4:] = 0.01
    for number, (cx, cy, w, h, kind, score) in enumerate(rows):
        raw[0, :4, number * 100] = cx, cy, w, h
        raw[0, 4 + kind, number * 100] = score
    return raw


def raw_end2end(*rows: tuple[float, float, float, float, float, float]) -> Raw:
    """[1, 300, 6] with the given rows and zeros after them."""
    raw = np.zeros((1, 300, 6), dtype=np.float32)
    raw[0, : len(rows)] = np.array(rows).reshape(-1, 6)
    return raw


def same_rows(count: int, *row: float) -> Raw:
    """[1, count, 6], each row the same."""
    return np.tile(np.array(row, dtype=np.float32), (1, count, 1))


def test_centre_and_size_become_corners_best_first() -> None:
    found = YOLO.decode([raw_yolo((100, 200, 20, 40, 3, 0.6), (300, 300, 10, 10, 5, 0.9))], READING)
    assert found.boxes.tolist() == [[295, 295, 305, 305], [90, 180, 110, 220]]
    assert found.class_ids.tolist() == [5, 3]
    assert found.scores == pytest.approx([0.9, 0.6])


def test_the_transposed_form_is_told_by_its_width() -> None:
    """Some exporters write [1, N, 4 + nc]."""
    raw = raw_yolo((100, 200, 20, 40, 3, 0.6))
    straight, transposed = YOLO.decode([raw], READING), YOLO.decode([raw.transpose(0, 2, 1)], READING)
    assert straight.boxes.tolist() == transposed.boxes.tolist() == [[90, 180, 110, 220]]


def test_a_score_equal_to_the_confidence_is_kept() -> None:
    """`confidence` is the lowest score that is recorded."""
    assert len(YOLO.decode([raw_yolo((100, 200, 20, 40, 3, 0.25))], READING).scores) == 1
    assert len(END2END.decode([raw_end2end((1, 1, 9, 9, 0.25, 0))], READING).scores) == 1


def test_a_weak_row_of_negative_size_is_still_a_box() -> None:
    found = YOLO.decode([raw_yolo((100, 200, -20, 40, 3, 0.6))], READING)
    assert found.boxes.tolist() == [[90, 180, 110, 220]]


def test_rows_of_zeros_at_the_end_are_nothing() -> None:
    found = END2END.decode([raw_end2end((10, 20, 30, 40, 0.5, 2), (50, 60, 70, 80, 0.9, 4))], READING)
    assert found.boxes.tolist() == [[50, 60, 70, 80], [10, 20, 30, 40]]
    assert found.class_ids.tolist() == [4, 2]


@pytest.mark.parametrize("decode", [YOLO.decode, END2END.decode])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, 4])
def test_a_value_that_is_not_finite_is_an_error_wherever_it_stands(
    decode: Callable[[list[Raw], Reading], Found], value: float, column: int
) -> None:
    """NaN compares false with any threshold: taken for a weak score it would be the OK that must never be given."""
    raw = raw_yolo() if decode is YOLO.decode else raw_end2end()
    if decode is YOLO.decode:
        raw[0, column, 8399] = value
    else:
        raw[0, 299, column] = value
    with pytest.raises(OutputError, match="not finite"):
        decode([raw], READING)


@pytest.mark.parametrize("score", [1.5, 14.0])
def test_a_score_above_one_is_an_error(score: float) -> None:
    """Logits, or a device that returns noise."""
    with pytest.raises(OutputError, match=r"expected 0\.\.1"):
        YOLO.decode([raw_yolo((100, 200, 20, 40, 3, score))], READING)
    with pytest.raises(OutputError, match=r"expected 0\.\.1"):
        END2END.decode([raw_end2end((1, 1, 9, 9, score, 0))], READING)


@pytest.mark.parametrize("kind", [-1.0, 2.5, 1e6])
def test_a_class_that_does_not_exist_is_an_error(kind: float) -> None:
    with pytest.raises(OutputError, match="class index"):
        END2END.decode([raw_end2end((1, 1, 9, 9, 0.9, kind))], READING)


@pytest.mark.parametrize("shape", [(1, 9, 8400), (2, 10, 8400), (10, 8400), (1, 300, 6)])
def test_another_shape_is_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(OutputError, match=r"expected \[1, 10, N\]"):
        YOLO.decode([np.zeros(shape, np.float32)], READING)


def test_more_than_a_thousand_boxes_are_noise() -> None:
    """A list cut short could lose the one box that matters."""
    raw = raw_yolo()
    grid = np.arange(2000)
    raw[0, :4, :2000] = np.stack((grid % 50 * 12, grid // 50 * 12, np.full(2000, 6), np.full(2000, 6)))
    raw[0, 4, :2000] = 0.9
    with pytest.raises(OutputError, match="more than 1000 boxes"):
        YOLO.decode([raw], READING)
    with pytest.raises(OutputError, match="more than 1000 boxes"):
        END2END.decode([same_rows(1001, 1, 1, 9, 9, 0.9, 0)], READING)


def test_more_candidates_than_any_picture_has_are_noise() -> None:
    """Dropping the weakest before NMS could drop the only row of a class."""
    raw = np.full((1, 10, 33600), 0.9, dtype=np.float32)
    with pytest.raises(OutputError, match="33600 of 33600 rows"):
        YOLO.decode([raw], READING)


def test_warm_up_refuses_logits_and_boxes_in_fractions() -> None:
    """A layout that was taken for another shows in the rows below the confidence."""
    YOLO.check([raw_yolo()], READING)
    logits, fractions = raw_yolo(), raw_yolo()
    logits[0, 4:] = -6
    fractions[0, :4] /= 640
    with pytest.raises(OutputError, match=r"expected 0\.\.1"):
        YOLO.check([logits], READING)
    with pytest.raises(OutputError, match="expected px"):
        YOLO.check([fractions], READING)
    with pytest.raises(OutputError, match="expected px"):
        END2END.check([same_rows(300, 0.2, 0.2, 0.4, 0.4, 0.1, 0)], READING)


def test_warm_up_refuses_boxes_outside_the_input() -> None:
    with pytest.raises(OutputError, match="centre outside"):
        END2END.check([same_rows(300, 900, 900, 999, 999, 0.9, 0)], READING)


def test_a_thousand_boxes_fit_one_message_of_the_channel() -> None:
    """64 KiB; float32 written out in full would be twice that."""
    rng = np.random.default_rng(0)
    found = Found(rng.random((1000, 4), np.float32) * 640, rng.random(1000, np.float32), np.zeros(1000, np.intp))
    listed = detections(found, place("letterbox", 4096, 3000, 640, 640), ("open",), "defects")
    rows = [[d.class_id, d.confidence, d.box.x, d.box.y, d.box.w, d.box.h] for d in listed]
    assert len(json.dumps(rows, separators=(",", ":"))) < 60_000


def test_a_box_is_given_in_px_of_the_picture_and_not_clipped() -> None:
    """Half an object at the edge: where the other half is, is worth knowing."""
    found = Found(np.array([[-2, 150, 30, 170]], np.float32), np.array([0.5], np.float32), np.array([1]))
    (detection,) = detections(found, place("letterbox", 1280, 720, 640, 640), ("open", "short"), "defects")
    assert detection.box == Box(-4, 20, 64, 40)
    assert (detection.class_id, detection.class_name, detection.model) == (1, "short", "defects")
