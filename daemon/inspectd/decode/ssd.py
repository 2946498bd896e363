"""Layout `ssd`: [1, 1, M, 7] picture, label, score, x1 y1 x2 y2 in 0..1; a picture of -1 ends the list. Has had NMS.

Label n is class n: of a net that counts its background as 0, `background` is the first of the classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from inspectd.decode.answer import (
    Decoder,
    Found,
    Outputs,
    Reading,
    best_first,
    in_px,
    ordered,
    require_centres,
    require_finite,
    require_fractions,
    require_scores,
    require_shape,
    whole_class_ids,
)


def decode(outputs: Outputs, reading: Reading) -> Found:
    """Rows at or above the confidence, best first."""
    rows = _rows(outputs)
    kept = rows[rows[:, 2] >= reading.confidence]
    return best_first(in_px(ordered(kept[:, 3:]), reading), kept[:, 2], whole_class_ids(kept[:, 1]))


def check(outputs: Outputs, reading: Reading) -> None:
    """The boxes are fractions, and what is found lies in the input."""
    rows = _rows(outputs)
    require_fractions(rows[:, 3:])
    require_centres(decode(outputs, reading), reading)


def _rows(outputs: Outputs) -> NDArray[np.float32]:
    """Those before the end; what comes after it was never written."""
    require_shape(outputs[0], (1, 1, None, 7), "picture, label, score and 4 box values")
    rows = outputs[0].reshape(-1, 7)
    ends = np.flatnonzero(rows[:, 0] < 0)
    rows = rows[: ends[0]] if len(ends) else rows
    require_finite(rows)
    require_scores(rows[:, 2])
    return rows


DECODER = Decoder(decode, check)
