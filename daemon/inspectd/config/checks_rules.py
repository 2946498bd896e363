"""Cross-checks of rules with cameras, models and classes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from inspectd.config.faults import Fault, listed, shown
from inspectd.config.schema import Configuration
from inspectd.config.schema_rules import RuleSpec
from inspectd.config.suggest import or_choice


@dataclass(frozen=True, slots=True)
class Known:
    """What else a check needs to know."""

    cameras: Collection[str]
    """Names in the file, also of cameras that are wrong in themselves."""
    models: Collection[str]
    classes: Mapping[str, tuple[str, ...]]
    """Model → class names, of configuration or file; a model is left out when neither tells."""


def canonical(class_name: str) -> str:
    """Class names compare with space = `_`."""
    return class_name.replace(" ", "_")


def rule_checks(configuration: Configuration, known: Known) -> Iterator[Fault]:
    """Give every fault and warning of this kind."""
    first: dict[str, int] = {}
    for place, rule in enumerate(configuration.decision.rules):
        key = ("decision", "rules", place)
        if rule.id in first:
            yield Fault((*key, "id"), f"{shown(rule.id)} is the id of another rule too; each needs its own")
        first.setdefault(rule.id, place)
        if rule.camera is not None and rule.camera not in known.cameras:
            yield Fault(
                (*key, "camera"), f"there is no camera {shown(rule.camera)}{or_choice(rule.camera, known.cameras)}"
            )
        if rule.model is not None and rule.model not in known.models:
            yield Fault((*key, "model"), f"there is no model {shown(rule.model)}{or_choice(rule.model, known.models)}")
        if rule.region is not None and rule.camera is None:
            yield Fault((*key, "region"), "needs `camera`: px of which camera's picture?", depends=((*key, "camera"),))
        if rule.region is not None and len(rule.region) < 3:
            yield Fault((*key, "region"), f"has {len(rule.region)} points; a polygon has at least 3, as [[x, y], …]")
        yield from _rule_and_models(configuration, place, known)
    for camera_id in configuration.cameras if configuration.decision.rules else ():
        yield from _nothing_to_decide(configuration, camera_id)
    yield from _unlisted(configuration, known)


def applies(configuration: Configuration, rule: RuleSpec) -> list[str]:
    """Give the models whose detections a rule counts, in the order of the file; unknown names are left out."""
    cameras = [camera for name, camera in configuration.cameras.items() if rule.camera in (None, name)]
    used = {name for camera in cameras for name in camera.models}
    return [name for name in configuration.models if name in used and rule.model in (None, name)]


def _rule_and_models(configuration: Configuration, place: int, known: Known) -> Iterator[Fault]:
    rule, key = configuration.decision.rules[place], ("decision", "rules", place)
    models = applies(configuration, rule)
    if rule.camera in configuration.cameras and rule.model in configuration.models and not models:
        yield Fault(
            (*key, "model"),
            f"camera {rule.camera} does not run model {rule.model}, so that the rule never counts anything; add the "
            "model to the camera or correct the rule",
            depends=(("cameras", str(rule.camera), "models"),),
        )
    if rule.model in configuration.models:
        models = [str(rule.model)]  # what is said about it does not depend on who uses it
    for name in models:
        lowest = configuration.models[name].confidence
        if rule.min_confidence is not None and rule.min_confidence < lowest:
            yield Fault(
                (*key, "min_confidence"),
                f"{rule.min_confidence:g} is below the `confidence` {lowest:g} of model {name}, under which nothing is "
                "recorded; raise this or lower that",
                depends=(("models", name, "confidence"),),
            )
    if not models or any(name not in known.classes for name in models):
        return
    classes = [name for model in models for name in known.classes[model]]
    for name in rule.class_ or ():
        if canonical(name) not in map(canonical, classes):
            whose = f"model {models[0]} has" if len(models) == 1 else f"models {listed(models)} have"
            yield Fault(
                (*key, "class"),
                f"{whose} no class {shown(name)}{or_choice(name, classes)}",
                depends=tuple(("models", model, "classes") for model in models),
            )


def _nothing_to_decide(configuration: Configuration, camera_id: str) -> Iterator[Fault]:
    camera = configuration.cameras[camera_id]
    required = [name for name in camera.models if name in configuration.models and configuration.models[name].required]
    rules = [rule for rule in configuration.decision.rules if rule.camera in (None, camera_id)]
    if required and not any(rule.model is None or rule.model in required for rule in rules):
        yield Fault(
            ("cameras", camera_id),
            f"no rule looks at a required model of this camera ({listed(required)}), so that nothing could ever be OK; "
            "add a rule for it under `decision.rules`",
            depends=(("decision", "rules"), ("models",)),
        )


def _unlisted(configuration: Configuration, known: Known) -> Iterator[Fault]:
    """Warn of classes that no rule names: allowed, but seldom meant."""
    if not configuration.decision.rules:
        return
    for name, classes in known.classes.items():
        rules = [rule for rule in configuration.decision.rules if name in applies(configuration, rule)]
        if not rules or any(rule.class_ is None for rule in rules):
            continue
        named = {canonical(word) for rule in rules for word in rule.class_ or ()}
        left = [word for word in classes if canonical(word) not in named]
        if left:
            yield Fault(
                ("models", name),
                f"no rule names {listed(left)}: when found, the verdict is {configuration.decision.unlisted} "
                "(code 101, `decision.unlisted`)",
                depends=(("decision",),),
                is_warning=True,
            )
