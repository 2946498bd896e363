"""Which frames of one camera are taken under overload: every n-th, by count, once for all its models. Pure.

Lanes that each chose frames for themselves would choose different ones: of two lanes at n = 2 each might inspect every
second frame, and no frame would have both models' word. So the slowest of the required lanes sets n for the camera; an
optional lane at a larger n leaves out more, of the frames that are taken, and costs the required ones nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from inspectd.lane.skip import QUARTERS, SkipLevel


class EveryNth:
    """On average every n-th frame, evenly spread, whatever the clock says. Use one more for an optional lane."""

    def __init__(self) -> None:
        self.taken = 0
        self.skipped = 0
        """Since the start; together the frames that were asked about."""
        self._passed = 0
        """Quarters of a frame since the last that was taken, and what its n had left over."""

    def refusal(self, levels: Collection[SkipLevel]) -> str | None:
        """Why the next frame is not taken, or None if it is. Call once per frame; `levels` of the lanes it is for."""
        slowest = max(levels, key=lambda level: level.quarters, default=None)
        wanted = QUARTERS if slowest is None else slowest.quarters
        self._passed += QUARTERS
        if slowest is None or self._passed >= wanted or not self.taken:
            self._passed = min(max(0, self._passed - wanted), QUARTERS - 1)
            self.taken += 1
            return None
        self.skipped += 1
        return slowest.reason


class Choice:
    """Which frames of one camera its models get."""

    def __init__(self, required: Collection[SkipLevel], optional: Mapping[str, SkipLevel]) -> None:
        """`required`: levels of the camera's required lanes. `optional`: of the others, by model."""
        self._required, self._optional = required, optional
        self._frames = EveryNth()
        self._by_model = {model: EveryNth() for model in optional}

    def refusal(self) -> str | None:
        """Why the next frame goes to no model, or None. Call once per frame."""
        return self._frames.refusal(self._required)

    def refusal_by(self, model: str) -> str | None:
        """Why a frame that is taken does not go to this model, or None. Call once per model and such frame."""
        frames = self._by_model.get(model)
        return None if frames is None else frames.refusal((self._optional[model],))
