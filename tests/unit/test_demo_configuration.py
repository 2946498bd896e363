"""The demo's configuration, and the files that come with the package."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from inspectd import resources
from inspectd.config.schema import Configuration
from inspectd.config.yamltree import parse
from inspectd.demo import configuration as configurations
from inspectd.demo.configuration import BrokerAddress
from inspectd.errors import OutsideError

EMBEDDED = BrokerAddress("127.0.0.1", 40_000, embedded=True)
OWN = {
    "version": 1,
    "station": {"enterprise": "acme", "site": "suzhou", "area": "smt", "line": "line3", "id": "aoi-01"},
    "storage": {"path": "/var/lib/inspectd", "reserve_mb": 1},
    "mqtt": {"host": "mes", "port": 1884, "base": "{line}/{id}", "username": "aoi", "password_file": "/etc/aoi"},
    "cameras": {"top": {"source": {"kind": "files", "path": "/p"}, "fps": 5, "models": ["defects"]}},
    "models": {"defects": {"task": "detect", "path": "/m/pcb.xml"}},
    "decision": {
        "rules": [
            {
                "id": "a",
                "class": "open",
                "min_confidence": 0.6,
                "evaluation": "notOk",
                "max_count": None,
                "min_count": 1,
            },
            {"id": "b", "class": ["short"], "min_confidence": 0.3, "evaluation": "notOk"},
            {"id": "c", "min_confidence": 0.2, "evaluation": "notDecidable"},
        ]
    },
}


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for shipped files, as the wheel has it."""
    monkeypatch.setattr(resources, "_PLACES", (tmp_path,))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "pcb-demo-int8.xml").touch()
    return tmp_path


def test_the_packaged_configuration_is_right_and_shows_two_lines(shipped: Path) -> None:
    document = configurations.overlaid(configurations.packaged(), EMBEDDED, Path("/state"))
    configuration = Configuration.model_validate(document)
    assert configuration.base_topic == "inspectd/demo/smt/line1/aoi/demo"
    assert configuration.models["defects"].path == shipped / "models" / "pcb-demo-int8.xml"
    simulators = configurations.simulators(configuration)
    assert {name: (source.seed, source.width, source.height) for name, source in simulators.items()} == {
        "top": (1, 640, 640),
        "side": (2, 640, 640),
    }
    assert (configuration.mqtt.port, configuration.mqtt.version) == (40_000, "3.1.1")
    assert configurations.least_confidence(configuration) == 0.5


def test_what_is_written_is_read_back_and_has_no_anchors(shipped: Path) -> None:
    """PyYAML writes a list that stands twice as anchor and alias, which the daemon's own reader refuses."""
    del shipped
    document = configurations.overlaid(configurations.packaged(), EMBEDDED, Path("/状态"))
    text = configurations.as_yaml(document)
    assert yaml.safe_load(text) == document
    assert parse(text).faults == ()


def test_a_configuration_of_ones_own_goes_through_unchanged() -> None:
    """What the user wrote is written again, nulls and aliases included, and nothing is added."""
    configuration = Configuration.model_validate(OWN)
    assert Configuration.model_validate(configurations.own(configuration)) == configuration
    assert set(configurations.own(configuration)) == set(OWN)


def test_only_broker_and_storage_are_changed_for_the_embedded_broker() -> None:
    """It knows MQTT 3.1.1 only and no users; the base topic stays, so that results have their own names."""
    changed = configurations.overlaid(configurations.own(Configuration.model_validate(OWN)), EMBEDDED, Path("/state"))
    configuration = Configuration.model_validate(changed)
    assert configuration.base_topic == "line3/aoi-01"
    assert configuration.mqtt.username is None
    assert configuration.mqtt.password_file is None
    assert configuration.storage.path == Path("/state")
    assert configuration.storage.reserve_mb == 1
    for section in ("station", "cameras", "models", "decision"):
        assert getattr(configuration, section) == getattr(Configuration.model_validate(OWN), section)


def test_a_broker_of_ones_own_keeps_version_and_user() -> None:
    address = BrokerAddress("plant", 1883, embedded=False)
    mqtt = Configuration.model_validate(configurations.overlaid(OWN, address, Path("/state"))).mqtt
    assert (mqtt.host, mqtt.port, mqtt.version, mqtt.username, mqtt.insecure) == ("plant", 1883, 5, "aoi", True)


def test_least_confidence_is_that_of_the_rules_that_can_reject() -> None:
    assert configurations.least_confidence(Configuration.model_validate(OWN)) == 0.3


def test_a_missing_shipped_file_is_told_with_the_places_looked_at(shipped: Path) -> None:
    assert resources.model_path("pcb-demo-int8.xml") == shipped / "models" / "pcb-demo-int8.xml"
    with pytest.raises(OutsideError, match=r"result\.schema\.json is missing in .*schemas: this installation is inc"):
        resources.schema_path("result.schema.json")
