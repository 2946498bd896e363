"""Whose turn it is among cameras of different weight that wait for one model. Pure; counts turns, not time.

Stride scheduling (Waldspurger and Weihl, 1995), by start tags. Each camera has a tag on a common scale; the smallest
tag of those that wait is served and moves on by 1 ÷ weight; of equal tags the one served longest ago. A camera that
comes back to wait starts at the scale's present mark: it has saved up nothing, and pays for nothing.

**Bound.** From the moment that camera c waits, and between two of its turns while it goes on waiting, each other camera
d is served at most `ceil(weight_d ÷ weight_c)` times, so all others together at most the sum of that. It depends on
weights alone, never on how many frames a camera gives.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

DEMOTED_SHARE = 8
"""A demoted camera is served as if it had an eighth of its weight."""


@dataclass(slots=True)
class TurnStats:
    """Counts since the start."""

    served: dict[str, int] = field(default_factory=dict)
    """By camera."""
    longest_wait: dict[str, int] = field(default_factory=dict)
    """By camera: most turns of others between two of its own while it waited; never more than `bound`."""


class Turns:
    """Weighted turns. All arithmetic is on whole numbers: it does not drift, and has no largest count."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        wrong = {camera: weight for camera, weight in weights.items() if weight < 1}
        if wrong:
            raise ValueError(f"weights {wrong}: a camera that is never served is no camera of the lane; give 1 or more")
        self.stats = TurnStats(dict.fromkeys(weights, 0), dict.fromkeys(weights, 0))
        self._weights = dict(weights)
        unit = math.lcm(*weights.values())
        self._stride = {camera: unit // weight for camera, weight in weights.items()}
        self._tag = dict.fromkeys(weights, 0)
        self._mark = 0
        """Tag of the last that was served: no waiting camera has a smaller one."""
        self._turn = 0
        self._served_at = dict.fromkeys(weights, 0)
        self._waits: dict[str, int] = {}
        """Turns of others since the camera began to wait, or was last served."""

    def take(self, waiting: Collection[str], demoted: Collection[str] = ()) -> str:
        """Give the camera whose turn it is, and charge it. `waiting` (not empty) has a frame now."""
        for camera in waiting:
            self._tag[camera] = max(self._tag[camera], self._mark)
        chosen = min(waiting, key=lambda camera: (self._tag[camera], self._served_at[camera]))
        self._mark = self._tag[chosen]
        self._tag[chosen] += self._stride[chosen] * (DEMOTED_SHARE if chosen in demoted else 1)
        self._turn += 1
        self._served_at[chosen] = self._turn
        self._count(chosen, waiting)
        return chosen

    def bound(self, camera: str, demoted: Collection[str] = ()) -> int:
        """Most turns of all others between two of this camera's while it waits; `demoted` as long as it stays so."""
        own = self._share(camera, demoted)
        others = (self._share(other, demoted) for other in self._weights if other != camera)
        return sum(-(-other // own) for other in others)

    def _share(self, camera: str, demoted: Collection[str]) -> int:
        return self._weights[camera] * (1 if camera in demoted else DEMOTED_SHARE)

    def _count(self, chosen: str, waiting: Collection[str]) -> None:
        stats = self.stats
        stats.served[chosen] += 1
        stats.longest_wait[chosen] = max(stats.longest_wait[chosen], self._waits.get(chosen, 0))
        self._waits = {camera: self._waits.get(camera, 0) + 1 for camera in waiting if camera != chosen}
