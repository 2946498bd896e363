"""The configurations that are shipped: each loads, and the generated JSON Schema is fresh and fits them."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml
from jsonschema import Draft202012Validator
from tests.unit.config_case import ir

from inspectd.config.commands import check, schema
from inspectd.config.load import load

CONFIG = Path(__file__).parents[2] / "config"
EXAMPLES = sorted((CONFIG / "examples").glob("*.yaml"))
FILES = [CONFIG / "inspectd.yaml", *EXAMPLES]
SCHEMA = CONFIG / "inspectd.schema.json"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where examples are judged to lie: with the model and the pictures that they speak of."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "pcb-demo.xml").write_text(ir("open short mousebite spur copper pinhole board"))
    (tmp_path / "models" / "pcb-demo.bin").write_bytes(b"x")
    (tmp_path / "examples" / "pictures").mkdir(parents=True)
    cv2.imwrite(str(tmp_path / "examples" / "pictures" / "board-1.png"), np.zeros((480, 640, 3), np.uint8))
    (tmp_path / "examples" / "pictures" / "line3.mp4").write_bytes(b"x")
    return tmp_path


def test_there_are_examples() -> None:
    assert {"files-folder.yaml", "two-cameras.yaml"} <= {path.name for path in EXAMPLES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_shipped_file_loads_without_a_warning(path: Path, place: Path) -> None:
    loaded = load(path, as_path=place / path.relative_to(CONFIG), env={"HOME": "/home/line"})
    assert loaded.warnings == ()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_schema_accepts_every_shipped_file(path: Path) -> None:
    """An editor that uses the schema must not underline what the daemon accepts."""
    Draft202012Validator(schema()).validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def test_the_commented_example_runs_as_it_lies_here() -> None:
    code, said = check(CONFIG / "inspectd.yaml", None, {"HOME": "/home/line"})
    assert code == 0, said


def test_the_generated_schema_is_fresh() -> None:
    fresh = schema()
    Draft202012Validator.check_schema(fresh)
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == fresh, (
        "the schema of the configuration has changed: `inspectd schema > config/inspectd.schema.json`"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"cameras": {"top": {"source": {"kind": "rtsp"}, "fps": 1, "models": ["m"]}}},
        {"cameras": {"top": {"source": {"kind": "simulator"}, "fps": 1, "models": ["m"], "zebra": 1}}},
        {"cameras": {}},
        {"station": {"enterprise": "a b", "site": "s", "area": "a", "line": "l", "id": "i"}},
    ],
)
def test_the_schema_refuses_what_the_daemon_refuses(wrong: dict[str, object]) -> None:
    good = yaml.safe_load((CONFIG / "examples" / "two-cameras.yaml").read_text(encoding="utf-8"))
    assert not Draft202012Validator(schema()).is_valid({**good, **wrong})
