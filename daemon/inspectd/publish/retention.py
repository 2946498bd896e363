"""Which file of the journal goes next when they are old, or too many. Pure: one step at a time, the gentlest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

DAY_S = 86_400.0
FILE_MAX_BYTES = 256 * 1024 * 1024
LOG_BYTES = 4 * 1024 * 1024
"""About 7 s at 120/s: each page that the log has several times is then written to the file once."""
WORTH_COMPACTING = 8
"""A file is written again for its delivered results only where they are at least this part (an eighth) of it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of the journal is kept."""

    max_bytes: int
    """Of all files together (`storage.outbox.max_gb`)."""
    keep_days: float = 30.0
    file_max_bytes: int = FILE_MAX_BYTES

    @property
    def rotate_bytes(self) -> int:
        """Size at which a new file begins: small enough that a file is a small part of the whole."""
        return min(self.file_max_bytes, self.max_bytes // 8)

    @property
    def log_bytes(self) -> int:
        """Length of the write-ahead log at which it is moved into the file."""
        return min(LOG_BYTES, self.rotate_bytes)


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file of the row."""

    number: int
    first_seq: int
    last_seq: int
    """Below first_seq: it never had a result."""
    created_wall_s: float
    closed_wall_s: float
    size_bytes: int
    may_have_unsent_ok: bool = True
    first_event: int = 1
    last_event: int = 0
    """Below first_event: it never had an event."""

    def is_delivered(self, acked_seq: int, acked_event: int) -> bool:
        """Whether nothing in it is unsent."""
        return self.last_seq <= acked_seq and (self.last_event <= acked_event or self.last_event < self.first_event)


@dataclass(frozen=True, slots=True)
class Unlink:
    """Remove the file; what of it was not sent is lost, events as well."""

    number: int


@dataclass(frozen=True, slots=True)
class Compact:
    """Write the file again without what is delivered and, if so said, without the unsent OK results: those are lost."""

    number: int
    drop_ok: bool


@dataclass(frozen=True, slots=True)
class Rotate:
    """Begin a new file, so that the newest can be compacted."""


Step = Unlink | Compact | Rotate


def next_step(
    closed: Sequence[FileFacts],
    newest: FileFacts,
    acked_seq: int,
    now_wall_s: float,
    limits: Limits,
    *,
    disk_full: bool,
    acked_event: int = 0,
) -> Step | None:
    """Choose the next step; None: nothing has to go.

    A file is delivered when its results and its events are. Delivered ones of more than `keep_days` go. Above
    `max_bytes`: the oldest delivered results, then unsent OK ones, then the oldest. On a disk that others filled
    (`disk_full`) the same, but never an unsent result that is not OK, and no unsent event.
    """
    for facts in closed:
        if facts.is_delivered(acked_seq, acked_event) and now_wall_s - facts.closed_wall_s > limits.keep_days * DAY_S:
            return Unlink(facts.number)
    if not disk_full and newest.size_bytes + sum(facts.size_bytes for facts in closed) <= limits.max_bytes:
        return None
    for facts in closed:
        if facts.is_delivered(acked_seq, acked_event):
            return Unlink(facts.number)
    for facts in closed:
        delivered = min(acked_seq, facts.last_seq) - facts.first_seq + 1
        if delivered > 0 and delivered >= (facts.last_seq - facts.first_seq + 1) / WORTH_COMPACTING:
            return Compact(facts.number, drop_ok=False)
    for facts in closed:
        if facts.may_have_unsent_ok and facts.last_seq > acked_seq:
            return Compact(facts.number, drop_ok=True)
    if disk_full:
        return None
    if newest.last_seq >= newest.first_seq and newest.may_have_unsent_ok:
        return Rotate()
    return Unlink(closed[0].number) if closed else None
