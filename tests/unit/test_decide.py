"""What is decided of outcomes and rules: OK is what is left when nothing else applies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspectd.decide import decide, uncommitted
from inspectd.records import (
    Box,
    Code,
    Decision,
    DecisionPlan,
    Detection,
    Done,
    Dropped,
    Evaluation,
    Failed,
    Interrupted,
    Outcome,
    ResultState,
    Rule,
    TimedOut,
    Unavailable,
)

OK, NOT_OK, NOT_DECIDABLE, UNDEFINED = (
    Evaluation.OK,
    Evaluation.NOT_OK,
    Evaluation.NOT_DECIDABLE,
    Evaluation.UNDEFINED,
)
COMPLETED, ABORTED, FAILED = ResultState.COMPLETED, ResultState.ABORTED, ResultState.FAILED


def rule(
    id_: str,
    *classes: str,
    model: str | None = "defects",
    counts: tuple[int, int | None] = (0, 0),
    at: float = 0.4,
    says: tuple[Evaluation, int] = (NOT_OK, 110),
) -> Rule:
    return Rule(id_, model, frozenset(classes) or None, at, counts[0], counts[1], says[0], says[1])


BOARD = rule("board", "board", counts=(1, 1), at=0.5, says=(NOT_DECIDABLE, 202))
ELECTRICAL = rule("electrical", "open", "short")
COSMETIC = rule("cosmetic", "spur", "mouse bite", at=0.5, says=(NOT_OK, 120))
DOUBT = rule("doubt", "open", "short", "spur", "mouse bite", at=0.25, says=(NOT_DECIDABLE, 210))
CODE_RULE = rule("code", "bad", model="code", says=(NOT_OK, 130))
RULES = (BOARD, ELECTRICAL, COSMETIC, DOUBT)


def plan(*rules: Rule, models: Mapping[str, bool] | None = None, unlisted: Evaluation = NOT_OK) -> DecisionPlan:
    return DecisionPlan(tuple((models or {"defects": True}).items()), rules, unlisted)


def found(text: str, model: str = "defects", box: Box | None = None) -> tuple[Detection, ...]:
    """Read `open 0.9, board 0.8`; a name may have a space."""
    parts = [part.strip().rsplit(" ", 1) for part in text.split(",") if part.strip()]
    return tuple(Detection(0, name, float(score), box or Box(10, 10, 8, 5), model) for name, score in parts)


def done(text: str = "", model: str = "defects") -> Done:
    return Done(found(text, model), 0.02)


def decided(
    of: DecisionPlan,
    *,
    late: bool = False,
    interrupted: Interrupted | None = None,
    **outcomes: Outcome,
) -> Decision:
    return decide(of, outcomes, late=late, interrupted=interrupted)


def facts(decision: Decision) -> tuple[ResultState, Evaluation, int]:
    return decision.state, decision.evaluation, decision.code


GONE = Unavailable("breaker open")
TWO_REQUIRED = {"defects": True, "code": True}
ONE_OPTIONAL = {"defects": True, "code": False}

FULL, BARE = plan(*RULES), plan()
TWO = plan(*RULES, CODE_RULE, models=TWO_REQUIRED)
NONE_REQUIRED = plan(*RULES, models={"defects": False})
BLIND = plan(CODE_RULE, models=ONE_OPTIONAL)
DIRT_DOUBTED, DIRT_ALLOWED = replace(FULL, unlisted=NOT_DECIDABLE), replace(FULL, unlisted=OK)
BLIND_ALLOWED = replace(BLIND, unlisted=OK)
EMPTY = DecisionPlan((), (), NOT_OK)

# the last column: resultState, resultEvaluation, resultEvaluationCode
NOTHING_TO_DECIDE = [
    # what there is nothing of               plan           found, by model                                on the wire
    ("a good part, for comparison",          FULL,          {"defects": "board 0.9"},                      (1, 1, 0)),
    ("no part in the picture",               FULL,          {"defects": ""},                               (1, 3, 202)),
    ("one part too many",                    FULL,          {"defects": "board 0.9, board 0.8"},           (1, 3, 202)),
    ("no outcome of a required model",       FULL,          {},                                            (4, 0, 502)),
    ("one of two required ones was not due", TWO,           {"defects": "board 0.9"},                      (4, 0, 502)),
    ("an outcome of a foreign model only",   FULL,          {"other": "board 0.9"},                        (4, 0, 502)),
    ("no required model",                    NONE_REQUIRED, {"defects": "board 0.9"},                      (4, 0, 502)),
    ("no model at all",                      EMPTY,         {},                                            (4, 0, 502)),
    ("no rule for a required model",         BLIND,         {"defects": "", "code": ""},                   (1, 3, 200)),
    ("likewise, its finding allowed",        BLIND_ALLOWED, {"defects": "dirt 0.9"},                       (1, 3, 200)),
    ("likewise, the optional one is bad",    BLIND,         {"defects": "", "code": "bad 0.9"},            (1, 2, 130)),
    ("no rules: implicit one, content",      BARE,          {"defects": ""},                               (1, 1, 0)),
    ("no rules: implicit one, exceeded",     BARE,          {"defects": "open 0.1"},                       (1, 2, 100)),
    ("a class that no rule names",           FULL,          {"defects": "board 0.9, dirt 0.1"},            (1, 2, 101)),
    ("such a class, in doubt",               DIRT_DOUBTED,  {"defects": "board 0.9, dirt 0.1"},            (1, 3, 101)),
    ("such a class, allowed",                DIRT_ALLOWED,  {"defects": "board 0.9, dirt 0.1"},            (1, 1, 101)),
    ("a class named for another model only", TWO,           {"defects": "board 0.9, bad 0.9", "code": ""}, (1, 2, 101)),
]  # fmt: skip


@pytest.mark.parametrize(("what", "of", "seen", "expected"), NOTHING_TO_DECIDE)
def test_nothing_to_decide_is_not_ok(
    what: str, of: DecisionPlan, seen: Mapping[str, str], expected: tuple[int, int, int]
) -> None:
    """DESIGN invariant 1: what was not looked at, or not judged, is never good, and says so by its code."""
    outcomes = {model: done(text, model) for model, text in seen.items()}
    assert facts(decide(of, outcomes, late=False, interrupted=None)) == expected, what


FAULTS = [
    # required model's outcome                                     state    code
    (TimedOut(0.15, 2, "no result in 0.15 s"),                     FAILED,  501),
    (TimedOut(0.3, 1, "deadline", deadline=True),                  ABORTED, 300),
    (Dropped(Code.QUEUE_FULL, "8 frames waited"),                  ABORTED, 301),
    (Dropped(Code.SKIPPED_BY_POLICY, "every 2nd"),                 ABORTED, 303),
    (Dropped(Code.NO_FREE_SLOT, "12 slots in use"),                ABORTED, 304),
    (Failed(Code.MODEL_ERROR, "out of resources"),                 FAILED,  500),
    (Failed(Code.MODEL_OUTPUT, "3 scores are not finite"),         FAILED,  503),
    (Unavailable("breaker open"),                                  FAILED,  502),
]  # fmt: skip


@pytest.mark.parametrize(("outcome", "state", "code"), FAULTS)
def test_a_required_model_that_is_not_done_makes_the_frame_undefined(
    outcome: TimedOut | Dropped | Failed | Unavailable, state: ResultState, code: int
) -> None:
    """A fault is never an empty list of detections; the sentence names the model."""
    decision = decided(plan(*RULES), defects=outcome)
    assert facts(decision) == (state, UNDEFINED, code)
    assert decision.details == f"defects: {outcome.reason}"
    assert decision.not_evaluated == ("board", "electrical", "cosmetic", "doubt")


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (302, ABORTED),
        (303, ABORTED),
        (304, ABORTED),
        *((code, FAILED) for code in (400, 401, 402, 403, 404, 405, 600, 601)),
    ],
)
def test_a_fault_of_the_picture_or_the_daemon_stands_above_what_the_models_found(code: int, state: ResultState) -> None:
    fault = Interrupted(Code(code), "a reason")
    decision = decided(plan(*RULES), interrupted=fault, defects=done("board 0.9, short 0.9"))
    assert facts(decision) == (state, UNDEFINED, code)
    assert decision.details == "a reason"


PRECEDENCE = [601, 600, 700, 400, 302, 303, 304, 301, 300, 500]


@pytest.mark.parametrize(("first", "second"), list(combinations(PRECEDENCE, 2)))
def test_of_two_faults_the_contracts_first_speaks(first: int, second: int) -> None:
    """601, 600, 700; 4xx; 302; 303, 304, 301; 300; 5xx, whoever reports which."""
    for daemon, model in ((first, second), (second, first)):
        interrupted, outcome = Interrupted(Code(daemon), ""), Dropped(Code(model), "")
        assert decided(plan(*RULES), interrupted=interrupted, defects=outcome).code == first
    both: dict[str, Outcome] = {"defects": Dropped(Code(second), ""), "code": Dropped(Code(first), "")}
    assert decide(plan(models=TWO_REQUIRED), both, late=False, interrupted=None).code == first


@pytest.mark.parametrize("code", PRECEDENCE)
def test_a_passed_deadline_yields_to_all_but_a_models_fault(code: int) -> None:
    decision = decided(plan(*RULES), late=True, defects=Dropped(Code(code), ""))
    assert decision.code == (300 if code == 500 else code)
    assert decision.evaluation is UNDEFINED


def test_of_two_failed_models_the_first_in_yaml_order_speaks() -> None:
    """Not the lower code: the order is the engineer's."""
    both: dict[str, Outcome] = {"defects": Failed(Code.MODEL_ERROR, "x"), "code": GONE}
    for models, code in ((("defects", "code"), 500), (("code", "defects"), 502)):
        of = plan(models=dict.fromkeys(models, True))
        assert decide(of, both, late=False, interrupted=None).code == code


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        ({"defects": done("board 0.9"), "code": done()}, COMPLETED),
        ({"defects": done("board 0.9")}, ABORTED),
        ({"defects": done("board 0.9"), "code": TimedOut(0.3, 1, "", deadline=True)}, ABORTED),
        ({}, ABORTED),
    ],
)
def test_a_late_frame_is_completed_only_if_every_required_model_is_done(
    outcomes: Mapping[str, Outcome], state: ResultState
) -> None:
    decision = decide(plan(*RULES, models=TWO_REQUIRED), outcomes, late=True, interrupted=None)
    assert facts(decision) == (state, UNDEFINED, 300)


