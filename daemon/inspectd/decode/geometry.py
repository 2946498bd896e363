"""Where a picture lies in a model's input, and back: letterbox, stretch or crop; boxes in px of the picture."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from inspectd.decode.preparation import Resize


@dataclass(frozen=True, slots=True)
class Area:
    """A rectangle of whole px."""

    left_px: int
    top_px: int
    width_px: int
    height_px: int

    def of(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Give the view of H × W × 3 `pixels` that lies in the rectangle."""
        return pixels[self.top_px : self.top_px + self.height_px, self.left_px : self.left_px + self.width_px]


@dataclass(frozen=True, slots=True)
class Placement:
    """The part `seen` of a picture is scaled to the area `filled` of the input; the rest of the input is padding."""

    seen: Area
    """All of the picture, except where it is cropped."""
    filled: Area

    @property
    def gain(self) -> tuple[float, float]:
        """Input px per picture px in x and y, from the *rounded* size: what the resize really did."""
        return self.filled.width_px / self.seen.width_px, self.filled.height_px / self.seen.height_px

    def to_picture(self, boxes: NDArray[np.floating]) -> NDArray[np.float64]:
        """[k, 4] x1 y1 x2 y2 from px of the input to px of the picture. Not clipped."""
        return (np.asarray(boxes, dtype=np.float64) - _corner(self.filled)) / self._scale() + _corner(self.seen)

    def to_input(self, boxes: NDArray[np.floating]) -> NDArray[np.float64]:
        """[k, 4] x1 y1 x2 y2 from px of the picture to px of the input."""
        return (np.asarray(boxes, dtype=np.float64) - _corner(self.seen)) * self._scale() + _corner(self.filled)

    def paste(self, pixels: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
        """Scale `pixels` straight into `target` (both H × W × 3); what lies outside `filled` is left alone.

        Linear, as the detectors are trained.
        """
        source, area = self.seen.of(pixels), self.filled.of(target)
        if area.shape == source.shape:
            np.copyto(area, source)
        else:
            size = (self.filled.width_px, self.filled.height_px)
            cv2.resize(source, size, dst=area, interpolation=cv2.INTER_LINEAR)

    def _scale(self) -> NDArray[np.float64]:
        return np.array(self.gain * 2, dtype=np.float64)


def place(
    resize: Resize, picture_width_px: int, picture_height_px: int, input_width_px: int, input_height_px: int
) -> Placement:
    """Say how a picture comes into an input.

    - `letterbox`: keep the aspect, fill the input as far as it goes, centre. Of an odd rest the smaller half is left
      and above, as Ultralytics does (`round((W - new_w) / 2 - 0.1)`).
    - `letterbox_topleft`: the same at the top left. YOLOX cuts fractions of a px off, Model API rounds; the round size
      is taken for both, and the way back uses what was taken.
    - `stretch`: to the whole input, without regard to the aspect.
    - `crop`: the largest part in the middle that has the input's aspect (Model API's `crop`). What lies outside it is
      not looked at.
    """
    picture = Area(0, 0, picture_width_px, picture_height_px)
    whole = Area(0, 0, input_width_px, input_height_px)
    if resize == "stretch":
        return Placement(picture, whole)
    if resize == "crop":
        return Placement(_middle(picture, input_width_px / input_height_px), whole)
    ratio = min(input_width_px / picture_width_px, input_height_px / picture_height_px)
    width_px = max(1, min(input_width_px, round(picture_width_px * ratio)))
    height_px = max(1, min(input_height_px, round(picture_height_px * ratio)))
    if resize == "letterbox_topleft":
        return Placement(picture, Area(0, 0, width_px, height_px))
    left_px = round((input_width_px - width_px) / 2 - 0.1)
    top_px = round((input_height_px - height_px) / 2 - 0.1)
    return Placement(picture, Area(left_px, top_px, width_px, height_px))


def _middle(picture: Area, aspect: float) -> Area:
    width_px = max(1, min(picture.width_px, round(picture.height_px * aspect)))
    height_px = max(1, min(picture.height_px, round(picture.width_px / aspect)))
    return Area((picture.width_px - width_px) // 2, (picture.height_px - height_px) // 2, width_px, height_px)


def _corner(area: Area) -> NDArray[np.float64]:
    return np.array((area.left_px, area.top_px) * 2, dtype=np.float64)
