"""From the YAML's rules to what decide() needs for one camera. Pure."""

from __future__ import annotations

from inspectd.config.schema import Configuration
from inspectd.config.schema_rules import RuleSpec
from inspectd.records import DecisionPlan, Evaluation, Rule


def decision_plan(configuration: Configuration, camera_id: str) -> DecisionPlan:
    """Give the models and the rules that apply to a camera, in the order of the YAML.

    Without any rules in the file the plan has none: decide() then takes every recorded detection for notOk. A file
    that has rules but none for this camera was refused by `load`. Labels stay out: the wire keeps the models' names.
    """
    camera = configuration.cameras[camera_id]
    specs = configuration.decision.rules
    return DecisionPlan(
        models=tuple((name, configuration.models[name].required) for name in camera.models),
        rules=tuple(_rule(spec) for spec in specs if _applies(spec, camera_id, camera.models)),
        unlisted=Evaluation.of_word(configuration.decision.unlisted),
    )


def _applies(spec: RuleSpec, camera_id: str, models: tuple[str, ...]) -> bool:
    return spec.camera in (None, camera_id) and (spec.model is None or spec.model in models)


def _rule(spec: RuleSpec) -> Rule:
    return Rule(
        id=spec.id,
        model=spec.model,
        classes=None if spec.class_ is None else frozenset(spec.class_),
        min_confidence=0.0 if spec.min_confidence is None else spec.min_confidence,
        min_count=spec.min_count,
        max_count=spec.max_count,
        evaluation=Evaluation.of_word(spec.evaluation),
        code=spec.result_code,
        min_area_px=spec.min_area_px,
        region=spec.region,
    )
