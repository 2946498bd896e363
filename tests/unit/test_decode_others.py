"""The layouts beside `yolo`: each finds the same two boxes, and refuses what is none of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from inspectd.classnames import class_name, with_room_for
from inspectd.decode import DECODERS, Reading
from inspectd.decode.grid import cell_count, cells, known_counts
from inspectd.errors import OutputError

READING = Reading(confidence=0.25, iou=0.5, class_count=6, input_width_px=640, input_height_px=320)
BOXES = np.array([[90, 180, 110, 220], [295, 35, 305, 45], [294, 35, 305, 45]], np.float32)
"""The last is the second again, weaker and of its class: NMS takes it out, a net without need of NMS never gives it."""
SCORES = np.array([0.6, 0.9, 0.8], np.float32)
CLASSES = np.array([3, 5, 5])
EXPECTED = (BOXES[[1, 0]], SCORES[[1, 0]], CLASSES[[1, 0]])
Raw = list[NDArray[Any]]


def fractions(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    shares: NDArray[np.float32] = np.divide(boxes, np.array([640, 320, 640, 320]), dtype=np.float32)
    return shares


def centred(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Corners to cx cy w h."""
    middle = (boxes[:, :2] + boxes[:, 2:]) / 2
    return np.concatenate((middle, boxes[:, 2:] - boxes[:, :2]), axis=1)


def one_hot(scores: NDArray[np.float32], classes: NDArray[np.intp], width: int = 6) -> NDArray[np.float32]:
    table = np.full((len(scores), width), 0.001, np.float32)
    table[np.arange(len(scores)), classes] = scores
    return table


