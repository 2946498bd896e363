"""The repair ladder of one model: on which device its next child starts, and with how many requests. Pure.

    broke ─▶ same device again ─▶ next of `devices` ─▶ … ─▶ every one failed: alarm, and each in turn, for ever
    out of memory at warm-up ─▶ same device, half the requests
    not on the first device for `retry_primary_s` ─▶ way back due: only a second child's admission there moves us

Sticky: the device on which a child was admitted is kept until that child breaks or the way back succeeds. Half the
requests stay half until the daemon starts anew: a trial with more would risk the memory of a line that works.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

TRIES = 2
"""Ends in a row on one device until the next one is tried."""
STEADY_S = 10.0
"""A child that lived so long after its admission was a good one: its end is the first failure again."""
PATIENCE_MOST = 8
"""Times `retry_primary_s`: a device that breaks soon after each way back is tried less and less often."""


class End(StrEnum):
    """How a child ended, as far as the next one depends on it."""

    BROKE = "broke"
    """It died, hung, lost its device or could not open it."""
    OUT_OF_MEMORY = "outOfMemory"
    """As the child told it. Before its admission fewer requests may mend it."""
    REFUSED = "refused"
    """The model file does not fit: another device would not mend it."""


class Rung(StrEnum):
    """What is done next; people see it as an event."""

    SAME_DEVICE = "new child on the same device"
    FEWER_REQUESTS = "half the requests"
    NEXT_DEVICE = "next of the devices"
    ALL_FAILED = "every device failed"


@dataclass(slots=True)
class LadderStats:
    """Counts since the start."""

    ends: int = 0
    fallbacks: int = 0
    ways_back: int = 0


class Ladder:
    """Where one model runs. `now` is the monotonic clock."""

    def __init__(self, model: str, devices: tuple[str, ...], retry_primary_s: float) -> None:
        self.failures = 0
        """In a row, over all devices: the back-off grows with it."""
        self.all_failed = False
        """No device works: alarm, and `Unavailable` for every frame, until a child is admitted."""
        self.trouble = ""
        """Why the last child ended; empty while one is admitted."""
        self.left_because = ""
        """Why the first device was left the last time."""
        self.stats = LadderStats()
        self._model, self._devices, self._retry_primary_s = model, devices, retry_primary_s
        self._at = 0
        self._tries = 0
        self._broken: set[str] = set()
        """Devices that were given up since a child lived steadily."""
        self._most: dict[str, int] = {}
        """Requests for which a device has memory, where that was found out."""
        self._admitted_s: float | None = None
        self._way_back_s = 0.0
        self._came_back_s: float | None = None
        """Since then on the first device, by a way back that is still to prove itself."""
        self._patience = 1

    @property
    def device(self) -> str:
        """Of the child that serves, or of the next one."""
        return self._devices[self._at]

    @property
    def primary(self) -> str:
        """The device that is meant."""
        return self._devices[0]

    @property
    def fallback(self) -> str | None:
        """Why a child serves on another device than is meant, in words; None if it does not."""
        if self._admitted_s is None or self._at == 0:
            return None
        return f"runs on {self.device}, since {self.primary} failed: {self.left_because}"

    def requests_most(self, device: str) -> int | None:
        """Most requests to ask for on a device; None: no limit is known."""
        return self._most.get(device)

    @property
    def degraded(self) -> str | None:
        """Why the model does not run as it is meant to, in words; None if it does."""
        if self._admitted_s is None:
            return f"{self._model}: no model process, next on {self.device}: {self.trouble}" if self.trouble else None
        if self._at > 0:
            return f"{self._model}: runs on {self.device} instead of {self.primary}"
        most = self._most.get(self.device)
        return None if most is None else f"{self._model}: {self.device} has memory for {most} requests only"

    def admitted(self, now: float) -> None:
        """The child on `device` passed its warm-up. One that was replaced there as planned puts off no way back."""
        if self._admitted_s is None:
            self._way_back_s = now + self._patience * self._retry_primary_s
        self._admitted_s, self.trouble, self.all_failed = now, "", False

    def ended(self, end: End, reason: str, now: float, *, requests: int = 0) -> Rung:
        """The child ended; `device` is the next one's. `requests`: what a child that was out of memory had tried."""
        self.stats.ends += 1
        lived_s = None if self._admitted_s is None else now - self._admitted_s
        self._admitted_s, self.trouble = None, reason
        if lived_s is not None:
            self._judge_life(lived_s, now)
        if end is End.OUT_OF_MEMORY and lived_s is None and requests > 1:
            self._most[self.device] = requests // 2
            return Rung.FEWER_REQUESTS
        self.failures += 1
        if end is End.REFUSED:
            self.all_failed = True
            return Rung.ALL_FAILED
        self._tries += 1
        if self._tries < TRIES and not self.all_failed:
            return Rung.SAME_DEVICE
        return self._next_device()

    def way_back_due(self, now: float) -> bool:
        """Whether a second child is to be warmed on the first device."""
        return self._admitted_s is not None and self._at > 0 and now >= self._way_back_s

    def way_back_failed(self, now: float) -> None:
        """It was not admitted: the child that serves goes on."""
        self._way_back_s = now + self._patience * self._retry_primary_s

    def took_over(self, device: str, now: float) -> None:
        """A second child was admitted and serves from now on, whatever became of the one before it."""
        if device != self.device:
            self._admitted_s = None
            if device == self.primary:
                self._came_back_s = now
                self.stats.ways_back += 1
        self._at, self._tries, self.failures = self._devices.index(device), 0, 0
        self.admitted(now)

    def _judge_life(self, lived_s: float, now: float) -> None:
        if lived_s >= STEADY_S:
            self.failures = self._tries = 0
            self._broken.clear()
        if self._came_back_s is not None:
            held = now - self._came_back_s >= self._retry_primary_s
            self._patience = 1 if held else min(PATIENCE_MOST, 2 * self._patience)
            self._came_back_s = None

    def _next_device(self) -> Rung:
        self._broken.add(self.device)
        if self._at == 0:
            self.left_because = self.trouble
        self._at, self._tries = (self._at + 1) % len(self._devices), 0
        if self.all_failed or len(self._broken) == len(self._devices):
            self.all_failed = True
            return Rung.ALL_FAILED
        self.stats.fallbacks += 1
        return Rung.NEXT_DEVICE
