"""Cameras: the Source protocol, and what a source hands over. Runs in the camera child."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from inspectd.records import CameraFacts

if TYPE_CHECKING:  # main knows of cameras and touches no pixel: it does without NumPy
    import numpy as np
    from numpy.typing import NDArray

Pixels: TypeAlias = "NDArray[np.uint8]"
"""Height × width × 3, BGR, C-contiguous; grey pictures have three equal channels."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture, as grabbed."""

    pixels: Pixels
    captured_s: float
    """Monotonic clock."""
    captured_wall_s: float
    acquisition_s: float = 0.0
    name: str = ""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A picture that should have been there and cannot be used: it gets a number and a record (405)."""

    reason: str
    captured_s: float
    captured_wall_s: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class Nothing:
    """No picture within the time given; ask again."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A finite source is used up."""


Grab = Picture | Unreadable | Nothing | Ended


class Source(Protocol):
    """One camera. Used by one thread of its child only."""

    def open(self, first_frame_id: int, next_frame_id: int) -> CameraFacts:
        """Open the device.

        `first_frame_id` is the number that the first picture of this run of the daemon had or will have,
        `next_frame_id` the one that the next grab will be given (larger after a child was replaced), so that
        a finite source goes on where it was. Raises SourceError.
        """

    def grab(self, frame_id: int, timeout_s: float) -> Grab:
        """Wait at most `timeout_s` for the picture that will be number `frame_id`.

        A source with a pace of its own (files, simulator) waits here. The same `frame_id` is asked for again
        after `Nothing`. Raises SourceError when the device is lost.
        """

    def close(self) -> None:
        """Give the device back. Never raises."""
