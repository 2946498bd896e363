"""Layout `boxes-labels`: boxes [1, M, 5] x1 y1 x2 y2 px and score, labels [1, M] (Geti, OTX). Has had NMS.

Both also without the first dimension, as older exports have them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from inspectd.decode.answer import (
    Decoder,
    Found,
    Outputs,
    Reading,
    best_first,
    ordered,
    require_centres,
    require_finite,
    require_px,
    require_scores,
    whole_class_ids,
)
from inspectd.errors import OutputError


def decode(outputs: Outputs, reading: Reading) -> Found:
    """Rows at or above the confidence, best first."""
    boxes, labels = _tables(outputs)
    require_finite(boxes)
    require_scores(boxes[:, 4])
    kept = boxes[:, 4] >= reading.confidence
    return best_first(ordered(boxes[kept]), boxes[kept, 4], whole_class_ids(labels[kept]))


def check(outputs: Outputs, reading: Reading) -> None:
    """The boxes are px, and what is found lies in the input."""
    found, (boxes, _) = decode(outputs, reading), _tables(outputs)
    require_px(boxes[boxes[:, 4] > 0, :4], reading)
    require_centres(found, reading)


def _tables(outputs: Outputs) -> tuple[NDArray[np.float32], NDArray[Any]]:
    boxes, labels = outputs
    if boxes.ndim not in (2, 3) or boxes.shape[-1] != 5 or labels.size * 5 != boxes.size:
        raise OutputError(
            f"outputs {list(boxes.shape)} and {list(labels.shape)}, expected [1, M, 5] and [1, M]: 4 box values and "
            "score, and a label each"
        )
    return boxes.reshape(-1, 5), labels.reshape(-1)


DECODER = Decoder(decode, check)
