"""Tells of frames that were passed over: one event a second at most, however many there were. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from inspectd.publish.events import Event, EventName
from inspectd.records import SKIPPED_CODES, LostRun, Record

SEVERITY = 300
REASONS_MAX = 16
"""Kept of one span, to find the most frequent; there may be a frame's own numbers in them."""


@dataclass(slots=True)
class _Span:
    first: int
    last: int
    count: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


class Skips:
    """What was skipped since the last `take`."""

    def __init__(self) -> None:
        self._spans: dict[str, _Span] = {}

    def note(self, record: Record) -> None:
        """Take a record that is committed; those that were not skipped are passed over."""
        if isinstance(record, LostRun):
            if record.code in SKIPPED_CODES and not record.count_is_upper_bound:
                self._add(record.camera, record.from_frame_id, record.to_frame_id, record.count, record.reason)
        elif record.decision.code in SKIPPED_CODES:
            self._add(record.camera, record.frame_id, record.frame_id, 1, record.decision.details)

    def take(self) -> Event | None:
        """Give the event of the camera that has waited longest. Called once a second; the others go on counting."""
        if not self._spans:
            return None
        camera = next(iter(self._spans))
        span = self._spans.pop(camera)
        [(reason, _)] = span.reasons.most_common(1)
        detail = {"count": span.count, "fromFrameId": span.first, "toFrameId": span.last, "reason": reason}
        return Event(EventName.FRAMES_SKIPPED, camera, SEVERITY, detail)

    def _add(self, camera: str, first: int, last: int, count: int, reason: str) -> None:
        span = self._spans.setdefault(camera, _Span(first, last))
        span.first, span.last, span.count = min(span.first, first), max(span.last, last), span.count + count
        if reason in span.reasons or len(span.reasons) < REASONS_MAX:
            span.reasons[reason] += count
