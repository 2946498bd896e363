"""The demo's table and summary: what they count, and that they read well in 100 columns."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from inspectd.camera.boards.scene import TrueBox
from inspectd.demo import summary
from inspectd.demo.score import Score
from inspectd.demo.table import WIDTH, LiveTable, percentile
from inspectd.records import Evaluation

COUNTERS = {"captured": 12, "ok": 6, "notOk": 3, "notDecidable": 1, "undefined": 2, "inFlight": 0, "skipped": 1}


def result(
    camera: str = "top",
    frame_id: int = 1,
    evaluation: int = 1,
    latency_ms: float = 20.0,
    *defects: tuple[str, float],
) -> dict[str, Any]:
    detections = [
        {"className": name, "confidence": score, "bbox": {"x": 1, "y": 1, "w": 9, "h": 9}} for name, score in defects
    ]
    return {
        "acquisition": {"cameraId": camera, "frameId": frame_id},
        "resultState": 1,
        "resultEvaluation": evaluation,
        "latencyMs": latency_ms,
        "resultContent": {"detections": detections},
    }


def table(*results: dict[str, Any]) -> LiveTable:
    live = LiveTable(["top", "side"], min_confidence=0.4)
    for document in results:
        live.add("result", document, 100.0)
    return live


def drawn(thing: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=WIDTH, force_terminal=False, record=True)
    console.print(thing)
    return console.export_text()


def row(text: str, name: str) -> list[str]:
    return next(line.strip("│ ").split() for line in text.splitlines() if line.strip("│ ").startswith(name))


def test_verdicts_are_counted_by_camera_and_for_the_line() -> None:
    live = table(result(), result(evaluation=2), result(evaluation=3), result("side", evaluation=0), result("side"))
    text = drawn(live.render(110.0, 3, 20))
    assert row(text, "camera")[2:7] == ["inspected", "OK", "NotOK", "NotDecidable", "Undefined"]
    assert row(text, "top")[2:7] == ["3", "1", "1", "1", "0"]
    assert row(text, "side")[2:7] == ["2", "1", "0", "0", "1"]
    assert row(text, "all")[2:7] == ["5", "2", "1", "1", "1"]
    assert live.verdicts()[Evaluation.OK] == 2


def test_the_rate_is_that_of_the_last_five_seconds() -> None:
    """At first it is taken over what has passed, and never over less than one second."""
    live = LiveTable(["top"], 0.4)
    live.add("result", result(), 100.0)
    assert live.rate_per_s(100.0) == 1.0
    for tenth in range(1, 200):
        live.add("result", result(), 100.0 + tenth / 10)
    assert live.rate_per_s(119.9) == pytest.approx(10.0)
    assert live.rate_per_s(122.0) == pytest.approx(5.8)
    assert live.rate_per_s(125.0) == 0.0


def test_latency_is_given_as_median_and_95th_percentile() -> None:
    live = table(*(result(latency_ms=float(ms)) for ms in range(1, 101)))
    assert row(drawn(live.render(101.0, 1, 20)), "top")[7:] == ["50", "95"]
    assert percentile([7.0], 50) == percentile([7.0], 95) == 7.0


def test_the_last_defects_stand_first_with_class_confidence_and_picture() -> None:
    """Six defective parts at most; the board and what is below the rule's confidence are not defects."""
    live = table(*(result(frame_id=n, evaluation=2) for n in range(1, 9)))
    live.add("result", result("side", 77, 2, 1.0, ("board", 0.99), ("spur", 0.5), ("open", 0.931), ("short", 0.2)), 1.0)
    lines = drawn(live.render(101.0, 1, 20)).splitlines()
    shown = [line.strip("│ ").split() for line in lines if line.strip("│ ")[:1].isdigit()]
    assert shown[0] == ["77", "side", "open", "0.93", "spur", "0.50"]
    assert [line[0] for line in shown] == ["77", "8", "7", "6", "5", "4"]


def test_a_part_with_many_defects_keeps_to_one_line() -> None:
    defects = [(f"class{number}", 0.9 - number / 100) for number in range(7)]
    text = drawn(table(result("top", 5, 2, 1.0, *defects)).render(101.0, 1, 20))
    assert "class0 0.90    class1 0.89    class2 0.88    and 4 more" in text


def test_every_line_fits_the_width_and_the_table_keeps_its_height() -> None:
    """A table that grows while one looks at it jumps."""
    full = table(*(result(camera, n, n % 4, 1.0, ("mousebite", 0.9)) for n in range(50) for camera in ("top", "side")))
    heights = set()
    for live in (table(), table(result()), full):
        lines = drawn(live.render(101.0, 1, 20)).splitlines()
        assert {len(line) for line in lines} == {WIDTH}
        heights.add(len(lines))
    assert len(heights) == 1
    assert heights.pop() <= 24


