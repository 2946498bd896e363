"""A small correct configuration for tests, and what `load` says of changed ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from inspectd.config.load import Loaded, load
from inspectd.errors import ConfigurationError

BASE = """\
version: 1
station:
  enterprise: acme
  site: suzhou
  area: smt
  line: line3
  id: aoi-01
mqtt:
  host: 127.0.0.1
cameras:
  top:
    source: {kind: simulator}
    fps: 30
    deadline_ms: 300
    models: [defects]
models:
  defects:
    task: detect
    path: models/pcb.xml
    timeout_ms: 150
decision:
  rules:
    - id: electrical
      class: [open, short]
      evaluation: notOk
"""
ENV = {"HOME": "/home/line"}
LABELS = "open short mouse_bite"


@dataclass(frozen=True, slots=True)
class Case:
    """A folder with a model file in it, in which configurations are written and loaded."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "inspectd.yaml"

    def write(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        self.file.write_bytes(data)

    def load(self, text: str | bytes, env: Mapping[str, str] = ENV) -> Loaded:
        self.write(text)
        return load(self.file, env=env)

    def faults(self, text: str | bytes, env: Mapping[str, str] = ENV) -> list[str]:
        """Give the faults, without the folder's name; none for a good configuration."""
        try:
            self.load(text, env)
        except ConfigurationError as error:
            return [fault.replace(f"{self.folder}/", "") for fault in error.faults]
        return []

    def fault(self, text: str | bytes, env: Mapping[str, str] = ENV) -> str:
        """Give the only fault."""
        faults = self.faults(text, env)
        assert len(faults) == 1, faults
        return faults[0]

    def warnings(self, text: str) -> list[str]:
        return [warning.replace(f"{self.folder}/", "") for warning in self.load(text).warnings]


def case(folder: Path) -> Case:
    (folder / "models").mkdir(exist_ok=True)
    (folder / "models" / "pcb.xml").write_text(ir(LABELS))
    (folder / "models" / "pcb.bin").write_bytes(b"weights")
    return Case(folder)


def ir(labels: str) -> str:
    """The part of an OpenVINO IR that tells the class names."""
    return (
        '<?xml version="1.0"?><net name="m" version="11"><layers/><edges/>'
        f'<rt_info><model_info><labels value="{labels}" /></model_info></rt_info></net>'
    )


def changed(old: str, new: str, text: str = BASE) -> str:
    """Replace one place of the text."""
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the text"
    return text.replace(old, new)
