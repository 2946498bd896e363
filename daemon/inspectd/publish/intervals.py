"""Which frame numbers of one camera have their record: a watermark and the intervals above it. Pure; never overlaps."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from inspectd.accounts import Span


class Overlap(ValueError):
    """A number would be accounted for a second time: an error in the program, not in the plant."""


@dataclass(frozen=True, slots=True)
class IntervalSet:
    """Positive numbers. Bounded, because the watermark absorbs: one interval more than there are holes."""

    contiguous_to: int = 0
    """Every number from 1 up to here is in the set."""
    above: tuple[Span, ...] = ()
    """Sorted, apart from each other and from the watermark; first and last number, both included."""

    def add(self, first: int, last: int) -> IntervalSet:
        """Give the set with `first`…`last` in it. Raises Overlap if any of them is in it already."""
        if first > last:
            raise ValueError(f"the interval {first}…{last} is empty")
        if first <= self.contiguous_to:
            raise Overlap(f"number {first} is accounted for already (all up to {self.contiguous_to} are)")
        place = bisect_left(self.above, (first, 0))
        before, after = self.above[:place], self.above[place:]
        if before and before[-1][1] >= first:
            raise Overlap(f"number {first} is accounted for already (in {before[-1][0]}…{before[-1][1]})")
        if after and after[0][0] <= last:
            raise Overlap(f"number {after[0][0]} is accounted for already (in {after[0][0]}…{after[0][1]})")
        if before and before[-1][1] == first - 1:
            first, before = before[-1][0], before[:-1]
        if after and after[0][0] == last + 1:
            last, after = after[0][1], after[1:]
        if first == self.contiguous_to + 1:
            return IntervalSet(last, after)
        return IntervalSet(self.contiguous_to, (*before, (first, last), *after))

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every interval of the set, from number 1 on."""
        return ((1, self.contiguous_to), *self.above) if self.contiguous_to else self.above

    @property
    def count(self) -> int:
        """How many numbers are in the set."""
        return sum(last - first + 1 for first, last in self.spans)

    def missing(self, to: int) -> tuple[Span, ...]:
        """Give the numbers from 1 to `to` that are not in the set."""
        holes: list[Span] = []
        expected = self.contiguous_to + 1
        for first, last in self.above:
            if first > to:
                break
            holes.append((expected, first - 1))
            expected = last + 1
        if expected <= to:
            holes.append((expected, to))
        return tuple(holes)


def spans_of(numbers: list[int]) -> tuple[Span, ...]:
    """Group sorted numbers into intervals."""
    spans: list[Span] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return tuple(spans)
