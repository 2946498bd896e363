"""What crosses the stages: frozen values, standard terms, units in the names. Imports nothing of ours."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum


class Evaluation(IntEnum):
    """resultEvaluation of OPC 40001-101."""

    UNDEFINED = 0
    OK = 1
    NOT_OK = 2
    NOT_DECIDABLE = 3

    @property
    def word(self) -> str:
        """The contract's own word, as in YAML and in the counters."""
        return _EVALUATION_WORDS[self]

    @classmethod
    def of_word(cls, word: str) -> Evaluation:
        """Read the contract's word. Raises KeyError for any other."""
        return _WORD_EVALUATIONS[word]


_EVALUATION_WORDS = {
    Evaluation.UNDEFINED: "undefined",
    Evaluation.OK: "ok",
    Evaluation.NOT_OK: "notOk",
    Evaluation.NOT_DECIDABLE: "notDecidable",
}
_WORD_EVALUATIONS = {word: evaluation for evaluation, word in _EVALUATION_WORDS.items()}


class ResultState(IntEnum):
    """resultState of OPC 40100-1, as far as a closed result can have it."""

    COMPLETED = 1
    ABORTED = 3
    FAILED = 4


class Code(IntEnum):
    """resultEvaluationCode. Rules may add 110…199 (notOk) and 210…299 (notDecidable) of their own."""

    OK = 0
    RULE_EXCEEDED = 100
    UNLISTED_CLASS = 101
    GREY_BAND = 200
    MODELS_DISAGREE = 201
    PART_COUNT = 202
    NO_CROP = 203
    DEADLINE = 300
    QUEUE_FULL = 301
    INTERRUPTED = 302
    SKIPPED_BY_POLICY = 303
    NO_FREE_SLOT = 304
    NO_PICTURE = 400
    PICTURE_INCOMPLETE = 401
    PICTURE_EXPOSURE = 402
    PICTURE_FROZEN = 403
    PICTURE_FORMAT = 404
    PICTURE_UNREADABLE = 405
    MODEL_ERROR = 500
    MODEL_TIMEOUT = 501
    MODEL_UNAVAILABLE = 502
    MODEL_OUTPUT = 503
    GOLDEN_FAILED = 504
    RECIPE = 600
    PART_ID = 601
    NOT_COMMITTED = 700


SKIPPED_CODES = frozenset({Code.QUEUE_FULL, Code.SKIPPED_BY_POLICY, Code.NO_FREE_SLOT})
"""Codes of frames that were dropped or skipped on purpose: summarised as runs under `skipped_results: summary`."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Describes one captured picture; the pixels stay in the camera's shared pool."""

    camera: str
    frame_id: int
    """64-bit, per camera, never used twice."""
    pool: int
    """Which of the camera's pools (a camera gets a new one when it outgrows or loses the old)."""
    slot: int
    generation: int
    """Together with frame_id the stamp at the slot's head."""
    width_px: int
    height_px: int
    captured_s: float
    """Monotonic clock."""
    captured_wall_s: float
    """Wall clock (epoch), for published records only."""
    acquisition_s: float = 0.0
    """How long taking the picture took."""
    name: str = ""
    """Where the picture came from, if it has a name (a file's)."""
    pixel_format: str = "BGR8"


@dataclass(frozen=True, slots=True)
class Box:
    """An axis-aligned box in px from the top left of the picture as judged."""

    x: float
    y: float
    w: float
    h: float


@dataclass(frozen=True, slots=True)
class Detection:
    """One found object."""

    class_id: int
    class_name: str
    confidence: float
    """0..1"""
    box: Box
    model: str


class OutcomeKind(StrEnum):
    """outcome of models[] in the result."""

    DONE = "done"
    TIMED_OUT = "timedOut"
    DROPPED = "dropped"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    NOT_DUE = "notDue"
    NO_CROP = "noCrop"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is running: as the child reported it at its admission."""

    model: str
    task: str
    device: str
    precision: str
    hash: str
    """SHA-256 of the model file."""
    classes: tuple[str, ...]
    requests: int
    input_width_px: int
    input_height_px: int
    layout: str
    warmup_p95_s: float


@dataclass(frozen=True, slots=True)
class Done:
    """The model's completed inference on this very frame."""

    detections: tuple[Detection, ...]
    """Everything at or above the model's `confidence`, best first."""
    duration_s: float
    """Letterbox, inference and decoding, in the child."""
    attempts: int = 1
    by: ModelFacts | None = None
    """The very child that inferred."""
    kind: OutcomeKind = field(default=OutcomeKind.DONE, init=False)