RULES_TABLE = [
    # what the model found                     evaluation     code  details
    ("board 0.9",                              OK,            0,    "nothing over the limits"),
    ("board 0.9, short 0.41",                  NOT_OK,        110,  "1 × short: rule electrical allows 0"),
    ("board 0.9, short 0.4",                   NOT_OK,        110,  "1 × short: rule electrical allows 0"),
    ("board 0.9, short 0.39",                  NOT_DECIDABLE, 210,  "1 × short: rule doubt allows 0"),
    ("board 0.9, short 0.24",                  OK,            0,    "nothing over the limits"),
    ("board 0.9, open 0.5, short 0.6, short 0.7", NOT_OK,     110,  "2 × short, 1 × open: rule electrical allows 0"),
    ("board 0.9, spur 0.9",                    NOT_OK,        120,  "1 × spur: rule cosmetic allows 0"),
    ("board 0.9, spur 0.9, open 0.9",          NOT_OK,        110,  "1 × open: rule electrical allows 0"),
    ("board 0.9, mouse_bite 0.9",              NOT_OK,        120,  "1 × mouse_bite: rule cosmetic allows 0"),
    ("board 0.9, mouse bite 0.9",              NOT_OK,        120,  "1 × mouse bite: rule cosmetic allows 0"),
    ("short 0.9",                              NOT_OK,        110,  "1 × short: rule electrical allows 0"),
    ("short 0.3",                              NOT_DECIDABLE, 202,  "nothing found: rule board needs 1"),
    ("board 0.9, dirt 0.2, short 0.3",         NOT_OK,        101,  "1 × dirt: no rule names it"),
    ("board 0.9, dirt 0.2, short 0.9",         NOT_OK,        110,  "1 × short: rule electrical allows 0"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "evaluation", "code", "details"), RULES_TABLE)
