"""Where a picture lies in a model's input, and back again: letterbox, and boxes in px of the picture."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Placement:
    """A picture scaled to `scaled_*` and put at (`left_px`, `top_px`) of the input; the rest is padding."""

    picture_width_px: int
    picture_height_px: int
    input_width_px: int
    input_height_px: int
    scaled_width_px: int
    scaled_height_px: int
    left_px: int
    top_px: int

    @property
    def gain(self) -> tuple[float, float]:
        """Input px per picture px in x and y, from the *rounded* size: what the resize really did."""
        return self.scaled_width_px / self.picture_width_px, self.scaled_height_px / self.picture_height_px

    def to_picture(self, boxes: NDArray[np.floating]) -> NDArray[np.float64]:
        """[k, 4] x1 y1 x2 y2 from px of the input to px of the picture. Not clipped."""
        return (np.asarray(boxes, dtype=np.float64) - self._offset()) / self._scale()

    def to_input(self, boxes: NDArray[np.floating]) -> NDArray[np.float64]:
        """[k, 4] x1 y1 x2 y2 from px of the picture to px of the input."""
        return np.asarray(boxes, dtype=np.float64) * self._scale() + self._offset()

    def paste(self, pixels: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
        """Scale `pixels` straight into `target` (both H × W × 3); what lies outside the picture is left alone.

        Linear, as the detectors are trained.
        """
        area = target[
            self.top_px : self.top_px + self.scaled_height_px, self.left_px : self.left_px + self.scaled_width_px
        ]
        if area.shape == pixels.shape:
            np.copyto(area, pixels)
        else:
            cv2.resize(pixels, (self.scaled_width_px, self.scaled_height_px), dst=area, interpolation=cv2.INTER_LINEAR)

    def _offset(self) -> NDArray[np.float64]:
        return np.array((self.left_px, self.top_px) * 2, dtype=np.float64)

    def _scale(self) -> NDArray[np.float64]:
        return np.array(self.gain * 2, dtype=np.float64)


def letterbox(picture_width_px: int, picture_height_px: int, input_width_px: int, input_height_px: int) -> Placement:
    """Keep the aspect, fill the input as far as it goes, centre.

    Sizes are rounded to at least 1 px; of an odd rest the smaller half is left and above, as Ultralytics does
    (`round((W - new_w) / 2 - 0.1)`).
    """
    ratio = min(input_width_px / picture_width_px, input_height_px / picture_height_px)
    width_px = max(1, min(input_width_px, round(picture_width_px * ratio)))
    height_px = max(1, min(input_height_px, round(picture_height_px * ratio)))
    return Placement(
        picture_width_px,
        picture_height_px,
        input_width_px,
        input_height_px,
        width_px,
        height_px,
        round((input_width_px - width_px) / 2 - 0.1),
        round((input_height_px - height_px) / 2 - 0.1),
    )
