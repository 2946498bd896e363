"""Which output layout a model has: configuration, what the file says, shapes, in that order; a tie is refused. Pure.

Shape alone does not decide: [1, 300, 6] has three meanings, and with two classes a raw head is 6 wide as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from inspectd.errors import ModelRefused

_ROWS_MAX = 1000
"""Heads that choose their boxes themselves give 100 to 300 rows; raw heads thousands."""
_STRIDES = (8, 16, 32)
_MASK_COEFFICIENTS = 32


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
class Claim:
    """What the model file says about its layout."""

    layout: str
    source: str
    """Where: `metadata.yaml end2end`."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What was recognised."""

    name: str
    decided_by: str
    class_count: int | None
    """From the output's width where that has it."""


def recognise(model: str, head: Head, claim: Claim | None, configured: str | None, served: Sequence[str]) -> Layout:
    """Name the layout. Raises ModelRefused: contradiction, tie, nothing fits, or not one of `served`."""
    if configured is not None and configured not in SIGNATURES:
        raise ModelRefused(f"{model}: unknown layout {configured!r}; this version decodes {_listed(served)}")
    if configured and claim and configured != claim.layout:
        raise ModelRefused(
            f"{model}: configuration says layout: {configured}, the file says {claim.layout} ({claim.source}); "
            "correct the line or leave it out"
        )
    fitting = [name for name, fits in SIGNATURES.items() if fits(head)]
    said, source = (configured, "configuration") if configured else (claim.layout, claim.source) if claim else ("", "")
    if said and said not in fitting and said in SIGNATURES:
        raise ModelRefused(
            f"{model}: {source} says layout {said}, but the outputs {_shapes(head)} with {_classes(head)} do not fit it"
            + (f"; they would fit {_listed(fitting)}" if fitting else "")
            + f"{_room(head)}; check `layout` and `classes`"
        )
    if not said and not fitting:
        raise ModelRefused(
            f"{model}: the outputs {_shapes(head)} with {_classes(head)} are no known detector layout"
            f"{_room(head)}; this version decodes {_listed(served)}; check that `classes` "
            "are this model's, or export the model again"
        )
    if not said and len(fitting) > 1:
        raise ModelRefused(
            f"{model}: the outputs {_shapes(head)} with {_classes(head)} can be {_listed(fitting)}, and the file does "
            f"not say which; add the right line under the model: {' or '.join(f'`layout: {name}`' for name in fitting)}"
        )
    name, decided_by = (said, source) if said else (fitting[0], "shape")
    if name not in served:
        raise ModelRefused(
            f"{model}: found layout {name} (by {decided_by}; outputs {_shapes(head)}), which this version does not "
            f"decode; it decodes {_listed(served)}: export the model with one of these"
        )
    return Layout(name, decided_by, head.class_count if head.class_count is not None else _width_classes(name, head))


def _only(head: Head) -> tuple[int, ...]:
    """Shape of the only output if it is [1, a, b] and the picture is the only input, else ()."""
    if len(head.outputs) == 1 and not head.extra_inputs and not head.outputs[0].is_integer:
        shape = head.outputs[0].shape
        if len(shape) == 3 and shape[0] == 1:
            return shape
    return ()


def _is_wide(head: Head, value: int, extra: int) -> bool:
    """Whether `value` is `extra` + the number of classes (any number where that is not known)."""
    return value == extra + head.class_count if head.class_count is not None else value > extra


def _cells(head: Head) -> int:
    return sum((head.input_width_px // stride) * (head.input_height_px // stride) for stride in _STRIDES)


def _is_yolo(head: Head) -> bool:
    match _only(head):
        case (_, width, rows) if width < rows:
            return _is_wide(head, width, 4)
        case (_, rows, width):
            # Transposed it looks like yolov5 and yolox; only a known number of classes tells it from them.
            return head.class_count is not None and _is_wide(head, width, 4) and rows > _ROWS_MAX
    return False


def _is_rows_of_six(head: Head) -> bool:
    shape = _only(head)
    return bool(shape) and shape[2] == 6 and shape[1] <= _ROWS_MAX


def _is_yolov5(head: Head) -> bool:
    shape = _only(head)
    return bool(shape) and shape[1] == 3 * _cells(head) and _is_wide(head, shape[2], 5)


def _is_yolox(head: Head) -> bool:
    shape = _only(head)
    return bool(shape) and shape[1] == _cells(head) and _is_wide(head, shape[2], 5)


def _is_detr_probs(head: Head) -> bool:
    shape = _only(head)
    return bool(shape) and 0 < shape[1] <= _ROWS_MAX and shape[2] < shape[1] and _is_wide(head, shape[2], 4)


def _is_detr(head: Head) -> bool:
    match [output.shape for output in head.outputs]:
        case [(1, rows, _), (1, other, 4)] | [(1, other, 4), (1, rows, _)]:
            return rows == other and not any(output.is_integer for output in head.outputs)
    return False


def _is_dfine(head: Head) -> bool:
    return "orig_target_sizes" in head.extra_inputs or {"labels", "boxes", "scores"} == {o.name for o in head.outputs}


def _is_ssd(head: Head) -> bool:
    return len(head.outputs) == 1 and len(head.outputs[0].shape) == 4 and head.outputs[0].shape[-1] == 7


def _is_boxes_labels(head: Head) -> bool:
    boxes = [output for output in head.outputs if not output.is_integer and output.shape[-1:] == (5,)]
    return bool(boxes) and any(output.is_integer for output in head.outputs)


def _has_masks(head: Head) -> bool:
    shapes = [output.shape for output in head.outputs]
    return len(shapes) == 2 and [s for s in shapes if len(s) == 4 and s[1] == _MASK_COEFFICIENTS] != []


def _is_anomaly(head: Head) -> bool:
    return "anomaly_map" in {output.name for output in head.outputs}


SIGNATURES: Mapping[str, Callable[[Head], bool]] = MappingProxyType(
    {
        "yolo": _is_yolo,
        "yolo-end2end": _is_rows_of_six,
        "yolov5": _is_yolov5,
        "yolox": _is_yolox,
        "yolox-decoded": _is_yolox,
        "rtdetr": _is_rows_of_six,
        "detr-probs": _is_detr_probs,
        "detr": _is_detr,
        "dfine": _is_dfine,
        "ssd": _is_ssd,
        "boxes-labels": _is_boxes_labels,
        "yolo-seg": _has_masks,
        "anomaly": _is_anomaly,
    }
)
"""Every layout that can be told from others, decoded or not, so that a refusal can name what was found."""


def _width_classes(name: str, head: Head) -> int | None:
    """How many classes the output's width has room for, in the layouts that have a score per class."""
    return head.outputs[0].shape[1] - 4 if name == "yolo" else None


def _room(head: Head) -> str:
    """Say how many classes a raw head has room for, where another number was given."""
    if head.class_count is None or not _is_yolo(replace(head, class_count=None)):
        return ""
    return f"; as yolo it has room for {head.outputs[0].shape[1] - 4} classes"


def _shapes(head: Head) -> str:
    return ", ".join(f"{output.name} {list(output.shape)}".strip() for output in head.outputs)


def _classes(head: Head) -> str:
    return "unknown classes" if head.class_count is None else f"{head.class_count} classes"


def _listed(names: Sequence[str]) -> str:
    return " or ".join(names)