def test_the_worst_finding_wins_and_the_first_rule_among_equals(
    text: str, evaluation: Evaluation, code: int, details: str
) -> None:
    """NotOk over notDecidable over ok. A named class below every rule's confidence is not unlisted."""
    decision = decided(plan(*RULES), defects=done(text))
    assert facts(decision) == (COMPLETED, evaluation, code)
    assert decision.details == details


@pytest.mark.parametrize(
    ("counts", "number", "details"),
    [
        ((0, 0), 0, None),
        ((0, 0), 1, "1 × via: rule r allows 0"),
        ((0, 2), 2, None),
        ((0, 2), 3, "3 × via: rule r allows 0 to 2"),
        ((4, 4), 3, "3 × via: rule r needs 4"),
        ((4, 4), 5, "5 × via: rule r needs 4"),
        ((2, 3), 1, "1 × via: rule r allows 2 to 3"),
        ((2, None), 99, None),
        ((2, None), 1, "1 × via: rule r needs at least 2"),
        ((1, None), 0, "nothing found: rule r needs at least 1"),
        ((0, None), 99, None),
    ],
)
def test_a_count_outside_its_limits_speaks_in_a_sentence(
    counts: tuple[int, int | None], number: int, details: str | None
) -> None:
    decision = decided(plan(rule("r", "via", counts=counts)), defects=Done(found("via 0.9") * number, 0.01))
    assert decision.details == (details or "nothing over the limits")
    assert decision.rules[0].count == number
    assert decision.evaluation is (NOT_OK if details else OK)


