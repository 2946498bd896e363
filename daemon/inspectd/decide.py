"""Decides about one frame: outcomes and rules in, one decision out. No clock, no log, no await.

OK is what is left when nothing else applies: every required model is done on this very frame, in time, no fault of
the picture or the daemon, every class found is named by a rule, and every count lies within its limits. What there is
nothing to decide about is never OK:

- no outcome of a required model (also one that was not due): 502;
- no required model at all: 502, for nothing was inspected;
- a class that no rule names: 101;
- rules, but none that looks at a required model: 200. An empty list of rules is not that case: it stands for the
  one rule "any recorded detection is notOk" (100), so that an empty picture is OK under it;
- no part in the picture: a rule with `min_count`, whose code is 202 by custom.

Rules are evaluated as far as their models are done, also beside a fault, so that a result shows what was seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from inspectd.records import (
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
    Region,
    ResultState,
    Rule,
    RuleResult,
    TimedOut,
    Unavailable,
)

_PRECEDENCE: tuple[frozenset[int], ...] = (
    frozenset({Code.PART_ID}),
    frozenset({Code.RECIPE}),
    frozenset({Code.NOT_COMMITTED}),
    frozenset(range(400, 500)),
    frozenset({Code.INTERRUPTED}),
    frozenset({Code.SKIPPED_BY_POLICY}),
    frozenset({Code.NO_FREE_SLOT}),
    frozenset({Code.QUEUE_FULL}),
    frozenset({Code.DEADLINE}),
    frozenset(range(500, 600)),
)
"""MQTT-CONTRACT "Fail-safe": when several faults apply, the first group here speaks. Within a group the picture's and
the daemon's fault comes first, then the required models in YAML order."""

_ABORTED = frozenset(range(300, 400))

_SEVERITY = {
    Evaluation.OK: 0,
    Evaluation.NOT_DECIDABLE: 1,
    Evaluation.UNDEFINED: 2,
    Evaluation.NOT_OK: 3,
}
"""The worst finding wins. No finding is Undefined (the configuration refuses it), and none could make it a pass."""

_CLASSES_IN_DETAILS = 4
"""So many classes are named in the sentence for people; defectCounts has them all."""


@dataclass(frozen=True, slots=True)
class _Finding:
    """Something that speaks against OK, or a fault (evaluation Undefined)."""

    evaluation: Evaluation
    code: int
    details: str


def decide(
    plan: DecisionPlan, outcomes: Mapping[str, Outcome], *, late: bool, interrupted: Interrupted | None
) -> Decision:
    """Decide about one frame.

    `outcomes` by model name; a required model that is missing there counts as unavailable. `late`: the deadline had
    passed when this was called. Faults go by the contract's precedence; among findings the worst wins, and among
    equally bad ones the first: rules in YAML order, then unlisted classes, then "no rule".
    """
    required = tuple(name for name, is_required in plan.models if is_required)
    done = {name: found for name, _ in plan.models if isinstance(found := outcomes.get(name), Done)}
    complete = bool(required) and all(name in done for name in required)
    rules, findings, not_evaluated = _judge(plan, {name: found.detections for name, found in done.items()}, complete)
    fault = min(_faults(required, outcomes, late, interrupted), key=_rank, default=None)
    if fault is not None:
        state = _state_of(fault.code, complete)
    else:
        state = ResultState.COMPLETED
        if not plan.rules or any(rule.model is None or rule.model in required for rule in plan.rules):
            fallback = _Finding(Evaluation.OK, Code.OK, "nothing over the limits")
        else:
            fallback = _Finding(Evaluation.NOT_DECIDABLE, Code.GREY_BAND, "no rule looks at a required model")
        # max() keeps the first of equals; an unlisted class that is allowed (101) still says more than "nothing".
        findings.append(fallback)
    spoken = fault or max(findings, key=lambda finding: _SEVERITY[finding.evaluation])
    return Decision(state, spoken.evaluation, spoken.code, spoken.details, rules, not_evaluated)


def uncommitted(decision: Decision, reason: str) -> Decision:
    """Give what is said of a frame whose record could not be committed: 700, except that 601 and 600 stand above it."""
    told = _Finding(Evaluation.UNDEFINED, Code.NOT_COMMITTED, reason)
    if _rank(_Finding(decision.evaluation, decision.code, "")) < _rank(told):
        return decision
    state = ResultState.FAILED
    return Decision(state, told.evaluation, told.code, reason, decision.rules, decision.not_evaluated)


def _rank(fault: _Finding) -> int:
    return next((rank for rank, codes in enumerate(_PRECEDENCE) if fault.code in codes), len(_PRECEDENCE))


def _state_of(code: int, complete: bool) -> ResultState:
    if code == Code.DEADLINE and complete:
        return ResultState.COMPLETED
    return ResultState.ABORTED if code in _ABORTED else ResultState.FAILED


