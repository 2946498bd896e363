"""How long the broker may still be away before results are lost: from the journal's size and growth. Pure."""

from __future__ import annotations

from collections import deque

RATE_SAMPLES = 360
"""The rate of results is that of the last hour, at one sample in 10 s."""
GROWTH_SAMPLES = 32
HOUR_S = 3600.0


class OutageEstimate:
    """Told the journal's size and last seq each period.

    A journal file grows in steps, when its log is moved into it: the size of a row is measured from step to step.
    """

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes`: what all results may take (`storage.outbox.max_gb`)."""
        self._limit_bytes = limit_bytes
        self._seqs: deque[tuple[float, int]] = deque(maxlen=RATE_SAMPLES)
        self._steps: deque[tuple[int, int]] = deque(maxlen=GROWTH_SAMPLES)
        """Size and seq just after the file grew."""
        self._row_bytes: float | None = None

    def note(self, now: float, size_bytes: int, last_seq: int) -> None:
        """Take what is the case now."""
        if self._seqs and last_seq < self._seqs[-1][1]:
            self._seqs.clear()  # a new stream
            self._steps.clear()
        self._seqs.append((now, last_seq))
        if self._steps and size_bytes < self._steps[-1][0]:
            self._steps.clear()  # old results have gone
        if not self._steps or size_bytes > self._steps[-1][0]:
            self._steps.append((size_bytes, last_seq))
        grown_bytes, rows = (self._steps[-1][index] - self._steps[0][index] for index in (0, 1))
        if grown_bytes > 0 and rows > 0:
            self._row_bytes = grown_bytes / rows

    def hours(self, unsent: int) -> float | None:
        """Give the hours that are left with so many results unsent; delivered ones make room first.

        None: not known yet, or nothing is being produced.
        """
        if self._row_bytes is None:
            return None
        (from_s, from_seq), (to_s, to_seq) = self._seqs[0], self._seqs[-1]
        if to_seq <= from_seq or to_s <= from_s:
            return None
        rows_per_s = (to_seq - from_seq) / (to_s - from_s)
        free_bytes = max(0.0, self._limit_bytes - unsent * self._row_bytes)
        return free_bytes / (rows_per_s * self._row_bytes) / HOUR_S
