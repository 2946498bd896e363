"""Every message that is built is what the contract says, for any content that can come."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any, Literal, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.schemas import WrongMessage, published_schema, validate

from inspectd.publish import messages, reports
from inspectd.publish.commands import Answer
from inspectd.publish.counters import Counters, Tally
from inspectd.publish.reports import Automatic, ErrorNumber, Vision
from inspectd.publish.uuid7 import uuid7, uuid_text
from inspectd.publish.wire import PAYLOAD_MAX_BYTES, encode, time_text
from inspectd.records import (
    Box,
    CameraFacts,
    Code,
    ConfigurationId,
    Decision,
    Detection,
    Evaluation,
    Frame,
    Inspection,
    ModelFacts,
    ModelRun,
    OutcomeKind,
    ResultState,
    RuleResult,
)

Item = TypeVar("Item")
BOOT_ID = "6f0c3d64-2f6e-4b0c-9d0a-0f3f5a1c2b7d"
WALL_S = 1_796_000_000.123
STATION = messages.Station("aoi-01", "s-1", BOOT_ID, "0.1.0", messages.Clock("ntp", synced=True, max_error_s=0.0021))
HASH = "9f2c" * 16


def detection(confidence: float = 0.91234567, class_name: str = "open") -> Detection:
    return Detection(0, class_name, confidence, Box(10.123, 20.456, 30.0, 5.5), "defects")


INSPECTION = Inspection(
    result_id=uuid7(WALL_S, bytes(range(10))),
    job_id="job-1",
    camera="top",
    frame_id=99_123,
    frame=Frame("top", 99_123, 0, 3, 7, 640, 480, 50.0, WALL_S, acquisition_s=0.004),
    camera_facts=CameraFacts("top", "files", True, True, 640, 480, serial="23998877"),
    captured_s=50.0,
    captured_wall_s=WALL_S,
    closed_s=50.0312345,
    closed_wall_s=WALL_S + 0.031,
    deadline_s=0.3,
    decision=Decision(
        ResultState.COMPLETED,
        Evaluation.NOT_OK,
        110,
        "1 × open: rule electrical allows 0",
        (RuleResult("electrical", 1, 0.91234567, Evaluation.NOT_OK), RuleResult("board", 0, None, Evaluation.OK)),
        ("code",),
    ),
    runs=(
        ModelRun("defects", "detect", "CPU", "f32", HASH, 0.0213456, 1, OutcomeKind.DONE),
        ModelRun("code", "ocr", None, None, None, None, 0, OutcomeKind.UNAVAILABLE),
    ),
    detections=(detection(), detection(0.2, "mouse bite"), detection(0.1)),
    recipe=ConfigurationId("A12", "1", HASH),
    configuration=ConfigurationId("top", "1", HASH),
    simulated=True,
)
WITHOUT_PICTURE = replace(
    INSPECTION,
    frame=None,
    camera_facts=None,
    detections=(),
    decision=Decision(ResultState.FAILED, Evaluation.UNDEFINED, Code.PICTURE_UNREADABLE, "a.png: not a picture"),
)


def result(inspection: Inspection, seq: int = 4711) -> Any:
    return validate("result", messages.result(inspection, STATION, seq, 5000, 12))


def test_a_result_says_everything_that_was_found() -> None:
    document = result(INSPECTION)
    assert document["resultId"] == str(uuid.UUID(bytes=INSPECTION.result_id))
    assert (document["jobId"], document["measId"]) == ("job-1", "job-1")
    assert (document["resultEvaluation"], document["resultEvaluationText"]) == (2, "NotOK")
    assert document["creationTime"] == "2026-11-30T00:53:20.154Z"
    assert (document["latencyMs"], document["deadlineMs"], document["isLate"]) == (31.23, 300.0, False)
    assert document["acquisition"]["cameraSerial"] == "23998877"
    assert document["resultContent"]["detections"][0] == {
        "detectionId": 0,
        "classId": 0,
        "className": "open",
        "confidence": 0.9123,
        "bbox": {"x": 10.12, "y": 20.46, "w": 30.0, "h": 5.5},
        "model": "defects",
    }
    assert document["resultContent"]["defectCounts"] == {"open": 2, "mouse bite": 1}
    assert document["decision"]["rules"][1] == {"id": "board", "count": 0, "evaluation": 1}
    assert document["decision"]["notEvaluated"] == ["code"]
    assert document["models"][0]["durationMs"] == 21.35
    assert document["clock"] == {"source": "ntp", "synced": True, "maxErrorMs": 2.1}


def test_what_is_not_known_is_left_out_and_what_may_be_null_is_there() -> None:
    """No field ever changes its type, except those that the contract calls "string or null"."""
    document = result(WITHOUT_PICTURE)
    assert document["acquisition"].keys() == {"cameraId", "frameId", "captureTime"}
    assert "acquisitionDuration" not in document["processingTimes"]
    unavailable = document["models"][1]
    assert unavailable == {"model": "code", "task": "ocr", "attempts": 0, "outcome": "unavailable"}
    assert [document[name] for name in ("partId", "productId", "externalRecipeId")] == [None, None, None]


def test_a_result_is_compact_and_keeps_umlauts() -> None:
    payload = messages.result(replace(INSPECTION, job_id="größe"), STATION, 1, 1)
    assert "größe".encode() in payload
    assert b'": ' not in payload


def test_a_hundred_detections_go_out_and_all_are_counted() -> None:
    """The best hundred, whatever their order; the cut is said."""
    many = tuple(detection(number / 1000) for number in range(250))
    content = result(replace(INSPECTION, detections=many))["resultContent"]
    assert len(content["detections"]) == 100
    assert content["detections"][0]["confidence"] == 0.249
    assert (content["detectionCount"], content["defectCounts"], content["contentTruncated"]) == (
        250,
        {"open": 250},
        True,
    )
    exactly = result(replace(INSPECTION, detections=many[:100]))["resultContent"]
    assert exactly["contentTruncated"] is False


def test_code_300_and_late_go_together() -> None:
    """Whatever the last digit of the clocks says."""
    on_time = replace(
        INSPECTION, decision=Decision(ResultState.COMPLETED, Evaluation.UNDEFINED, Code.DEADLINE, "too late")
    )
    assert result(on_time)["isLate"] is True
    assert json.loads(messages.verdict(on_time, 1))["late"] == 1


def test_the_last_result_is_the_result_without_its_detections() -> None:
    full = result(INSPECTION)
    last = validate("lastresult", messages.last_result(INSPECTION, STATION, 4711, 5000, 12))
    assert last.pop("schema") == "inspectd.lastresult/1.0"
    del full["schema"], full["resultContent"]["detections"]
    assert last == full


def test_the_last_results_schema_differs_from_the_results_by_the_detections_only() -> None:
    full, last = published_schema("result"), published_schema("lastresult")
    content = full["properties"]["resultContent"]
    del full["properties"]["schema"], last["properties"]["schema"], content["properties"]["detections"]
    content["required"].remove("detections")
    assert last["properties"] == full["properties"]
    assert (last["required"], last["allOf"]) == (full["required"], full["allOf"])
    assert last["$defs"].items() <= full["$defs"].items()


def test_a_verdict_has_the_contracts_fields_in_the_contracts_order() -> None:
    payload = messages.verdict(INSPECTION, 2**31 + 5, 12, "SN123")
    assert validate("verdict", payload) == {
        "v": 1, "seq": 5, "id": uuid_text(INSPECTION.result_id), "part": "SN123", "meas": "job-1", "trig": 99_123,
        "cam": "top", "rcp": 12, "eval": 2, "state": 1, "code": 110, "n": 3, "sim": 1, "late": 0, "ts": 1_796_000_000,
        "ms": 154,
    }  # fmt: skip
    assert list(json.loads(payload)) == list(published_schema("verdict")["properties"])


def test_a_verdict_as_csv_is_the_same_values_in_one_line() -> None:
    as_json = validate("verdict", messages.verdict(INSPECTION, 7, 12, 'a,"b'))
    payload = messages.verdict(INSPECTION, 7, 12, 'a,"b', "csv")
    assert payload.endswith(b',"a,""b",job-1,99123,top,12,2,1,110,3,1,0,1796000000,154')
    assert validate("verdict", payload) == as_json


def test_a_verdict_names_the_trigger_where_there_was_one() -> None:
    assert json.loads(messages.verdict(replace(INSPECTION, trigger_id=17), 1))["trig"] == 17


def test_a_verdict_that_is_too_long_loses_ids_whole_and_never_cut() -> None:
    """A cut id may be another part's; an empty one makes the PLC reject."""
    long = replace(INSPECTION, job_id="j" * 64, camera="c" * 64)
    assert json.loads(messages.verdict(long, 1, part_id="p" * 40))["part"] == "p" * 40
    assert json.loads(messages.verdict(long, 1, part_id='"' * 64))["part"] == ""
    endless = json.loads(messages.verdict(replace(long, job_id="j" * 500), 1, part_id="p"))
    assert (endless["part"], endless["cam"], endless["meas"]) == ("", "", "")