@dataclass(frozen=True, slots=True)
class TimedOut:
    """No answer within the time limit of each attempt that was made."""

    limit_s: float
    attempts: int
    reason: str
    deadline: bool = False
    """True: the frame's own deadline passed (code 300), not the attempt's limit (501)."""
    kind: OutcomeKind = field(default=OutcomeKind.TIMED_OUT, init=False)


@dataclass(frozen=True, slots=True)
class Dropped:
    """The frame never reached the model, by policy."""

    code: Code
    reason: str
    attempts: int = 0
    kind: OutcomeKind = field(default=OutcomeKind.DROPPED, init=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """The model, or the slot under it, gave an error instead of an answer."""

    code: Code
    """MODEL_ERROR or MODEL_OUTPUT."""
    reason: str
    attempts: int = 1
    kind: OutcomeKind = field(default=OutcomeKind.FAILED, init=False)


@dataclass(frozen=True, slots=True)
class Unavailable:
    """No child could take the frame."""

    reason: str
    attempts: int = 0
    kind: OutcomeKind = field(default=OutcomeKind.UNAVAILABLE, init=False)


Outcome = Done | TimedOut | Dropped | Failed | Unavailable


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Why a frame has no picture to inspect, or lost its inspection: the picture's or the daemon's fault."""

    code: Code
    """302…304, 400…405, 600, 601."""
    reason: str


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What one rule counted."""

    id: str
    count: int
    worst_confidence: float | None
    """Highest confidence among what it counted; None if nothing."""
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about one frame, and why."""

    state: ResultState
    evaluation: Evaluation
    code: int
    """A Code, or a rule's own."""
    details: str
    rules: tuple[RuleResult, ...] = ()
    not_evaluated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelRun:
    """One entry of models[] in the result."""

    model: str
    task: str
    device: str | None
    precision: str | None
    hash: str | None
    duration_s: float | None
    attempts: int
    outcome: OutcomeKind


@dataclass(frozen=True, slots=True)
class CameraFacts:
    """What the opened camera told about itself."""

    camera: str
    kind: str
    simulated: bool
    finite: bool
    width_px: int
    height_px: int
    vendor: str | None = None
    model: str | None = None
    serial: str | None = None
    firmware: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigurationId:
    """internalConfigurationId and internalRecipeId of the result."""

    id: str
    version: str
    hash: str
    hash_algorithm: str = "SHA-256"


@dataclass(frozen=True, slots=True)
class Inspection:
    """One frame's finished record, before it has a seq."""

    result_id: bytes
    """UUIDv7, 16 bytes."""
    job_id: str
    camera: str
    frame_id: int
    frame: Frame | None
    """None where no picture came to be (unreadable, no slot)."""
    camera_facts: CameraFacts | None
    captured_s: float
    captured_wall_s: float
    closed_s: float
    """Monotonic clock."""
    closed_wall_s: float
    deadline_s: float
    decision: Decision
    runs: tuple[ModelRun, ...]
    detections: tuple[Detection, ...]
    recipe: ConfigurationId
    configuration: ConfigurationId
    simulated: bool
    trigger_id: int | None = None

    @property
    def latency_s(self) -> float:
        """From capture (or trigger) to the decision."""
        return self.closed_s - self.captured_s

    @property
    def is_late(self) -> bool:
        """Whether the deadline had passed when it was decided."""
        return self.latency_s >= self.deadline_s


@dataclass(frozen=True, slots=True)
class LostRun:
    """Consecutive frames of one camera that were lost for one reason: one journal row, no seq."""

    camera: str
    from_frame_id: int
    to_frame_id: int
    code: Code
    reason: str
    wall_s: float
    count_is_upper_bound: bool = False
    """After a power cut: numbers that may never have been captured; outside `captured`."""
    simulated: bool = False

    @property
    def count(self) -> int:
        """How many numbers the row covers."""
        return self.to_frame_id - self.from_frame_id + 1


Record = Inspection | LostRun

Region = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, as decide() needs it. `None` means any."""

    id: str
    model: str | None
    classes: frozenset[str] | None
    min_confidence: float
    min_count: int
    max_count: int | None
    evaluation: Evaluation
    code: int
    min_area_px: float = 0.0
    region: Region | None = None
    """Polygon in px; a detection belongs to it by its centre."""


@dataclass(frozen=True, slots=True)
class DecisionPlan:
    """Everything decide() needs to know of one camera's configuration."""

    models: tuple[tuple[str, bool], ...]
    """(name, required) in YAML order."""
    rules: tuple[Rule, ...]
    """Only those that apply to this camera, in YAML order."""
    unlisted: Evaluation
