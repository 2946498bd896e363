"""Turns closed frames into journal rows, and committed rows into messages. Each number passes here exactly once.

Skipped and lost frames that follow on each other for one reason become one row (a run); it is handed over when another
reason comes, or at the next `flush` (once a second, and at the end).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from inspectd.accounts import Span
from inspectd.lineports import Camera, ClosedFrame
from inspectd.publish.uuid7 import uuid7, uuid_text
from inspectd.records import (
    SKIPPED_CODES,
    Code,
    ConfigurationId,
    Inspection,
    LostRun,
    Record,
)

RESERVE_S = 10.0
"""Numbers reserved ahead of a power cut, as time at the camera's rate."""
RESERVE_MIN = 100
"""For slow cameras, and before the rate is known."""


class RecordSink(Protocol):
    """The journal's writer, as the book needs it."""

    def submit(self, record: Record, *, urgent: bool = False) -> None:
        """Hand a record over; never blocks."""

    def reserve(self, camera: str, to: int) -> None:
        """Numbers up to here may be given before the next commit says more."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Under which rules and settings this daemon inspects."""

    recipe: ConfigurationId
    configuration: Mapping[str, ConfigurationId]
    """By camera."""


class Bookkeeper:
    """The only writer of records."""

    def __init__(
        self, sink: RecordSink, identity: Identity, wall: Callable[[], float], *, skipped_as_results: bool
    ) -> None:
        self.identity = identity
        self._sink, self._wall = sink, wall
        self._skipped_as_results = skipped_as_results
        self._runs: dict[str, LostRun] = {}
        self._reserved: dict[str, int] = {}
        self._rates: dict[str, float] = {}

    def expect(self, camera: str, last: int, rate_fps: float) -> None:
        """Reserve numbers for a camera before it gives any."""
        self._rates[camera] = rate_fps
        self._reserve(camera, last)

    def closed(self, line: Camera, closed: ClosedFrame) -> None:
        """A frame has ended: one record."""
        decision = closed.decision
        if decision.code in SKIPPED_CODES and not self._skipped_as_results:
            span = (closed.frame_id, closed.frame_id)
            self.lost(line, span, Code(decision.code), decision.details)
            return
        self._sink.submit(self._inspection(line, closed))
        self._reserve(line.name, closed.frame_id)

    def lost(self, line: Camera, span: Span, code: Code, reason: str) -> None:
        """These numbers have no inspection: one record for all of them."""
        first, last = span
        run = self._runs.get(line.name)
        if run is not None and run.code is code and run.to_frame_id + 1 == first:
            self._runs[line.name] = replace(run, to_frame_id=last)
        else:
            self._flush_run(line.name)
            simulated = line.spec.simulated
            self._runs[line.name] = LostRun(line.name, first, last, code, reason, self._wall(), simulated=simulated)
        self._reserve(line.name, last)

    def flush(self) -> None:
        """Hand over the runs that are still growing."""
        for camera in list(self._runs):
            self._flush_run(camera)

    def _flush_run(self, camera: str) -> None:
        run = self._runs.pop(camera, None)
        if run is not None:
            self._sink.submit(run)

    def _reserve(self, camera: str, last: int) -> None:
        ahead = numbers_ahead(self._rates[camera])
        if self._reserved.get(camera, 0) < last + ahead // 2:
            self._reserved[camera] = last + ahead
            self._sink.reserve(camera, last + ahead)

    def _inspection(self, line: Camera, closed: ClosedFrame) -> Inspection:
        wall_s = self._wall()
        result_id = uuid7(wall_s, os.urandom(10))
        return Inspection(
            result_id=result_id,
            job_id=uuid_text(result_id),
            camera=line.name,
            frame_id=closed.frame_id,
            frame=closed.frame,
            camera_facts=line.facts,
            captured_s=closed.captured_s,
            captured_wall_s=closed.captured_wall_s,
            closed_s=closed.closed_s,
            closed_wall_s=wall_s,
            deadline_s=line.spec.deadline_s,
            decision=closed.decision,
            runs=closed.runs,
            detections=closed.detections,
            recipe=self.identity.recipe,
            configuration=self.identity.configuration[line.name],
            simulated=line.spec.simulated,
        )


def numbers_ahead(rate_fps: float) -> int:
    """How many numbers a camera of this rate may take before the next commit says more."""
    return max(RESERVE_MIN, round(RESERVE_S * rate_fps))