def test_a_substitute_keeps_ids_and_decision_of_what_it_stands_for() -> None:
    payload = messages.result(replace(INSPECTION, detections=(detection(),) * 100), STATION, 9, 1)
    small = messages.substitute(payload)
    document = validate("result", small)
    assert len(small) < 2500
    assert (document["seq"], document["resultId"]) == (9, uuid_text(INSPECTION.result_id))
    assert document["resultEvaluationCode"] == 110
    assert document["resultContent"]["contentTruncated"] is True
    assert document["resultContent"]["detectionCount"] == 100


def test_a_number_that_is_not_finite_is_never_sent() -> None:
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            messages.result(replace(INSPECTION, detections=(detection(wrong),)), STATION, 1, 1)


texts = st.text(max_size=30) | st.text(alphabet="\x00\n\"\\\ud800é漢😀,'", max_size=400) | st.just("x" * 1500)
seconds = st.floats(0, 1e7)
walls = st.floats(0, 4_200_000_000)
pixels = st.floats(-1e5, 1e5)
sizes = st.floats(0, 1e5)
shares = st.floats(0, 1)
finds = st.builds(Detection, st.integers(0, 2000), texts, shares, st.builds(Box, pixels, pixels, sizes, sizes), texts)
configurations = st.builds(ConfigurationId, texts, texts, texts)
optional_texts = st.none() | texts
rule_results = st.builds(RuleResult, texts, st.integers(0, 1000), st.none() | shares, st.sampled_from(Evaluation))
model_runs = st.builds(
    ModelRun,
    texts,
    texts,
    optional_texts,
    optional_texts,
    optional_texts,
    st.none() | seconds,
    st.integers(0, 9),
    st.sampled_from(OutcomeKind),
)
verdicts = st.sampled_from(
    [
        (ResultState.COMPLETED, Evaluation.OK, 0),
        (ResultState.COMPLETED, Evaluation.OK, 101),
        (ResultState.COMPLETED, Evaluation.NOT_OK, 199),
        (ResultState.COMPLETED, Evaluation.NOT_DECIDABLE, 202),
        (ResultState.COMPLETED, Evaluation.UNDEFINED, Code.DEADLINE),
        (ResultState.ABORTED, Evaluation.UNDEFINED, Code.INTERRUPTED),
        (ResultState.FAILED, Evaluation.UNDEFINED, Code.NOT_COMMITTED),
    ]
)


