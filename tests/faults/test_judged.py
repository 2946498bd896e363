"""The matrix's own judgement: a row that breaks a promise is not passed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.faults.fault import Leftovers, Row
from tests.faults.matrix import chosen, faults, judged
from tests.faults.report import document, markdown, rows_of

HELD = Leftovers(5, 6, 60)
GOOD = Row(
    "15",
    "camera child SIGKILL",
    "kill -9",
    "alarm CameraLost",
    {"0": 97, "302": 3},
    captured=100,
    accounted=100,
    again_s=1.0,
    budget_s=3.0,
    before=HELD,
    after=HELD,
)


def test_a_row_that_keeps_every_promise_is_passed() -> None:
    row = judged(GOOD)
    assert (row.outcome, row.complaint) == ("pass", "")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"accounted": 99}, "1 captured frames without exactly one row"),
        ({"ok_without": 1}, "1 OK without inference"),
        ({"others_lost": 2}, "the other camera lost 2 frames"),
        ({"again_s": 3.1}, "inspecting again after 3.1 s"),
        ({"after": Leftovers(6, 6, 60)}, "left over"),
        ({"after": Leftovers(5, 7, 60)}, "left over"),
        ({"after": Leftovers(5, 6, 61)}, "left over"),
    ],
)
def test_each_broken_promise_is_named(change: dict[str, Any], words: str) -> None:
    row = judged(replace(GOOD, **change))
    assert row.outcome == "FAIL"
    assert words in row.complaint


def test_what_the_host_does_to_all_is_not_held_against_the_other_camera() -> None:
    assert judged(replace(GOOD, others_lost=2, of_host=True)).outcome == "pass"


def test_a_slower_host_has_as_much_more_time() -> None:
    assert judged(replace(GOOD, again_s=5.0, slowness=2.0)).outcome == "pass"


def test_a_run_is_read_back_as_it_was_and_makes_the_page() -> None:
    rows = [judged(GOOD), Row("24", "main SIGSTOP", "kill -STOP", "in a booted machine", outcome="elsewhere")]
    read, machine = rows_of(document(rows, {"CPUs": "2"}))
    assert (read, machine) == (rows, {"CPUs": "2"})
    page = markdown(read, machine)
    assert "1 of 2 passed" in page
    assert "| 15 camera child SIGKILL | kill -9 |" in page


def test_faults_are_chosen_by_number_or_variant() -> None:
    table = faults()
    assert len({fault.name for fault in table}) == len(table)
    assert {fault.name for fault in chosen(table, ["36"], slow=False)} == {"36-ahead", "36-back"}
    assert [fault.name for fault in chosen(table, ["36-back"], slow=False)] == ["36-back"]
    assert not any(fault.is_slow for fault in chosen(table, (), slow=False))
    with pytest.raises(ValueError, match="no fault 99"):
        chosen(table, ["99"], slow=False)


def test_every_number_of_the_issue_is_there() -> None:
    assert {fault.number for fault in faults()} == set(range(1, 46))
