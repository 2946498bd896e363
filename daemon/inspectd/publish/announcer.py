"""Tells the world what the journal has committed: results, verdicts, last results; and keeps the loop's counters.

Called by the writer in the loop's thread. Nothing is announced before it is on the disk, except a verdict 700: the
part goes by now, and what it says is "not inspected".
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from inspectd.accounts import Accounts
from inspectd.publish.counters import Counters
from inspectd.publish.effects import Row
from inspectd.publish.journal import Loss, Recovered
from inspectd.publish.skips import Skips
from inspectd.publish.writerport import Commit, CountersReset
from inspectd.records import Code, Inspection, LostRun, Record

log = logging.getLogger(__name__)

VERDICT_MARGIN_S = 2.0
"""A verdict is worth something until its deadline and so much more (MQTT-CONTRACT)."""
LAST_RESULT_PERIOD_S = 1.0
COMMITS_KEPT = 512
"""More than there are in a period of the health message."""


def _ignore(_: object) -> None:
    """Nobody listens yet."""


class Wire(Protocol):
    """The publisher, as the announcer needs it."""

    def committed(self, rows: Iterable[Row]) -> None:
        """Results that are on the disk, in seq order."""

    def verdict(self, payload: bytes, expires_s: float) -> None:
        """At once, never after `expires_s`."""

    def retain(self, leaf: str, payload: bytes, qos: int) -> None:
        """Retained."""


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A committed result on its way out."""

    seq: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Wording:
    """How an inspection is worded, with its seq."""

    verdict: Callable[[Inspection, int], bytes] | None
    """None: no verdicts are sent."""
    last_result: Callable[[Inspection, int], bytes]


class Announcer:
    """Listener of the writer."""

    def __init__(
        self,
        wire: Callable[[], Wire],
        accounts: Mapping[str, Accounts],
        counters: Counters,
        wording: Wording,
        clock: Callable[[], float],
    ) -> None:
        self.counters = counters
        """As of the last commit that the loop has heard of."""
        self.trouble: str | None = None
        """Why nothing can be committed."""
        self.failure: Exception | None = None
        """The writer has ended by an error in the program."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when `trouble` or `failure` changed."""
        self.on_progress: Callable[[], None] = lambda: None
        """Called after each commit."""
        self.on_renewal: Callable[[Recovered], None] = _ignore
        """Called when a new stream has begun."""
        self.on_given_up: Callable[[Loss], None] = _ignore
        """Called when unsent results had to be given up."""
        self.on_events_committed: Callable[[int], None] = _ignore
        """Called when durable events up to a number are on the disk."""
        self.skips = Skips()
        """What was skipped, for whoever tells of it."""
        self.commits_s: deque[float] = deque(maxlen=COMMITS_KEPT)
        """How long commits took, until somebody takes them."""
        self._wire, self._accounts, self._wording, self._clock = wire, accounts, wording, clock
        self._latest: dict[str, tuple[Inspection, int]] = {}
        self._told_s: dict[str, float] = {}

    def on_commit(self, commit: Commit) -> None:
        """Rows are on the disk: account, then publish."""
        self.counters = commit.counters
        self.commits_s.append(commit.commit_s)
        rows: list[PublishedRow] = []
        for committed in commit.rows:
            self._account(committed.record)
            self.skips.note(committed.record)
            if committed.seq is not None and committed.payload is not None:
                rows.append(PublishedRow(committed.seq, committed.payload))
                self._announce(committed.record, committed.seq)
        self._wire().committed(rows)
        self.on_progress()

    def on_events(self, last_event: int) -> None:
        """Durable events are on the disk: they may be sent."""
        self.on_events_committed(last_event)

    def on_counters_reset(self, reset: CountersReset) -> None:
        """A new period: what is not accounted yet is captured in it."""
        self._count_from(reset.counters, reset.excluded)

    def on_uncommitted(self, records: tuple[Inspection, ...]) -> None:
        """The disk refuses: a PLC hears 700 now, the row follows when the disk is back."""
        for record in records:
            self._send_verdict(record, 0)

    def on_trouble(self, reason: str | None) -> None:
        """Nothing can be committed, or it can again (the writer has logged it)."""
        self.trouble = reason
        self.on_change()

    def on_loss(self, loss: Loss) -> None:
        """Unsent results had to be given up: the journal is full (the writer has logged which)."""
        self.on_given_up(loss)

    def on_new_stream(self, recovered: Recovered) -> None:
        """The journal was damaged and set aside: counting begins anew."""
        self._count_from(recovered.counters, {name: mark.excluded for name, mark in recovered.marks.items()})
        self.on_renewal(recovered)

    def on_failure(self, error: Exception) -> None:
        """The writer's thread has ended: without it nothing may be inspected."""
        log.critical("journal: its thread has ended by an error of its own: %s", error)
        self.failure = error
        self.on_change()

    def tell_last_results(self) -> None:
        """Publish last results that were held back; called once a second."""
        for camera in list(self._latest):
            self._tell_last_result(camera)

    def _count_from(self, counters: Counters, excluded: Mapping[str, int]) -> None:
        """Begin a period. Both in one step: `captured` is worked out from one, what is accounted from the other."""
        self.counters = counters
        for camera, count in excluded.items():
            if camera in self._accounts:
                self._accounts[camera].excluded = count

    def _account(self, record: Record) -> None:
        accounts = self._accounts.get(record.camera)
        if accounts is not None:
            accounts.committed(record.count if isinstance(record, LostRun) else 1)

    def _announce(self, record: Record, seq: int) -> None:
        if not isinstance(record, Inspection):
            return
        if record.decision.code != Code.NOT_COMMITTED:
            self._send_verdict(record, seq)  # a 700 was told when it became one
        self._latest[record.camera] = (record, seq)
        self._tell_last_result(record.camera)

    def _send_verdict(self, record: Inspection, seq: int) -> None:
        if self._wording.verdict is not None:
            expires_s = record.captured_s + record.deadline_s + VERDICT_MARGIN_S
            self._wire().verdict(self._wording.verdict(record, seq), expires_s)

    def _tell_last_result(self, camera: str) -> None:
        """At most one a second: it is for people and dashboards."""
        now = self._clock()
        if now - self._told_s.get(camera, -LAST_RESULT_PERIOD_S) >= LAST_RESULT_PERIOD_S:
            self._told_s[camera] = now
            record, seq = self._latest.pop(camera)
            self._wire().retain("lastresult", self._wording.last_result(record, seq), 0)