@st.composite
def inspections(draw: st.DrawFn) -> Inspection:
    def few(items: st.SearchStrategy[Item]) -> tuple[Item, ...]:
        return tuple(draw(st.lists(items, max_size=4)))

    state, evaluation, code = draw(verdicts)
    captured_s, latency_s = draw(seconds), draw(seconds)
    facts = CameraFacts("c", "files", True, True, 1, 1, serial=draw(optional_texts))
    frame = Frame("c", 1, 0, 0, 0, draw(st.integers(1, 99_999)), 1, 0.0, 0.0, draw(seconds), pixel_format=draw(texts))
    return Inspection(
        result_id=uuid7(draw(walls), draw(st.binary(min_size=10, max_size=10))),
        job_id=draw(texts),
        camera=draw(texts),
        frame_id=draw(st.integers(0, 2**63)),
        frame=draw(st.sampled_from([None, frame])),
        camera_facts=draw(st.sampled_from([None, facts])),
        captured_s=captured_s,
        captured_wall_s=draw(walls),
        closed_s=captured_s + latency_s,
        closed_wall_s=draw(walls),
        deadline_s=4e7 if evaluation is Evaluation.OK else draw(seconds),
        decision=Decision(state, evaluation, code, draw(texts), few(rule_results), few(texts)),
        runs=few(model_runs),
        detections=few(finds),
        recipe=draw(configurations),
        configuration=draw(configurations),
        simulated=draw(st.booleans()),
        trigger_id=draw(st.none() | st.integers(0, 2**40)),
    )