def test_the_shares_of_the_bar_fill_it_and_nothing_counted_is_invisible() -> None:
    live = table(*[result()] * 999, result(evaluation=2))
    text = drawn(live.render(101.0, 1, 20))
    assert max(line.count("█") for line in text.splitlines()) == 90
    assert "■ OK 99.9 %    ■ NotOK 0.1 %" in text


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({}, "starting"),
        ({"vision": "Operational", "ready": True, "degraded": False, "reasons": []}, "Operational, ready"),
        ({"vision": "Operational", "ready": True, "degraded": True, "reasons": ["clock"]}, "ready, degraded (clock)"),
        ({"vision": "Error", "ready": False, "reasons": ["defects: no child"]}, "Error, not ready (defects: no child)"),
        ({"vision": "Error", "ready": False, "reasons": ["x" * 500]}, "Error, not ready (xxx"),
    ],
)
def test_the_title_says_the_state_and_its_first_reason(state: dict[str, Any], words: str) -> None:
    live = table()
    if state:
        live.add("state", state, 1.0)
    first_line = drawn(live.render(1.0, 0, 20)).splitlines()[0]
    assert words in first_line
    assert len(first_line) == WIDTH


def test_it_is_up_when_operational_or_when_a_result_came() -> None:
    seen = []
    live = table()
    for vision in (None, "Preoperational", "Error", "Operational"):
        if vision is not None:
            live.add("state", {"vision": vision, "ready": False}, 1.0)
        seen.append(live.is_up)
    assert seen == [False, False, False, True]
    assert table(result()).is_up


def test_a_plain_line_has_the_same_numbers() -> None:
    assert table().line(1.0) == "0 inspected  OK 0, NotOK 0, NotDecidable 0, Undefined 0  0.0/s"
    expected = "2 inspected  OK 1, NotOK 1, NotDecidable 0, Undefined 0  1.0/s  p50 20 ms  p95 40 ms"
    assert table(result(), result(evaluation=2, latency_ms=40.0)).line(102.0) == expected


def test_a_camera_that_nobody_announced_gets_its_row() -> None:
    assert row(drawn(table(result("third")).render(101.0, 1, 20)), "third")[2] == "1"


def test_the_summary_says_whether_the_sum_is_exact() -> None:
    """The sum: captured = ok + notOk + notDecidable + undefined + inFlight, from the daemon's own counters."""
    live = table(result())
    live.add("counters", COUNTERS, 1.0)
    document = summary.summarise(live, None, 10.0, unheard=0)
    assert document["accounting"]["exact"] is True
    expected = "captured 12 = ok 6 + notOk 3 + notDecidable 1 + undefined 2 + inFlight 0: exact"
    assert expected in drawn(summary.text(document))
    live.add("counters", {**COUNTERS, "captured": 13}, 2.0)
    document = summary.summarise(live, None, 10.0, unheard=0)
    assert document["accounting"]["exact"] is False
    assert "NOT EXACT" in drawn(summary.text(document))


def test_the_summary_has_recall_and_false_alarms_by_class_and_by_part() -> None:
    score = Score(0.4)
    truth = (TrueBox("board", 0, 0, 90, 90), TrueBox("open", 1, 1, 9, 9))
    score.add(truth, result("top", 1, 2, 20.0, ("open", 0.9), ("spur", 0.9)))
    score.add(truth, result("top", 2, 1, 20.0))
    document = summary.summarise(table(result()), score, 10.0, unheard=0)
    assert document["truth"]["classes"]["open"] == {"true": 2, "found": 1, "recall": 0.5, "falseAlarms": 0}
    assert document["truth"]["defects"]["falseAlarms"] == 1
    text = drawn(summary.text(document))
    assert row(text, "open") == ["open", "2", "1", "50.0", "%", "0"]
    assert row(text, "spur") == ["spur", "0", "0", "–", "1"]
    assert "missed parts  1 of 2 defective boards got OK (50.0 %)" in text
    assert "false alarms  0 of 0 good boards got NotOK" in text


def test_the_summary_of_nothing_is_honest() -> None:
    document = summary.summarise(table(), None, 0.0, unheard=3)
    assert document["latencyMs"] is None
    assert document["accounting"] is None
    assert document["truth"] is None
    text = drawn(summary.text(document))
    assert "no counters came from the daemon" in text
    assert "3 messages came faster" in text


def test_the_daemons_end_does_not_overwrite_how_the_line_was() -> None:
    """The last picture that stays on the screen said "Preoperational, not ready" of a line that had worked."""
    table = LiveTable(["top"], 0.4)
    table.add("state", {"vision": "Operational", "ready": True}, 0.0)
    table.is_ending = True
    table.add("state", {"vision": "Preoperational", "ready": False}, 1.0)
    assert table.state["vision"] == "Operational"