SQUARE = ((0.0, 0.0), (100.0, 0.0), (100.0, 100.0), (0.0, 100.0))
NOTCHED = ((0.0, 0.0), (100.0, 0.0), (100.0, 100.0), (50.0, 20.0), (0.0, 100.0))


@pytest.mark.parametrize(
    ("region", "centre", "inside"),
    [
        (SQUARE, (50, 50), True),
        (SQUARE, (150, 50), False),
        (SQUARE, (-1, 50), False),
        (SQUARE, (50, 101), False),
        (SQUARE, (0, 0), True),
        (SQUARE, (100, 50), True),
        (SQUARE, (50, 100), True),
        (SQUARE, (200, 0), False),
        (tuple(reversed(SQUARE)), (50, 50), True),
        (tuple(reversed(SQUARE)), (150, 50), False),
        (NOTCHED, (50, 60), False),
        (NOTCHED, (50, 10), True),
        (NOTCHED, (10, 60), True),
        (NOTCHED, (95, 80), True),
    ],
)
def test_a_region_takes_detections_by_their_centre_outline_included(
    region: tuple[tuple[float, float], ...], centre: tuple[float, float], inside: bool
) -> None:
    limited = replace(ELECTRICAL, region=region)
    box = Box(centre[0] - 4, centre[1] - 4, 8, 8)
    decision = decided(plan(limited), defects=Done(found("open 0.9", box=box), 0.01))
    assert decision.evaluation is (NOT_OK if inside else OK)


@pytest.mark.parametrize(("area", "counted"), [(39.9, 1), (40.0, 1), (40.1, 0)])
def test_the_smallest_area_counts_in_px_of_the_box(area: float, counted: int) -> None:
    """Boxes here are 8 × 5 px. A smaller one is not counted, but its class is named all the same."""
    decision = decided(plan(replace(ELECTRICAL, min_area_px=area)), defects=done("open 0.9"))
    assert decision.rules[0].count == counted
    assert decision.evaluation is (NOT_OK if counted else OK)


def test_every_rule_is_reported_also_those_that_were_content() -> None:
    decision = decided(plan(*RULES), defects=done("board 0.9, board 0.7, short 0.3"))
    assert [(one.id, one.count, one.worst_confidence, one.evaluation) for one in decision.rules] == [
        ("board", 2, 0.9, NOT_DECIDABLE),
        ("electrical", 0, None, OK),
        ("cosmetic", 0, None, OK),
        ("doubt", 1, 0.3, NOT_DECIDABLE),
    ]


def test_an_optional_model_that_failed_leaves_the_decision_to_the_rest() -> None:
    """Its rules are not evaluated, and say so."""
    decision = decided(plan(*RULES, CODE_RULE, models=ONE_OPTIONAL), defects=done("board 0.9"), code=GONE)
    assert facts(decision) == (COMPLETED, OK, 0)
    assert decision.not_evaluated == ("code",)


def test_a_rule_for_any_model_counts_over_all_of_them_and_needs_the_required_ones() -> None:
    anything = rule("any", model=None, counts=(0, 1))
    of = plan(anything, models=ONE_OPTIONAL)
    assert decided(of, defects=done("a 0.9"), code=done("b 0.9", "code")).code == 110
    assert decided(of, defects=done("a 0.9"), code=GONE).evaluation is OK
    assert decided(of, code=done("b 0.9", "code")).not_evaluated == ("any",)


def test_a_rule_without_classes_names_all_of_its_model() -> None:
    assert decided(plan(rule("all", at=0.5)), defects=done("whatever 0.4")).evaluation is OK


def test_the_sentence_stays_short() -> None:
    decision = decided(plan(rule("all")), defects=done("open 0.9, open 0.9, a 0.9, b 0.9, c 0.9, d 0.9, e 0.9"))
    assert decision.details == "2 × open, 1 × a, 1 × b, 1 × c and 2 more: rule all allows 0"


