"""From a model's raw outputs to detections: the table layout name → decoder, and the last step that all share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from inspectd.classnames import class_name
from inspectd.decode import boxes_labels, detr, dfine, end2end, rtdetr, ssd, yolo, yolov5, yolox
from inspectd.decode.answer import Decoder, Found, Outputs, Reading
from inspectd.records import Box, Detection

if TYPE_CHECKING:  # who only reads a description must not load OpenCV for it
    from inspectd.decode.geometry import Placement

__all__ = ["DECODERS", "Decoder", "Found", "Outputs", "Reading", "detections"]

DECODERS: Mapping[str, Decoder] = MappingProxyType(
    {
        "yolo": yolo.DECODER,
        "yolo-end2end": end2end.DECODER,
        "yolov5": yolov5.DECODER,
        "yolox": yolox.DECODER,
        "yolox-decoded": yolov5.YOLOX_DECODED,
        "rtdetr": rtdetr.DECODER,
        "detr-probs": detr.PROBABILITIES,
        "detr": detr.DECODER,
        "dfine": dfine.DECODER,
        "ssd": ssd.DECODER,
        "boxes-labels": boxes_labels.DECODER,
        "yolo-seg": yolo.MASKED,
        "yolo-end2end-seg": end2end.MASKED,
        "yolov5-seg": yolov5.MASKED,
    }
)

_BOX_DIGITS, _SCORE_DIGITS = 3, 6
"""More than any net means; and KEPT_MAX boxes then fit one message of 64 KiB on the child's channel."""


def detections(found: Found, placement: Placement, classes: Sequence[str], model: str) -> tuple[Detection, ...]:
    """Name what was found and give its boxes in px of the picture, best first.

    Boxes are **not clipped**: a model that sees half an object at the edge says where the other half is, and a box
    can begin at x = -2. Who draws or cuts clips.
    """
    corners = placement.to_picture(found.boxes)
    corners[:, 2:] -= corners[:, :2]
    boxes = (Box(*row) for row in corners.round(_BOX_DIGITS).tolist())
    scores = found.scores.astype(np.float64).clip(0.0, 1.0).round(_SCORE_DIGITS).tolist()
    return tuple(
        Detection(class_id, class_name(classes, class_id), score, box, model)
        for box, score, class_id in zip(boxes, scores, found.class_ids.tolist(), strict=True)
    )
