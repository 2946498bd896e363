"""What the shapes of inputs and outputs tell of each layout. Pure; `layouts` decides with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from inspectd.decode.grid import cell_count, known_counts

_ROWS_MAX = 1000
"""Heads that choose their boxes themselves give 100 to 300 rows; raw heads thousands."""
MASK_COEFFICIENTS = 32
SIZES_INPUT = "orig_target_sizes"
"""Second input of D-FINE and RT-DETR deploy: width and height that the boxes are scaled to."""
_UNREAD = frozenset({"feature_vector", "saliency_map"})
"""What Geti adds for its explanations."""


@dataclass(frozen=True, slots=True)
class Output:
    """One model output."""

    name: str
    """Empty where the file gives none."""
    shape: tuple[int, ...]
    """-1 where it is not fixed."""
    is_integer: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """All that shapes can tell."""

    outputs: tuple[Output, ...]
    extra_inputs: tuple[str, ...]
    """Names of the inputs after the picture."""
    input_width_px: int
    input_height_px: int
    class_count: int | None
    """None if nobody names the classes."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How the outputs would be read as a layout."""

    order: tuple[int, ...]
    """Indexes of the outputs that the decoder gets, in its order."""
    class_count: int | None
    """How many scores a row has; None in layouts that answer a class index."""
    has_no_object: bool = False
    """One column more than classes: the last is "no object"."""


Signature = Callable[[Head], Fit | None]


def _rows(head: Head) -> tuple[int, int, int] | None:
    """(index, a, b) of the only output, [1, a, b] real, where the picture is the only input."""
    match head.outputs:
        case [Output(shape=(1, a, b), is_integer=False)] if not head.extra_inputs:
            return 0, a, b
    return None


def _rows_with_masks(head: Head) -> tuple[int, int, int] | None:
    """(index, a, b) of [1, a, b] beside prototypes [1, 32, h, w]."""
    shapes = [output.shape for output in head.outputs]
    for index, other in ((0, 1), (1, 0)) if len(shapes) == 2 and not head.extra_inputs else ():
        if len(shapes[index]) == 3 and len(shapes[other]) == 4 and shapes[other][1] == MASK_COEFFICIENTS:
            return index, shapes[index][1], shapes[index][2]
    return None


def _classes(head: Head, width: int, others: int) -> int | None:
    """How many classes a row of `width` has beside `others` values; None if that is not the known number."""
    count = width - others
    return count if count > 0 and head.class_count in (None, count) else None


def _grids(head: Head) -> frozenset[int]:
    return known_counts(head.input_width_px, head.input_height_px)


def _raw(head: Head, found: tuple[int, int, int] | None, extra: int) -> Fit | None:
    """`yolo`: [1, 4 + nc, N]. Where nobody gives the number of classes, N must be that of a known grid."""
    if found is None:
        return None
    index, a, b = found
    if a < b and (b in _grids(head) or head.class_count is not None):
        count = _classes(head, a, 4 + extra)
        if count is not None:
            return Fit((index,), count)
    # Transposed it looks like yolov5 and yolox; only a known number of classes tells it from them.
    if head.class_count is not None and a > _ROWS_MAX and _classes(head, b, 4 + extra) is not None:
        return Fit((index,), head.class_count)
    return None


