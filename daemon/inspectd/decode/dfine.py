"""Layout `dfine`: labels [1, M], boxes [1, M, 4] x1 y1 x2 y2, scores [1, M] (D-FINE, RT-DETR deploy). Needs no NMS.

The net scales its boxes by the input `orig_target_sizes`, which is given the size of its own picture input, so that
they come in px of that, as in every other layout.
"""

from __future__ import annotations

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
    require_shape,
    whole_class_ids,
)


def decode(outputs: Outputs, reading: Reading) -> Found:
    """Rows at or above the confidence, best first."""
    labels, boxes, scores = outputs
    require_shape(boxes, (1, None, 4), "4 box values")
    require_shape(scores, (1, boxes.shape[1]), "a score per box")
    require_shape(labels, (1, boxes.shape[1]), "a label per box")
    require_finite(boxes)
    require_finite(scores)
    require_scores(scores)
    kept = scores[0] >= reading.confidence
    return best_first(ordered(boxes[0][kept]), scores[0][kept], whole_class_ids(labels[0][kept]))


def check(outputs: Outputs, reading: Reading) -> None:
    """The boxes are px, and what is found lies in the input."""
    found, (_, boxes, scores) = decode(outputs, reading), outputs
    require_px(boxes[0][scores[0] > 0], reading)
    require_centres(found, reading)


DECODER = Decoder(decode, check)