def grown(inspection: Inspection, times: int) -> Inspection:
    """Repeat what there may be many of; done outside Hypothesis, whose reports would be as long."""
    decision = inspection.decision
    return replace(
        inspection,
        detections=inspection.detections * times,
        runs=inspection.runs * min(times, 40),
        decision=replace(decision, rules=decision.rules * times, not_evaluated=decision.not_evaluated * times),
    )


extremes = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""No time limit: checking a full message against its schema takes a moment."""


@extremes
@given(inspections(), st.sampled_from([1, 1, 1, 30, 250]), st.integers(1, 2**53), st.integers(0, 2**40))
def test_any_inspection_gives_valid_results_below_the_payload_cap(
    inspection: Inspection, times: int, seq: int, uptime_ms: int
) -> None:
    """Up to 1000 detections. Whatever has to be shortened, ids and decision are whole."""
    inspection = grown(inspection, times)
    payload = messages.result(inspection, STATION, seq, uptime_ms)
    document = validate("result", payload)
    validate("lastresult", messages.last_result(inspection, STATION, seq, uptime_ms))
    small = validate("result", messages.substitute(payload))
    for one in (document, small):
        assert (one["seq"], one["resultId"]) == (seq, uuid_text(inspection.result_id))
        assert one["resultEvaluationCode"] == inspection.decision.code
        assert one["resultContent"]["detectionCount"] == len(inspection.detections)


@extremes
@given(inspections(), st.integers(0, 2**62), st.integers(0, 2**40), texts)
def test_any_verdict_is_valid_and_at_most_400_bytes(inspection: Inspection, seq: int, recipe: int, part: str) -> None:
    """JSON and CSV; no number above 32 bits, whatever the ids."""
    for form in ("json", "csv"):
        document = validate("verdict", messages.verdict(inspection, seq, recipe, part, _form(form)))
        assert all(value < 2**32 for value in document.values() if isinstance(value, int))
        assert (document["eval"], document["state"]) == (inspection.decision.evaluation, inspection.decision.state)


def _form(name: str) -> Literal["json", "csv"]:
    return "csv" if name == "csv" else "json"


RECIPE = reports.RecipeFacts("A12", 12, HASH)
STATE = reports.StationState(
    Vision.OPERATIONAL,
    Automatic.CONTINUOUS_EXECUTION,
    ready=True,
    degraded=True,
    reasons=("model code is off",),
    simulation=True,
    recipe=RECIPE,
    jobs_in_flight=3,
    jobs_max=14,
    since_wall_s=WALL_S,
    cameras={"top": reports.CameraState("continuous", connected=True, ready=True)},
)
COUNTERS = Counters(
    WALL_S,
    ok=6,
    not_ok=2,
    not_decidable=1,
    undefined=1,
    by_code={110: 2, 0: 6, 202: 1, 301: 1},
    per_camera={"top": Tally(6, 2, 1, 1)},
    parts=Tally(2, 1, 0, 0),
    skipped=1,
)


@pytest.mark.parametrize(
    ("reason", "status"),
    [("start", "online"), ("stop", "offline"), ("connectionLost", "offline"), ("failure", "offline")],
)
def test_only_a_start_is_online(reason: Any, status: str) -> None:
    document = validate("status", reports.status(reason, BOOT_ID, WALL_S))
    assert (document["status"], document["reason"], document["time"]) == (status, reason, "2026-11-30T00:53:20.123Z")


@pytest.mark.parametrize("vision", Vision)
@pytest.mark.parametrize("automatic", [None, *Automatic])
def test_every_state_is_valid(vision: Vision, automatic: Automatic | None) -> None:
    document = validate("state", reports.state(replace(STATE, vision=vision, automatic=automatic)))
    assert (document["vision"], document["automatic"]) == (vision, automatic)
    assert document["cameras"] == {"top": {"mode": "continuous", "connected": True, "ready": True}}


def test_counters_add_up_in_all_and_per_camera() -> None:
    """`captured = ok + notOk + notDecidable + undefined + inFlight`; a camera without a record yet is there too."""
    document = validate("counters", reports.counters(COUNTERS, {"top": 11, "side": 2}, {"top": 1, "side": 2}))
    for part in (document, *document["perCamera"].values()):
        assert part["captured"] == sum(part[name] for name in ("ok", "notOk", "notDecidable", "undefined", "inFlight"))
    assert (document["captured"], document["inFlight"]) == (13, 3)
    assert list(document["byCode"]) == ["0", "110", "202", "301"]
    assert document["parts"]["yield"] == 0.6667


def test_yield_is_a_number_before_the_first_part() -> None:
    document = validate("counters", reports.counters(Counters(WALL_S), {}, {}))
    assert document["parts"]["yield"] == 0


@pytest.mark.parametrize(("vision", "number"), [(one, n) for n, one in enumerate(Vision, start=1)])
def test_the_heartbeat_goes_round_and_tells_the_state_as_a_number(vision: Vision, number: int) -> None:
    document = validate("heartbeat", reports.heartbeat(2**32 + 4, vision, WALL_S, ready=True))
    assert document == {"n": 4, "ready": 1, "state": number, "ts": 1_796_000_000}


def model_facts(task: str, *classes: str) -> ModelFacts:
    return ModelFacts("defects", task, "CPU", "f32", HASH, classes, 2, 640, 640, "yolo", 0.02)


def test_meta_lists_classes_with_their_labels_but_no_characters() -> None:
    camera = CameraFacts("top", "genicam", False, False, 1920, 1080, "acme", "x1", "23", None)
    facts = reports.Meta(
        "0.1.0", "2026.4.1", "3.11.2", BOOT_ID, ("replay",), HASH, (RECIPE,),
        (
            reports.MetaModel(model_facts("detect", "open", "short"), {"open": {"de": "Unterbrechung"}}, True),
            reports.MetaModel(model_facts("ocr", "a", "b")),
        ),
        (camera,),
    )  # fmt: skip
    document = validate("meta", reports.meta(facts))
    detect, ocr = document["models"]
    assert detect["classes"][0] == {"id": 0, "name": "open", "labels": {"de": "Unterbrechung"}}
    assert detect["goldenPassed"] is True
    assert not {"classes", "goldenPassed"} & ocr.keys()
    assert document["cameras"] == [
        {"cameraId": "top", "kind": "genicam", "vendor": "acme", "model": "x1", "serial": "23"}
    ]


@pytest.mark.parametrize(
    "answer",
    [
        Answer("r-1", "replay", "completed", detail={"sent": 12}),
        Answer("r-2", "trigger", "accepted", job_id="job-1"),
        Answer("r-3", "trigger", "rejected", ErrorNumber.BUSY, "2 jobs are open, at most 2"),
        Answer("r-4", "reload", "failed", ErrorNumber.INTERNAL, "the journal cannot be read"),
    ],
)
def test_answers_carry_the_request_id_and_the_state(answer: Answer) -> None:
    document = validate("rsp/mes-1", reports.response(answer, Vision.HALTED, WALL_S))
    assert (document["requestId"], document["state"]) == (answer.request_id, "Halted")
    assert document.get("jobId") == answer.job_id
    assert document.get("detail", {}) == answer.detail


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"resultStat": 1}, "resultStat"),
        ({"seq": "1"}, "is not of type 'integer'"),
        ({"resultEvaluation": 1}, "resultEvaluationCode"),
        ({"resultState": 4}, "resultEvaluation"),
        ({"resultEvaluationText": "OK"}, "resultEvaluationText"),
        ({"creationTime": "2026-11-30T00:53:20Z"}, "creationTime"),
        ({"acquisition": {"cameraId": "top"}}, "frameId"),
        ({"clock": {"source": "ntp", "synced": True, "drift": 1}}, "drift"),
    ],
)
def test_the_strict_check_sees_typos_wrong_types_and_contradictions(change: dict[str, Any], complaint: str) -> None:
    document = json.loads(messages.result(INSPECTION, STATION, 1, 1)) | change
    with pytest.raises(WrongMessage, match=complaint):
        validate("result", encode(document))


@pytest.mark.parametrize(
    ("leaf", "payload", "complaint"),
    [
        ("heartbeat", b'{"n":NaN}', "NaN is not JSON"),
        ("heartbeat", b'{"n":1,"n":2}', "twice"),
        ("heartbeat", b"\xff", "not UTF-8"),
        ("heartbeat", b"{", "heartbeat: "),
        ("heartbeat", b" " * 65_537, "65537 bytes"),
        ("verdict", b" " * 401, "401 bytes"),
        ("verdict", b"1,2", "16 values"),
        ("weather", b"{}", "no schema for the topic 'weather'"),
    ],
)
def test_the_strict_check_names_what_is_no_message_at_all(leaf: str, payload: bytes, complaint: str) -> None:
    with pytest.raises(WrongMessage, match=complaint):
        validate(leaf, payload)


def test_a_replayed_result_is_checked_as_a_result() -> None:
    assert validate("replay/mes-1", messages.result(INSPECTION, STATION, 1, 1))["seq"] == 1


def test_long_texts_are_shortened_before_any_entry_is_lost() -> None:
    document = {"a": "x" * 70_000, "b": ["y"] * 100}
    shortened = json.loads(encode(document))
    assert shortened["a"] == "x" * 255 + "…"
    assert len(shortened["b"]) == 100


def test_a_message_that_cannot_be_made_small_enough_is_refused_with_its_size() -> None:
    with pytest.raises(ValueError, match=f"cannot be shortened to {PAYLOAD_MAX_BYTES}"):
        encode({f"field {number}": "x" * 64 for number in range(2000)})


@pytest.mark.parametrize(
    ("wall_s", "text"),
    [(0.0, "1970-01-01T00:00:00.000Z"), (WALL_S, "2026-11-30T00:53:20.123Z"), (1.9996, "1970-01-01T00:00:01.999Z")],
)
def test_times_are_utc_with_milliseconds(wall_s: float, text: str) -> None:
    assert time_text(wall_s) == text


@given(st.floats(0, 2**48 / 1000 - 1), st.binary(min_size=10, max_size=16))
def test_a_uuid_of_version_7_carries_its_time(wall_s: float, random: bytes) -> None:
    made = uuid.UUID(bytes=uuid7(wall_s, random))
    assert made.variant == uuid.RFC_4122
    assert made.version == 7
    assert made.int >> 80 == int(wall_s * 1000)


def test_a_uuid_is_made_before_1970_too_but_not_without_chance() -> None:
    assert uuid7(-5.0, bytes(10)).startswith(bytes(6))
    with pytest.raises(ValueError, match="needs 10 random bytes, got 9"):
        uuid7(WALL_S, bytes(9))
