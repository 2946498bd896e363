"""What a line needs, and what it hands over: its slice of the configuration, its book, its models' lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from inspectd.accounts import Span
from inspectd.lane.skip import SkipLevel
from inspectd.records import CameraFacts, Code, Decision, DecisionPlan, Detection, Frame, ModelRun, Outcome
from inspectd.worker.frames import PoolSpec


@dataclass(frozen=True, slots=True)
class LineSpec:
    """One camera's slice of the configuration."""

    camera: str
    source: dict[str, Any]
    """What `camera.sources.create_source` needs."""
    simulated: bool
    """Its pictures are not of a real line."""
    lossless: bool
    fps: float | None
    """Expected rate."""
    deadline_s: float
    plan: DecisionPlan


@dataclass(frozen=True, slots=True)
class ClosedFrame:
    """A frame whose inspection has ended, one way or another."""

    frame: Frame | None
    """None where no picture came to be."""
    frame_id: int
    captured_s: float
    captured_wall_s: float
    closed_s: float
    decision: Decision
    runs: tuple[ModelRun, ...]
    detections: tuple[Detection, ...]


class Camera(Protocol):
    """A line, as its records need it."""

    spec: LineSpec
    name: str
    facts: CameraFacts | None


class Book(Protocol):
    """Where records go."""

    def closed(self, line: Camera, closed: ClosedFrame) -> None:
        """A frame has ended: one record."""

    def lost(self, line: Camera, span: Span, code: Code, reason: str) -> None:
        """These numbers have no picture: one record for all of them."""


class ModelLane(Protocol):
    """A model's lane, as a line needs it."""

    def offer(self, frame: Frame, deadline_s: float) -> None:
        """Give a frame; `finished` is called exactly once, by the deadline at the latest."""

    def level(self, camera: str) -> SkipLevel | None:
        """How many of the camera's frames the model can bear; None: they are never left out."""

    def note_skipped(self) -> None:
        """A frame for this model was left out by the skip policy, and is not offered."""

    def add_pool(self, spec: PoolSpec, descriptor: int) -> None:
        """A pool whose slots will be asked about."""

    def forget_pool(self, spec: PoolSpec) -> None:
        """It will not be any more."""

    def describe(self, outcome: Outcome) -> ModelRun:
        """One entry of models[] in the result."""