def _chosen(head: Head, found: tuple[int, int, int] | None, extra: int) -> Fit | None:
    """`yolo-end2end`: [1, M, 6], where M is not the number of rows of a raw head."""
    if found is None or found[2] != 6 + extra:
        return None
    index, rows, _ = found
    is_raw = rows > _ROWS_MAX and (rows in _grids(head) or (rows % 3 == 0 and rows // 3 in _grids(head)))
    return None if is_raw else Fit((index,), None)


def _anchors(head: Head, found: tuple[int, int, int] | None, extra: int) -> Fit | None:
    """`yolov5`: [1, 3 × cells, 5 + nc]."""
    if found is None:
        return None
    index, rows, width = found
    count = _classes(head, width, 5 + extra)
    return Fit((index,), count) if count is not None and rows % 3 == 0 and rows // 3 in _grids(head) else None


def _yolox(head: Head) -> Fit | None:
    found = _rows(head)
    if found is None or found[1] != cell_count(head.input_width_px, head.input_height_px):
        return None
    count = _classes(head, found[2], 5)
    return None if count is None else Fit((0,), count)


def _detr_probs(head: Head) -> Fit | None:
    found = _rows(head)
    if found is None or not 0 < found[1] <= _ROWS_MAX or (head.class_count is None and found[2] >= found[1]):
        return None
    count = _classes(head, found[2], 4)
    return None if count is None else Fit((0,), count)


def _detr(head: Head) -> Fit | None:
    if len(head.outputs) != 2 or head.extra_inputs or any(output.is_integer for output in head.outputs):
        return None
    for boxes, logits in ((1, 0), (0, 1)):
        match head.outputs[boxes].shape, head.outputs[logits].shape:
            case (1, rows, 4), (1, others, width) if rows == others:
                if width == 4 and "box" not in head.outputs[boxes].name:
                    continue  # four classes: only the names tell the two outputs apart
                if head.class_count in (None, width):
                    return Fit((logits, boxes), width)
                if width == head.class_count + 1:
                    return Fit((logits, boxes), head.class_count, has_no_object=True)
    return None


def _dfine(head: Head) -> Fit | None:
    labels = boxes = scores = None
    for index, output in enumerate(head.outputs):
        match output:
            case Output(shape=(1, _), is_integer=True):
                labels = index
            case Output(shape=(1, _, 4), is_integer=False):
                boxes = index
            case Output(shape=(1, _), is_integer=False):
                scores = index
    if labels is None or boxes is None or scores is None or [*head.extra_inputs] != [SIZES_INPUT]:
        return None
    return Fit((labels, boxes, scores), None)


def _ssd(head: Head) -> Fit | None:
    match head.outputs:
        case [Output(shape=(1, 1, _, 7), is_integer=False)] if not head.extra_inputs:
            return Fit((0,), None)
    return None


def _boxes_labels(head: Head) -> Fit | None:
    read = [index for index, output in enumerate(head.outputs) if output.name not in _UNREAD]
    if len(read) != 2 or head.extra_inputs:
        return None
    for boxes, labels in (read, read[::-1]):
        is_boxes = head.outputs[boxes].shape[-1:] == (5,) and not head.outputs[boxes].is_integer
        if is_boxes and head.outputs[labels].is_integer:
            return Fit((boxes, labels), None)
    return None


def _is_anomaly(head: Head) -> Fit | None:
    return Fit((), None) if "anomaly_map" in {output.name for output in head.outputs} else None


SIGNATURES: Mapping[str, Signature] = MappingProxyType(
    {
        "yolo": lambda head: _raw(head, _rows(head), 0),
        "yolo-end2end": lambda head: _chosen(head, _rows(head), 0),
        "yolov5": lambda head: _anchors(head, _rows(head), 0),
        "yolox": _yolox,
        "yolox-decoded": _yolox,
        "rtdetr": lambda head: _chosen(head, _rows(head), 0),
        "detr-probs": _detr_probs,
        "detr": _detr,
        "dfine": _dfine,
        "ssd": _ssd,
        "boxes-labels": _boxes_labels,
        "yolo-seg": lambda head: _raw(head, _rows_with_masks(head), MASK_COEFFICIENTS),
        "yolo-end2end-seg": lambda head: _chosen(head, _rows_with_masks(head), MASK_COEFFICIENTS),
        "yolov5-seg": lambda head: _anchors(head, _rows_with_masks(head), MASK_COEFFICIENTS),
        "anomaly": _is_anomaly,
    }
)
"""Every layout that shapes can tell, decoded or not, so that a refusal can name what was found."""
