"""Example messages about parts: results, verdicts, the last result."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.contract.example_values import (
    CAMERA,
    CLOSED_WALL_S,
    CODE_HASH,
    CONFIGURATION_HASH,
    MODEL_HASH,
    RECIPE,
    RECIPE_HASH,
    RECIPE_NUMBER,
    RESULT_ID,
    SEQ,
    STATION,
    UPTIME_MS,
    WALL_S,
)

from inspectd.book import Bookkeeper, Identity
from inspectd.lineports import ClosedFrame, LineSpec
from inspectd.publish import messages
from inspectd.publish.uuid7 import uuid_text
from inspectd.records import (
    Box,
    CameraFacts,
    Code,
    ConfigurationId,
    Decision,
    DecisionPlan,
    Detection,
    Evaluation,
    Frame,
    Inspection,
    ModelRun,
    OutcomeKind,
    Record,
    ResultState,
    RuleResult,
)


def about_parts() -> dict[str, bytes]:
    made = {
        "ok": passed(),
        "not-ok": _rejected(),
        "failed": _failed(),
        "no-picture": _without_picture(),
    }
    results = {f"result-{name}": result_of(inspection) for name, inspection in made.items()}
    return {
        **results,
        "result-substitute": messages.substitute(results["result-not-ok"]),
        "lastresult": messages.last_result(made["not-ok"], STATION, SEQ, UPTIME_MS, RECIPE_NUMBER),
        "verdict-pass": messages.verdict(made["ok"], SEQ),
        "verdict-reject": messages.verdict(made["not-ok"], SEQ),
        "verdict-not-committed": messages.verdict(_not_committed(), 0),
    }


def result_of(inspection: Inspection) -> bytes:
    return messages.result(inspection, STATION, SEQ, UPTIME_MS, RECIPE_NUMBER)


@dataclass
class _Top:
    """A line, as its records need it."""

    spec: LineSpec
    name: str
    facts: CameraFacts | None


@dataclass
class _Kept:
    """The journal's writer."""

    records: list[Record] = field(default_factory=list)

    def submit(self, record: Record, *, urgent: bool = False) -> None:
        assert not urgent
        self.records.append(record)

    def reserve(self, camera: str, to: int) -> None:
        """Nothing to be kept."""


def passed() -> Inspection:
    """As the station's own book makes it of a frame; only the random part of its id is replaced."""
    plan = DecisionPlan((("defects", True), ("code", False)), (), Evaluation.NOT_OK)
    spec = LineSpec("top", {}, simulated=False, lossless=False, fps=30.0, deadline_s=0.3, plan=plan)
    identity = Identity(
        ConfigurationId(RECIPE.id, STATION.software_version, RECIPE_HASH),
        {"top": ConfigurationId(STATION.station_id, STATION.software_version, CONFIGURATION_HASH)},
    )
    kept = _Kept()
    book = Bookkeeper(kept, identity, lambda: CLOSED_WALL_S, skipped_as_results=False)
    book.expect("top", 0, 30.0)
    book.closed(_Top(spec, "top", CAMERA), _closed())
    [made] = kept.records
    assert isinstance(made, Inspection)
    job_id = made.job_id.replace(uuid_text(made.result_id), uuid_text(RESULT_ID))
    return replace(made, result_id=RESULT_ID, job_id=job_id)


def _closed() -> ClosedFrame:
    return ClosedFrame(
        frame=Frame("top", 99_123, 0, 3, 7, 1920, 1080, 50.0, WALL_S, acquisition_s=0.004),
        frame_id=99_123,
        captured_s=50.0,
        captured_wall_s=WALL_S,
        closed_s=50.031,
        decision=Decision(
            ResultState.COMPLETED,
            Evaluation.OK,
            Code.OK,
            "nothing is over the limits",
            (_rule("board", 1, 0.97, Evaluation.OK), _rule("electrical", 0, None, Evaluation.OK)),
        ),
        runs=(_run("defects", "detect", MODEL_HASH, 0.0213), _run("code", "ocr", CODE_HASH, 0.0061)),
        detections=(Detection(6, "board", 0.97, Box(212.5, 80.25, 1490.0, 912.75), "defects"),),
    )


def _rejected() -> Inspection:
    """A cut track; the optional model that reads the code is off."""
    good = passed()
    details = "1 × open: rule electrical allows 0"
    rules = (_rule("board", 1, 0.97, Evaluation.OK), _rule("electrical", 1, 0.9123, Evaluation.NOT_OK))
    off = ModelRun("code", "ocr", None, None, None, None, 0, OutcomeKind.UNAVAILABLE)
    return replace(
        good,
        decision=Decision(ResultState.COMPLETED, Evaluation.NOT_OK, 110, details, rules, ("text",)),
        runs=(good.runs[0], off),
        detections=(*good.detections, Detection(0, "open", 0.9123, Box(840.0, 412.5, 31.0, 9.0), "defects")),
    )


def _failed() -> Inspection:
    good = passed()
    timed_out = replace(good.runs[0], duration_s=None, attempts=2, outcome=OutcomeKind.TIMED_OUT)
    details = "top/defects: no result in 0.15 s (limit 0.15 s, attempt 2 of 2)"
    return replace(
        good,
        decision=Decision(ResultState.FAILED, Evaluation.UNDEFINED, Code.MODEL_TIMEOUT, details),
        runs=(timed_out, good.runs[1]),
        detections=(),
    )


def _without_picture() -> Inspection:
    return replace(
        passed(),
        frame=None,
        decision=Decision(ResultState.FAILED, Evaluation.UNDEFINED, Code.PICTURE_UNREADABLE, "top: not a picture"),
        runs=(),
        detections=(),
    )


def _not_committed() -> Inspection:
    details = "the record cannot be stored: No space left on device"
    return replace(passed(), decision=Decision(ResultState.FAILED, Evaluation.UNDEFINED, Code.NOT_COMMITTED, details))


def _rule(name: str, count: int, worst: float | None, evaluation: Evaluation) -> RuleResult:
    return RuleResult(name, count, worst, evaluation)


def _run(name: str, task: str, file_hash: str, duration_s: float) -> ModelRun:
    return ModelRun(name, task, "CPU", "f32", file_hash, duration_s, 1, OutcomeKind.DONE)
