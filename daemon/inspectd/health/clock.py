"""Whether the wall clock is synchronised, as the kernel knows it (adjtimex(2)), whoever keeps it: ntp, chrony, ptp."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

_TIME_ERROR = 5
"""State of a clock that nobody keeps in time."""


class _Timex(ctypes.Structure):
    """The head of `struct timex` (linux/timex.h); the kernel writes all of it, so the rest is room."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    )


@dataclass(frozen=True, slots=True)
class ClockState:
    """What the kernel says."""

    synced: bool
    max_error_s: float | None
    """None where the clock is not synchronised, or nobody may ask."""


def read_clock() -> ClockState:
    """Ask the kernel; changes nothing (`modes` is 0)."""
    timex = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    if state in (-1, _TIME_ERROR):
        return ClockState(synced=False, max_error_s=None)
    return ClockState(synced=True, max_error_s=timex.maxerror / 1e6)
