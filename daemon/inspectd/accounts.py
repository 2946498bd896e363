"""Where each number of one camera is: not yet seen, in flight, or handed to the journal. Pure.

The invariant that everything here serves, after every step:
`captured = accounted + in flight`, where `captured` comes from the ledger alone, `accounted` from the journal's
committed rows alone, and `in flight` from here.
"""

from __future__ import annotations

from dataclasses import dataclass

Span = tuple[int, int]
"""First and last number, both included."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What the journal knows of a camera when it is opened."""

    accounted_to: int = 0
    """Every number up to here has its row."""
    above: tuple[Span, ...] = ()
    """Rows above it, sorted, apart."""
    reserved_to: int = 0
    """Numbers up to here may have been given before a power cut."""
    excluded: int = 0
    """Numbers that are outside `captured`."""

    @property
    def highest(self) -> int:
        """Highest number that has a row."""
        return self.above[-1][1] if self.above else self.accounted_to

    def missing(self, to: int) -> list[Span]:
        """Numbers up to `to` that have no row."""
        spans: list[Span] = []
        expected = self.accounted_to + 1
        for first, last in self.above:
            if expected < first:
                spans.append((expected, min(first - 1, to)))
            expected = last + 1
        if expected <= to:
            spans.append((expected, to))
        return [span for span in spans if span[0] <= span[1]]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What has to be recorded before a camera may go on."""

    lost: tuple[Span, ...]
    """Captured for certain, ended nowhere: 302."""
    possibly_lost: Span | None
    """After a power cut: may have been captured, outside `captured`."""
    last: int
    """The ledger goes on after this number."""


def recover(mark: Mark, ledger_last: int | None, *, exact: bool) -> Recovery:
    """Compare ledger and journal at start.

    `ledger_last` is None when the ledger is new or damaged. `exact` says that the page was not lost with the machine:
    same boot, or a planned stop before it. Without both the numbers above the last journalled one are bounded by
    `reserved_to`, never guessed.
    """
    if exact and ledger_last is not None and ledger_last >= mark.highest:
        return Recovery(tuple(mark.missing(ledger_last)), None, ledger_last)
    last = max(mark.highest, mark.reserved_to, ledger_last or 0)
    possibly = (mark.highest + 1, last) if last > mark.highest else None
    return Recovery(tuple(mark.missing(mark.highest)), possibly, last)


class Accounts:
    """The numbers of one camera since this daemon's start. Raises ValueError where one would be counted twice."""

    def __init__(self, last: int, excluded: int = 0) -> None:
        self.excluded = excluded
        """Numbers outside `captured`: given before the counters began, or only possibly given (power cut)."""
        self.seen = last
        """Highest number that main knows of."""
        self._open: set[int] = set()
        self._uncommitted = 0

    @property
    def open_numbers(self) -> frozenset[int]:
        """Numbers that have no record yet."""
        return frozenset(self._open)

    def announce(self, number: int) -> Span | None:
        """A frame arrived: it is open now. Returns the numbers before it whose announcement was lost (see skip_to)."""
        gap = self.skip_to(number - 1)
        self.seen = number
        self._open.add(number)
        return gap

    def skip_to(self, last: int) -> Span | None:
        """Numbers up to `last` will not be announced any more.

        They are returned, and already count as handed to the journal: the caller records them as lost.
        """
        if last < self.seen:
            raise ValueError(f"number {last + 1} came after {self.seen}")
        if last == self.seen:
            return None
        gap = (self.seen + 1, last)
        self._uncommitted += last - self.seen
        self.seen = last
        return gap

    def record(self, number: int) -> None:
        """The record of an open number goes to the journal."""
        if number not in self._open:
            raise ValueError(f"number {number} is recorded twice, or was never announced")
        self._open.remove(number)
        self._uncommitted += 1

    def committed(self, count: int) -> None:
        """The journal has committed the records of so many numbers."""
        if count > self._uncommitted:
            raise ValueError(f"{count} numbers committed, but only {self._uncommitted} were handed over")
        self._uncommitted -= count

    def captured(self, ledger_last: int) -> int:
        """Frames since the counters' beginning."""
        return ledger_last - self.excluded

    def in_flight(self, ledger_last: int) -> int:
        """Numbers that are captured and not yet accounted."""
        return ledger_last - self.seen + len(self._open) + self._uncommitted
