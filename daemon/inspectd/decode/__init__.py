"""From a model's raw outputs to detections: the table layout name → decoder, and the last step that all share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from inspectd.decode import end2end, yolo
from inspectd.decode.answer import Decoder, Found, Outputs, Reading
from inspectd.decode.geometry import Placement
from inspectd.records import Box, Detection

__all__ = ["DECODERS", "Decoder", "Found", "Outputs", "Reading", "detections"]

DECODERS: Mapping[str, Decoder] = MappingProxyType({"yolo": yolo.DECODER, "yolo-end2end": end2end.DECODER})


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
        Detection(class_id, classes[class_id], score, box, model)
        for box, score, class_id in zip(boxes, scores, found.class_ids.tolist(), strict=True)
    )
