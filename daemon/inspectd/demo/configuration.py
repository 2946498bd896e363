"""The demo's configuration: two simulated cameras and the shipped model, or the user's own with another broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from inspectd.camera.boards.scene import DEFECT_CLASSES
from inspectd.config.schema import Configuration, SimulatorSource
from inspectd.records import Evaluation
from inspectd.resources import model_path

_NOT_OK = Evaluation.NOT_OK.word
_NOT_DECIDABLE = Evaluation.NOT_DECIDABLE.word
_SURE, _DOUBT = 0.5, 0.4
"""Confidence that makes a board NotOK, and that leaves it to a person: chosen for the shipped model (its card)."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where the demo publishes."""

    host: str
    port: int
    embedded: bool
    """The one that the demo starts itself, which knows MQTT 3.1.1 only and no users."""


def packaged() -> dict[str, Any]:
    """Two simulated cameras of 640 × 640 at 10 fps, each a line of its own. Raises OutsideError without the model."""
    defects = list(DEFECT_CLASSES)
    doubt = {"model": "defects", "class": defects, "min_confidence": _DOUBT, "evaluation": _NOT_DECIDABLE, "code": 200}
    board = {"model": "defects", "class": "board", "min_confidence": 0.5, "min_count": 1, "max_count": 1}
    return {
        "version": 1,
        "station": {
            "enterprise": "inspectd",
            "site": "demo",
            "area": "smt",
            "line": "line1",
            "cell": "aoi",
            "id": "demo",
            "clock": "none",
        },
        "cameras": {name: _simulated(seed) for seed, name in enumerate(("top", "side"), start=1)},
        "models": {"defects": {"task": "detect", "path": str(model_path("pcb-demo-int8.xml")), "timeout_ms": 500}},
        "decision": {
            "unlisted": _NOT_OK,
            "rules": [
                {"id": "board", **board, "evaluation": _NOT_DECIDABLE, "code": 202},
                {"id": "defect", "class": defects, "min_confidence": _SURE, "evaluation": _NOT_OK, "code": 110},
                {"id": "doubt", **doubt},
            ],
        },
    }


def own(configuration: Configuration) -> dict[str, Any]:
    """Give the user's configuration as it would stand in YAML; its paths are absolute, so that it may lie elsewhere."""
    return configuration.model_dump(mode="json", by_alias=True, exclude_unset=True)


def overlaid(document: Mapping[str, Any], broker: BrokerAddress, storage: Path) -> dict[str, Any]:
    """Put the demo's broker and storage into a configuration; all else stays as it is."""
    # Whoever named a broker for a demo means it, also without TLS.
    mqtt = {**document.get("mqtt", {}), "host": broker.host, "port": broker.port, "insecure": True}
    if broker.embedded:
        mqtt["version"] = "3.1.1"
        for key in ("username", "password_file", "tls"):
            mqtt.pop(key, None)
    return {**document, "mqtt": mqtt, "storage": {**document.get("storage", {}), "path": str(storage)}}


def as_yaml(document: Mapping[str, Any]) -> str:
    """Write it for the daemon's reader, which refuses anchors: what stands twice is written twice."""
    return yaml.dump(document, Dumper=_PlainDumper, allow_unicode=True, sort_keys=False)


def simulators(configuration: Configuration) -> dict[str, SimulatorSource]:
    """Give the cameras whose truth is known."""
    sources = {name: camera.source for name, camera in configuration.cameras.items()}
    return {name: source for name, source in sources.items() if isinstance(source, SimulatorSource)}


def least_confidence(configuration: Configuration) -> float:
    """Give the lowest confidence with which a detection can make a part NotOK."""
    rules = [rule for rule in configuration.decision.rules if rule.evaluation == _NOT_OK]
    return min((rule.min_confidence or 0.0 for rule in rules), default=0.0)


class _PlainDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _simulated(seed: int) -> dict[str, Any]:
    source = {"kind": "simulator", "seed": seed, "width": 640, "height": 640}
    return {"source": source, "mode": "continuous", "fps": 10, "deadline_ms": 1000, "models": ["defects"]}
