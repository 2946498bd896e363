"""One stream's results on their way out: which row is next, which are delivered. Pure: no I/O, no clock, no await.

Every row up to `last_seq` is in exactly one place: delivered (up to `acked_seq`, or above it and forgotten), in flight,
to be sent again, waiting for its dead letter, in memory ready to go, or only on disk (above `_loaded_seq`).
`acked_seq` is therefore one below the lowest seq that is still held here: acknowledgements may come in any order.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from inspectd.publish.effects import DeadLetter, Read, Row
from inspectd.publish.reasons import Refusal

READY_ROWS = 500
READY_BYTES = 4 * 1024 * 1024
"""Rows kept in memory: 500 results of 2 kB are half a second at full rate; beyond that the journal is read."""
READ_ROWS = 200
READ_BELOW_ROWS = 100
"""Ask for the next rows while these are still being sent, so that catching up never waits for the disk."""
UNSPECIFIC_TRIES = 5
"""So often may a broker refuse one row without saying why before the row is put aside and the rest goes on."""


@dataclass(frozen=True, slots=True)
class Substitute:
    """A small result in the place of one that cannot be sent."""

    seq: int
    payload: bytes


_SEQ = attrgetter("seq")


class ResultStream:
    """The rows of one stream, in seq order. Bound: READY_ROWS and READY_BYTES in memory; the rest stays on disk."""

    def __init__(self, acked_seq: int, last_seq: int) -> None:
        self.last_seq = last_seq
        self.lost = 0
        """Unsent rows that the journal no longer had: it was full, and says which in an event of its own."""
        self.dead_letters = 0
        self.careful = 0
        """So many rows are still to be sent one by one."""
        self._loaded_seq = acked_seq
        self._ready: deque[Row] = deque()
        self._ready_bytes = 0
        self._again: list[Row] = []
        self._flying: dict[int, Row] = {}
        self._dead: set[int] = set()
        self._substitutes: set[int] = set()
        self._tries: dict[int, int] = {}
        self._asked: Read | None = None

    @property
    def acked_seq(self) -> int:
        """Everything up to here is delivered, or put aside."""
        held = [self._loaded_seq + 1, *self._flying, *self._dead]
        if self._again:
            held.append(self._again[0].seq)
        if self._ready:
            held.append(self._ready[0].seq)
        return min(held) - 1

    @property
    def in_flight(self) -> int:
        """Rows that were sent and not acknowledged."""
        return len(self._flying)

    @property
    def ready_rows(self) -> int:
        """Rows in memory that wait to be sent."""
        return len(self._ready) + len(self._again)

    @property
    def ready_bytes(self) -> int:
        """Payload bytes of the rows that wait to be sent for the first time."""
        return self._ready_bytes

    def committed(self, rows: Iterable[Row]) -> None:
        """Note rows that are now on disk; kept in memory while they follow on what is there and fit."""
        for row in rows:
            if row.seq <= self.last_seq:
                continue
            self.last_seq = row.seq
            if row.seq == self._loaded_seq + 1 and self._has_room():
                self._load(row)

    def wanted(self) -> Read | None:
        """Give the next range to read, once; answer it with `loaded` or `unread`."""
        enough = len(self._ready) >= READ_BELOW_ROWS or not self._has_room()
        if enough or self._asked is not None or self._loaded_seq >= self.last_seq:
            return None
        self._asked = Read(self._loaded_seq + 1, self.last_seq, READ_ROWS)
        return self._asked

    def loaded(self, read: Read, rows: Sequence[Row]) -> None:
        """Take the journal's answer. Seqs of the range that it does not have are lost there, and skipped here."""
        self._asked = None
        for row in rows:
            if not self._has_room():
                return
            self.lost += row.seq - self._loaded_seq - 1
            self._load(row)
        if len(rows) < read.limit:
            self.lost += read.to_seq - self._loaded_seq
            self._loaded_seq = read.to_seq

    def unread(self) -> None:
        """Note that the journal could not be read; the range is asked for again."""
        self._asked = None

    def take(self, limit_bytes: int) -> Row | DeadLetter | None:
        """Give the next row to send, or the next to put aside. Nothing passes a row that waits for its substitute."""
        if self._dead or (self.careful and self._flying):
            return None
        while self._again or self._ready:
            if self._again:
                row = self._again.pop(0)
            else:
                row = self._ready.popleft()
                self._ready_bytes -= len(row.payload)
            if len(row.payload) <= limit_bytes:
                self._flying[row.seq] = row
                return row
            if letter := self._put_aside(row.seq, f"{len(row.payload)} bytes, the limit is {limit_bytes}"):
                return letter
        return None

    def delivered(self, seq: int) -> None:
        """Note that the broker has it."""
        del self._flying[seq]
        self._forget(seq)
        self.careful = max(0, self.careful - 1)

    def refused(self, seq: int, refusal: Refusal, reason: str) -> DeadLetter | None:
        """Note that the broker did not take it; put aside, or to be sent again."""
        row = self._flying.pop(seq)
        tries = self._tries[seq] = self._tries.get(seq, 0) + (refusal is Refusal.UNSPECIFIC)
        if refusal is Refusal.DEAD or tries >= UNSPECIFIC_TRIES:
            return self._put_aside(seq, reason)
        insort(self._again, row, key=_SEQ)
        return None

    def connection_ended(self) -> None:
        """Everything unacknowledged is to be sent again, from the high-water mark."""
        for row in self._flying.values():
            insort(self._again, row, key=_SEQ)
        self._flying.clear()

    def is_substitute(self, seq: int) -> bool:
        """Whether a substitute is to be sent in the place of this row."""
        return seq in self._substitutes

    def condemned(self, seq: int, reason: str) -> DeadLetter | None:
        """Put a row aside that waits to be sent again."""
        self._again = [row for row in self._again if row.seq != seq]
        return self._put_aside(seq, reason)

    def substituted(self, seq: int, payload: bytes | None) -> None:
        """Take what is to be sent in the place of a row that was put aside; None: nothing is."""
        self._dead.discard(seq)
        if payload is None:
            self._forget(seq)
        else:
            self._substitutes.add(seq)
            insort(self._again, Substitute(seq, payload), key=_SEQ)

    def waiting(self) -> Iterator[int]:
        """Give the seqs that are held in memory and not delivered, for the tests' invariant."""
        yield from self._flying
        yield from self._dead
        yield from (row.seq for row in (*self._again, *self._ready))

    def _put_aside(self, seq: int, reason: str) -> DeadLetter | None:
        if seq in self._substitutes:
            self._forget(seq)  # the original lies in the dead-letter table; a substitute of the substitute helps nobody
            return None
        self.dead_letters += 1
        self._dead.add(seq)
        return DeadLetter(seq, reason)

    def _forget(self, seq: int) -> None:
        self._substitutes.discard(seq)
        self._tries.pop(seq, None)

    def _has_room(self) -> bool:
        return len(self._ready) < READY_ROWS and self._ready_bytes < READY_BYTES

    def _load(self, row: Row) -> None:
        self._ready.append(row)
        self._ready_bytes += len(row.payload)
        self._loaded_seq = row.seq
