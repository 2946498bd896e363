"""From the YAML's rules to the plan of one camera's decision."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.config_case import BASE, Case, case, changed

from inspectd.config.rules import decision_plan
from inspectd.records import Code, Evaluation, Rule

BOARD = "{id: board, model: defects, class: mouse bite, min_confidence: 0.5, min_count: 1, max_count: 1, "
HERE = "{id: here, camera: top, region: [[0, 0], [9, 0], [9, 9]], min_area_px: 20, max_count: null, "
MORE = f"""\
      evaluation: notOk
    - {BOARD} evaluation: notDecidable, code: 202}}
    - {{id: side-only, camera: side, evaluation: notOk, code: 120}}
    - {HERE} evaluation: notDecidable}}
"""
SIDE = "  side: {source: {kind: simulator}, fps: 10, models: [extra, defects]}\nmodels:\n"
EXTRA = "  extra: {task: detect, path: models/pcb.xml, required: false}\ndecision:\n"


@pytest.fixture
def line3(tmp_path: Path) -> Case:
    return case(tmp_path)


def text() -> str:
    return changed(
        "      evaluation: notOk\n", MORE, changed("models:\n  d", SIDE + "  d", changed("decision:\n", EXTRA))
    )


def test_rules_keep_their_order_and_only_those_of_the_camera_are_there(line3: Case) -> None:
    configuration = line3.load(text()).configuration
    assert [rule.id for rule in decision_plan(configuration, "top").rules] == ["electrical", "board", "here"]
    assert [rule.id for rule in decision_plan(configuration, "side").rules] == ["electrical", "board", "side-only"]


def test_a_rule_is_taken_over_value_by_value(line3: Case) -> None:
    electrical, board, here = decision_plan(line3.load(text()).configuration, "top").rules
    assert electrical == Rule(
        "electrical", None, frozenset({"open", "short"}), 0.0, 0, 0, Evaluation.NOT_OK, Code.RULE_EXCEEDED
    )
    assert board == Rule("board", "defects", frozenset({"mouse bite"}), 0.5, 1, 1, Evaluation.NOT_DECIDABLE, 202)
    region = ((0.0, 0.0), (9.0, 0.0), (9.0, 9.0))
    assert here == Rule("here", None, None, 0.0, 0, None, Evaluation.NOT_DECIDABLE, Code.GREY_BAND, 20.0, region)


def test_models_are_in_the_camera_s_own_order(line3: Case) -> None:
    """The first required one speaks when several fail."""
    configuration = line3.load(text()).configuration
    assert decision_plan(configuration, "side").models == (("extra", False), ("defects", True))


def test_a_rule_for_a_model_that_the_camera_does_not_run_is_left_out(line3: Case) -> None:
    more = text() + "    - {id: x, model: extra, evaluation: notOk}\n"
    configuration = line3.load(more).configuration
    assert "x" not in [rule.id for rule in decision_plan(configuration, "top").rules]
    assert "x" in [rule.id for rule in decision_plan(configuration, "side").rules]


def test_without_rules_there_are_none_and_decide_takes_every_detection_for_not_ok(line3: Case) -> None:
    plan = decision_plan(line3.load(BASE[: BASE.index("decision:")]).configuration, "top")
    assert plan.rules == ()
    assert plan.unlisted is Evaluation.NOT_OK


@pytest.mark.parametrize("word", ["ok", "notOk", "notDecidable"])
def test_the_evaluation_of_unlisted_classes_is_taken_over(line3: Case, word: str) -> None:
    configuration = line3.load(changed("decision:\n", f"decision:\n  unlisted: {word}\n")).configuration
    assert decision_plan(configuration, "top").unlisted.word == word
