"""How long to wait before the next try: exponential with jitter. Pure; the random number is passed in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that grow from `first_s` to `limit_s`, drawn from the upper half so that many clients spread out."""

    first_s: float
    """The shortest delay that is ever given."""
    limit_s: float
    """The longest delay that is ever given."""
    factor: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.first_s <= self.limit_s or self.factor < 1:
            raise ValueError(
                f"back-off from {self.first_s} s to {self.limit_s} s by factor {self.factor}: "
                "needs 0 < first <= limit and a factor of at least 1"
            )

    def delay_s(self, failures: int, random: float) -> float:
        """Give the delay after so many failures in a row (1 or more); `random` lies in 0..1.

        Half of the delay is fixed and half is drawn ("equal jitter"): it never falls to nothing, and two daemons
        that lost the same broker do not come back in step.
        """
        ceiling_s = self.first_s
        for _ in range(failures):
            ceiling_s *= self.factor
            if ceiling_s >= self.limit_s:
                ceiling_s = self.limit_s
                break
        return max(self.first_s, ceiling_s / 2 + random * ceiling_s / 2)