@pytest.mark.parametrize(("before", "after"), [(0, 700), (110, 700), (502, 700), (405, 700), (600, 600), (601, 601)])
def test_what_could_not_be_committed_says_so_whatever_was_computed(before: int, after: int) -> None:
    """Only the faults above 700 in the contract's order keep their code."""
    decision = Decision(COMPLETED if before < 200 else FAILED, OK if before == 0 else UNDEFINED, before, "", ())
    told = uncommitted(decision, "no commit for 2.3 s")
    assert facts(told) == (FAILED, UNDEFINED, after)


names = st.sampled_from(["open", "short", "mouse bite", "mouse_bite", "dirt", "board"])
models = st.sampled_from(["defects", "code"])
evaluations = st.sampled_from([NOT_OK, NOT_DECIDABLE])
unlisted = st.sampled_from([OK, NOT_OK, NOT_DECIDABLE])
boxes = st.builds(Box, *[st.floats(0, 200)] * 4)
detections = st.builds(Detection, st.just(0), names, st.floats(0, 1), boxes, st.just("defects"))
regions = st.none() | st.lists(st.tuples(st.floats(0, 200), st.floats(0, 200)), min_size=3, max_size=6).map(tuple)


@st.composite
def any_rule(draw: st.DrawFn, least: st.SearchStrategy[int] | None = None) -> Rule:
    low = draw(least if least is not None else st.integers(0, 2))
    return Rule(
        draw(st.sampled_from("abcd")),
        draw(st.none() | models),
        draw(st.none() | st.frozensets(names, min_size=1)),
        draw(st.floats(0, 1)),
        low,
        draw(st.none() | st.integers(low, 4)),
        draw(evaluations),
        draw(st.integers(110, 299)),
        draw(st.floats(0, 200)),
        draw(regions),
    )


def any_plan(rules: st.SearchStrategy[Rule]) -> st.SearchStrategy[DecisionPlan]:
    pairs = st.lists(st.tuples(models, st.booleans()), unique_by=lambda pair: pair[0]).map(tuple)
    return st.builds(DecisionPlan, pairs, st.lists(rules, max_size=4).map(tuple), unlisted)


any_done = st.builds(Done, st.lists(detections, max_size=6).map(tuple), st.just(0.01))
any_outcome = any_done | st.sampled_from([outcome for outcome, _, _ in FAULTS])
any_outcomes = st.dictionaries(models, any_outcome)
interruptions = st.none() | st.builds(Interrupted, st.sampled_from(Code), st.just("reason"))


@given(any_plan(any_rule()), any_outcomes, st.booleans(), interruptions)
def test_ok_needs_every_required_models_inference_in_time_and_without_fault(
    of: DecisionPlan, outcomes: dict[str, Outcome], late: bool, interrupted: Interrupted | None
) -> None:
    """And there is a required model, and a fault is Undefined, and nothing but a fault is."""
    decision = decide(of, outcomes, late=late, interrupted=interrupted)
    required = [name for name, is_required in of.models if is_required]
    sound = bool(required) and all(isinstance(outcomes.get(name), Done) for name in required)
    sound = sound and not late and interrupted is None
    assert (decision.evaluation is UNDEFINED) is not sound
    if decision.evaluation is OK:
        assert decision.state is COMPLETED
        assert decision.code in (0, 101)
        assert all(one.evaluation is OK for one in decision.rules)
    reported = [one.id for one in decision.rules] + list(decision.not_evaluated)
    assert sorted(reported) == sorted(one.id for one in of.rules)


@given(any_plan(any_rule(st.just(0))), st.lists(detections, max_size=5), detections)
def test_one_more_detection_makes_no_part_better_unless_a_rule_asks_for_some(
    of: DecisionPlan, seen: list[Detection], more: Detection
) -> None:
    """With every min_count 0 more found is never less bad."""
    severity = {OK: 0, NOT_DECIDABLE: 1, NOT_OK: 2, UNDEFINED: 3}
    before = decided(of, defects=Done(tuple(seen), 0.01), code=done())
    after = decided(of, defects=Done((*seen, more), 0.01), code=done())
    assert severity[after.evaluation] >= severity[before.evaluation]


@given(any_plan(any_rule()), any_outcomes)
def test_the_order_in_which_answers_came_changes_nothing(of: DecisionPlan, outcomes: dict[str, Outcome]) -> None:
    turned = dict(reversed(outcomes.items()))
    assert decide(of, outcomes, late=False, interrupted=None) == decide(of, turned, late=False, interrupted=None)
