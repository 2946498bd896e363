"""One infer request with its own input memory: letterbox, start, wait, decode. Imports no runtime: it is handed one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from inspectd.decode import Decoder, Found, Outputs, Reading
from inspectd.decode.geometry import Placement, place
from inspectd.decode.preparation import Resize
from inspectd.engine.faults import FOREIGN, meaning
from inspectd.errors import EngineError, OutputError

_WAIT_SLICE_MS = 100
"""A cancel that came just before the start is noticed after this at the latest."""
_CHANNELS = 3


class Canvas:
    """The picture as the net gets it, before colour and scale. Padding is written only when the geometry changes."""

    def __init__(self, name: str, width_px: int, height_px: int, resize: Resize, pad: int) -> None:
        self._name, self._resize, self._pad = name, resize, pad
        self.pixels: NDArray[np.uint8] = np.full((1, height_px, width_px, _CHANNELS), pad, dtype=np.uint8)
        """[1, H, W, 3] BGR."""
        self._placement: Placement | None = None

    def fill(self, picture: NDArray[np.uint8]) -> Placement:
        """Bring an H × W × 3 picture into the input. Raises EngineError."""
        if picture.ndim != 3 or picture.shape[2] != _CHANNELS or not picture.size:
            raise EngineError(f"{self._name}: picture {list(picture.shape)}, expected [height, width, 3]")
        _, height_px, width_px, _ = self.pixels.shape
        placement = place(self._resize, picture.shape[1], picture.shape[0], width_px, height_px)
        if placement != self._placement:
            self.pixels.fill(self._pad)
            self._placement = placement
        placement.paste(picture, self.pixels[0])
        return placement


class Slot:
    """One InferRequest. Used by one thread at a time; `cancel` comes from another."""

    def __init__(
        self, name: str, request: Any, canvas: Canvas, order: tuple[int, ...], decoder: Decoder, reading: Reading
    ) -> None:
        self._name, self._request, self._canvas, self._order = name, request, canvas, order
        self._decoder, self._reading = decoder, reading
        self._is_cancelled = False

    def fill(self, pixels: NDArray[np.uint8]) -> Placement:
        """Bring a picture into the input tensor. Forgets a cancel that was meant for the picture before."""
        self._is_cancelled = False
        return self._canvas.fill(pixels)

    def start(self) -> None:
        """Begin the inference. Raises EngineError or DeviceError."""
        if self._is_cancelled:
            raise EngineError(f"{self._name}: cancelled")
        try:
            self._request.start_async()
        except FOREIGN as error:
            raise meaning(self._name, "inference did not start", error, EngineError) from error

    def finish(self) -> None:
        """Wait for its end. Raises EngineError or DeviceError."""
        try:
            while not self._request.wait_for(_WAIT_SLICE_MS):
                if self._is_cancelled:
                    self._request.cancel()
        except FOREIGN as error:
            if self._is_cancelled:
                raise EngineError(f"{self._name}: cancelled") from error
            raise meaning(self._name, "inference failed", error, EngineError) from error
        if self._is_cancelled:
            raise EngineError(f"{self._name}: cancelled")

    def cancel(self) -> None:
        """Ask the runtime to give the request back."""
        self._is_cancelled = True
        self._request.cancel()

    def found(self) -> Found:
        """What the finished inference found. Raises OutputError."""
        try:
            return self._decoder.decode(self._outputs(), self._reading)
        except OutputError as error:
            raise OutputError(f"{self._name}: {error}") from error

    def check(self) -> None:
        """Look at all of the answer, as at a warm-up. Raises OutputError."""
        self._decoder.check(self._outputs(), self._reading)

    def answer(self) -> list[NDArray[Any]]:
        """Copy the outputs that are read."""
        return [output.copy() for output in self._outputs()]

    def _outputs(self) -> Outputs:
        """Views into the request's memory: good until its next start. By index, since names may be missing."""
        return [self._request.get_output_tensor(index).data for index in self._order]