def padded(rows: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """[1, count, width] with rows of zeros after the given ones."""
    raw = np.zeros((1, count, rows.shape[1]), np.float32)
    raw[0, : len(rows)] = rows
    return raw


def anchored(extra: int = 0) -> NDArray[np.float32]:
    """Rows of `yolov5` and `yolox-decoded`: objectness 0.95 and class scores that give the product."""
    rows = np.concatenate((centred(BOXES), np.full((3, 1), 0.95), one_hot(SCORES / np.float32(0.95), CLASSES)), axis=1)
    return np.concatenate((rows, np.full((3, extra), 7.0)), axis=1).astype(np.float32)


def yolov5() -> Raw:
    return [padded(anchored(), 12600)]


def yolov5_seg() -> Raw:
    return [padded(anchored(32), 12600)]


def on_the_grid() -> NDArray[np.float32]:
    """Every row's box in its own cell, as a sound head gives it, and the three boxes in three of them."""
    grid = cells(640, 320)
    rows = np.zeros((len(grid), 11), np.float32)
    rows[:, :2] = (grid[:, :2] + 0.5) * grid[:, 2:]
    rows[:, 2:4] = grid[:, 2:] * 2
    rows[100:103] = anchored()
    return rows


def yolox_decoded() -> Raw:
    return [on_the_grid()[None]]


def yolox() -> Raw:
    grid, rows = cells(640, 320), on_the_grid()
    rows[:, :2] = rows[:, :2] / grid[:, 2:] - grid[:, :2]
    rows[:, 2:4] = np.log(rows[:, 2:4] / grid[:, 2:])
    return [rows[None]]


def chosen(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.concatenate((boxes, SCORES[:2, None], CLASSES[:2, None]), axis=1).astype(np.float32)


def rtdetr() -> Raw:
    return [padded(chosen(centred(fractions(BOXES[:2]))), 300)]


def end2end_seg() -> Raw:
    return [padded(np.concatenate((chosen(BOXES[:2]), np.full((2, 32), 7.0, np.float32)), axis=1), 300)]


def yolo_seg() -> Raw:
    table = np.concatenate((centred(BOXES), one_hot(SCORES, CLASSES), np.full((3, 32), 7.0)), axis=1)
    return [np.ascontiguousarray(padded(table.astype(np.float32), 4200).transpose(0, 2, 1))]


def detr_probs() -> Raw:
    rows = np.concatenate((centred(fractions(BOXES[:2])), one_hot(SCORES[:2], CLASSES[:2])), axis=1)
    return [padded(rows.astype(np.float32), 300)]


def detr() -> Raw:
    scores = np.full((1, 300, 6), 0.001, np.float32)
    scores[0, :2] = one_hot(SCORES[:2], CLASSES[:2])
    return [np.log(scores / (1 - scores)), padded(centred(fractions(BOXES[:2])), 300)]


def detr_with_no_object() -> Raw:
    shares = np.zeros((1, 300, 7), np.float32) + np.float32(1e-6)
    shares[0, :, 6] = 1
    shares[0, :2, :6] = one_hot(SCORES[:2], CLASSES[:2])
    shares[0, :2, 6] = 1 - shares[0, :2, :6].sum(axis=1)
    return [np.log(shares), padded(centred(fractions(BOXES[:2])), 300)]


def dfine() -> Raw:
    labels = np.zeros((1, 300), np.int64)
    labels[0, :2] = CLASSES[:2]
    return [labels, padded(BOXES[:2], 300), padded(SCORES[:2, None], 300)[..., 0]]


def ssd() -> Raw:
    rows = np.concatenate((np.zeros((2, 1)), CLASSES[:2, None], SCORES[:2, None], fractions(BOXES[:2])), axis=1)
    raw = np.full((1, 1, 200, 7), np.nan, np.float32)
    raw[0, 0, :2] = rows
    raw[0, 0, 2, 0] = -1
    return [raw]


def boxes_labels() -> Raw:
    labels = np.full((1, 300), -1, np.int64)
    labels[0, :2] = CLASSES[:2]
    return [padded(np.concatenate((BOXES[:2], SCORES[:2, None]), axis=1), 300), labels]


def boxes_labels_without_a_batch() -> Raw:
    return [output[0] for output in boxes_labels()]


CASES: list[tuple[str, Callable[[], Raw]]] = [
    ("yolov5", yolov5),
    ("yolov5-seg", yolov5_seg),
    ("yolox", yolox),
    ("yolox-decoded", yolox_decoded),
    ("rtdetr", rtdetr),
    ("yolo-seg", yolo_seg),
    ("yolo-end2end-seg", end2end_seg),
    ("detr-probs", detr_probs),
    ("detr", detr),
    ("detr", detr_with_no_object),
    ("dfine", dfine),
    ("ssd", ssd),
    ("boxes-labels", boxes_labels),
    ("boxes-labels", boxes_labels_without_a_batch),
]
each_layout = pytest.mark.parametrize(("layout", "make"), CASES, ids=[make.__name__ for _, make in CASES])


@each_layout
def test_the_boxes_come_out_in_px_of_the_input_best_first(layout: str, make: Callable[[], Raw]) -> None:
    found = DECODERS[layout].decode(make(), READING)
    boxes, scores, classes = EXPECTED
    assert found.boxes == pytest.approx(boxes, abs=1e-3)
    assert found.scores == pytest.approx(scores, abs=1e-5)
    assert found.class_ids.tolist() == classes.tolist()
    DECODERS[layout].check(make(), READING)


@each_layout
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_an_error(layout: str, make: Callable[[], Raw], value: float) -> None:
    """In every column of the first row, boxes and scores alike: it must never read as "nothing found"."""
    for output, columns in [(index, raw.shape[-1]) for index, raw in enumerate(make()) if raw.dtype == np.float32]:
        for column in range(columns if make()[output].ndim > 2 else 1):
            if layout == "ssd" and column == 0:
                continue  # the picture's number: only whether it is negative is looked at, and NaN is not
            raws = make()
            raws[output].reshape(-1, columns)[0, column] = value
            with pytest.raises(OutputError):
                DECODERS[layout].decode(raws, READING)


@each_layout
def test_nothing_above_the_confidence_is_nothing_found(layout: str, make: Callable[[], Raw]) -> None:
    found = DECODERS[layout].decode(make(), replace(READING, confidence=0.95))
    assert (found.boxes.shape, found.scores.shape, found.class_ids.shape) == ((0, 4), (0,), (0,))


@each_layout
def test_another_shape_is_an_error(layout: str, make: Callable[[], Raw]) -> None:
    wrong = [np.zeros((2, *raw.shape[1:], 3), raw.dtype) for raw in make()]
    with pytest.raises(OutputError, match="expected"):
        DECODERS[layout].decode(wrong, READING)


@pytest.mark.parametrize(("layout", "make"), [("rtdetr", rtdetr), ("detr", detr), ("detr-probs", detr_probs)])
def test_boxes_in_px_are_refused_where_fractions_are_meant(layout: str, make: Callable[[], Raw]) -> None:
    raws = make()
    raws[-1][..., :4] *= 640
    with pytest.raises(OutputError, match="expected fractions"):
        DECODERS[layout].check(raws, READING)


@pytest.mark.parametrize(("layout", "make"), [("dfine", dfine), ("boxes-labels", boxes_labels)])
def test_boxes_in_fractions_are_refused_where_px_are_meant(layout: str, make: Callable[[], Raw]) -> None:
    raws = make()
    boxes = next(raw for raw in raws if raw.ndim == 3)
    boxes[0, :20, :4] = 0.5
    boxes[0, :20, 4:] = 0.1
    if layout == "dfine":
        raws[2][0, :20] = 0.1
    with pytest.raises(OutputError, match="expected px"):
        DECODERS[layout].check(raws, READING)


def test_rows_of_one_yolox_are_refused_as_the_other() -> None:
    """The shape cannot tell them apart, the numbers can: a wrong `layout:` line is found at the warm-up."""
    with pytest.raises(OutputError, match="layout: yolox`"):
        DECODERS["yolox-decoded"].check(yolox(), READING)
    with pytest.raises(OutputError, match="layout: yolox-decoded"):
        DECODERS["yolox"].check(yolox_decoded(), READING)


def test_a_size_beyond_all_numbers_is_an_error_and_not_an_infinite_box() -> None:
    raws = yolox()
    raws[0][0, 100, 2] = 200
    with pytest.raises(OutputError, match="not finite"):
        DECODERS["yolox"].decode(raws, READING)


def test_what_comes_after_the_end_of_an_ssd_list_was_never_written() -> None:
    """A NaN before the end is an error, after it it is memory."""
    raws = ssd()
    raws[0][0, 0, 1, 4] = np.nan
    with pytest.raises(OutputError, match="not finite"):
        DECODERS["ssd"].decode(raws, READING)


def test_more_boxes_than_three_hundred_are_all_kept() -> None:
    """Up to a thousand; a list cut short could lose the one that matters."""
    raw = np.zeros((1, 900, 6), np.float32)
    raw[0, :, 2:4] = 10
    raw[0, :, 4] = 0.5
    assert len(DECODERS["yolo-end2end"].decode([raw], READING).scores) == 900


def test_a_class_that_nobody_named_keeps_its_number() -> None:
    assert class_name(("open", "short"), 1) == "short"
    assert class_name(("open", "short"), 17) == "class_17"
    assert with_room_for(("open",), 3) == ("open", "class_1", "class_2")
    assert with_room_for(("open", "short"), 0) == ("open", "short")


def test_the_grid_has_a_cell_for_each_row() -> None:
    assert cell_count(640, 640) == 8400
    assert len(cells(640, 384)) == cell_count(640, 384) == 5040
    assert {8400, 8500, 34000, 2000} <= known_counts(640, 640)
    assert cells(640, 384)[[0, 1, 80, -1]].tolist() == [[0, 0, 8], [1, 0, 8], [0, 1, 8], [19, 11, 32]]