def _faults(
    required: tuple[str, ...], outcomes: Mapping[str, Outcome], late: bool, interrupted: Interrupted | None
) -> Iterator[_Finding]:
    undefined = Evaluation.UNDEFINED
    if interrupted is not None:
        yield _Finding(undefined, interrupted.code, interrupted.reason)
    for name in required:
        outcome = outcomes.get(name) or Unavailable("the model gave no outcome for this frame")
        if not isinstance(outcome, Done):
            yield _Finding(undefined, _code_of(outcome), f"{name}: {outcome.reason}")
    if not required:
        yield _Finding(undefined, Code.MODEL_UNAVAILABLE, "no required model: nothing was inspected")
    if late:
        yield _Finding(undefined, Code.DEADLINE, "decided after the deadline")


def _code_of(outcome: TimedOut | Dropped | Failed | Unavailable) -> Code:
    if isinstance(outcome, TimedOut):
        return Code.DEADLINE if outcome.deadline else Code.MODEL_TIMEOUT
    return Code.MODEL_UNAVAILABLE if isinstance(outcome, Unavailable) else outcome.code


def _judge(
    plan: DecisionPlan, found: Mapping[str, tuple[Detection, ...]], complete: bool
) -> tuple[tuple[RuleResult, ...], list[_Finding], tuple[str, ...]]:
    """Evaluate the rules. A rule for any model needs every required one, and takes what the optional ones found."""
    results: list[RuleResult] = []
    findings: list[_Finding] = []
    not_evaluated: list[str] = []
    for rule in plan.rules:
        if not (complete if rule.model is None else rule.model in found):
            not_evaluated.append(rule.id)
            continue
        models = found if rule.model is None else (rule.model,)
        counted = [detection for model in models for detection in _matching(rule, found[model])]
        content = rule.min_count <= len(counted) and (rule.max_count is None or len(counted) <= rule.max_count)
        evaluation = Evaluation.OK if content else rule.evaluation
        worst = max((detection.confidence for detection in counted), default=None)
        results.append(RuleResult(rule.id, len(counted), worst, evaluation))
        if evaluation is not Evaluation.OK:
            findings.append(_Finding(evaluation, rule.code, _exceeded(rule, counted)))
    if not plan.rules:
        stray = [detection for detections in found.values() for detection in detections]
        evaluation, code, cause = Evaluation.NOT_OK, Code.RULE_EXCEEDED, "without rules none is allowed"
    else:
        stray = [item for model, detections in found.items() for item in _unlisted(plan.rules, model, detections)]
        evaluation, code, cause = plan.unlisted, Code.UNLISTED_CLASS, "no rule names it"
    if stray:
        findings.append(_Finding(evaluation, code, f"{_counts(stray)}: {cause}"))
    return tuple(results), findings, tuple(not_evaluated)


def _unlisted(rules: Iterable[Rule], model: str, detections: Iterable[Detection]) -> Iterator[Detection]:
    """Give detections of a class that no rule names, whatever the rule's confidence, area or region."""
    named: set[str] = set()
    for rule in rules:
        if rule.model is None or rule.model == model:
            if rule.classes is None:
                return
            named |= _canonical_set(rule.classes)
    yield from (detection for detection in detections if _canonical(detection.class_name) not in named)


@lru_cache(maxsize=4096)
def _canonical(class_name: str) -> str:
    return class_name.replace(" ", "_")


@lru_cache(maxsize=1024)
def _canonical_set(classes: frozenset[str]) -> frozenset[str]:
    return frozenset(map(_canonical, classes))


def _matching(rule: Rule, detections: Iterable[Detection]) -> Iterator[Detection]:
    classes = None if rule.classes is None else _canonical_set(rule.classes)
    for detection in detections:
        box = detection.box
        if (
            (classes is None or _canonical(detection.class_name) in classes)
            and detection.confidence >= rule.min_confidence
            and box.w * box.h >= rule.min_area_px
            and (rule.region is None or _contains(rule.region, box.x + box.w / 2, box.y + box.h / 2))
        ):
            yield detection


def _contains(region: Region, x: float, y: float) -> bool:
    """Even-odd rule; a point on the outline belongs to the region, so that no defect falls between two of them."""
    inside = False
    for (x1, y1), (x2, y2) in zip(region, (*region[1:], *region[:1]), strict=True):
        cross = (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1)
        if cross == 0 and min(x1, x2) <= x <= max(x1, x2) and min(y1, y2) <= y <= max(y1, y2):
            return True
        if (y1 > y) != (y2 > y) and (cross > 0) == (y2 > y1):
            inside = not inside
    return inside


def _exceeded(rule: Rule, counted: list[Detection]) -> str:
    return f"{_counts(counted) if counted else 'nothing found'}: rule {rule.id} {_limits(rule)}"


def _limits(rule: Rule) -> str:
    low, high = rule.min_count, rule.max_count
    if high is None:
        return f"needs at least {low}"
    if low == high:
        return f"needs {low}" if low else "allows 0"
    return f"allows {low} to {high}"


def _counts(detections: Iterable[Detection]) -> str:
    """`2 × short, 1 × open`, most frequent first."""
    ranked = Counter(item.class_name for item in detections).most_common()
    text = ", ".join(f"{count} × {name}" for name, count in ranked[:_CLASSES_IN_DETAILS])
    rest = sum(count for _, count in ranked[_CLASSES_IN_DETAILS:])
    return f"{text} and {rest} more" if rest else text
