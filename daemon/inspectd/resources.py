"""Finds the files that come with inspectd: in the wheel under `inspectd/data`, in a source checkout under `config`."""

from __future__ import annotations

from pathlib import Path

from inspectd.errors import OutsideError

_PACKAGE = Path(__file__).resolve().parent
_PLACES = (_PACKAGE / "data", _PACKAGE.parents[1] / "config")


def model_path(name: str) -> Path:
    """Return where a shipped model file is, such as `pcb-demo.xml`. Raises OutsideError if it is missing."""
    return _found("models", name)


def schema_path(name: str) -> Path:
    """Return where a shipped JSON Schema is, such as `result.schema.json`. Raises OutsideError if it is missing."""
    return _found("schemas", name)


def _found(folder: str, name: str) -> Path:
    for place in _PLACES:
        path = place / folder / name
        if path.is_file():
            return path
    tried = " and ".join(str(place / folder) for place in _PLACES)
    raise OutsideError(f"{name} is missing in {tried}: this installation is incomplete, install inspectd again")
