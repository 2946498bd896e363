"""What can be known of a model file without a runtime: its class names, its SHA-256, an ONNX file's own texts."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path
from typing import Any
from xml.parsers import expat

from inspectd.config.onnxfile import onnx_metadata
from inspectd.config.readfile import read_text
from inspectd.config.yamltree import parse

SUFFIXES = (".xml", ".onnx")
_BLOCK_BYTES = 1 << 18
_LABELS = ["net", "rt_info", "model_info", "labels"]


def parts_of(path: Path) -> tuple[Path, ...]:
    """Give the files that a model consists of: an IR is an .xml and its .bin."""
    return (path, path.with_suffix(".bin")) if path.suffix.lower() == ".xml" else (path,)


def hashes_of(path: Path) -> tuple[str, ...]:
    """Give the SHA-256 of the file itself, and (an IR) of .xml and .bin one after the other. Raises OSError.

    The second is what `cat pcb.xml pcb.bin | sha256sum` prints; it changes when a net is only retrained.
    """
    digest = hashlib.sha256()
    hashes = []
    for part in parts_of(path):
        with part.open("rb") as stream:
            while block := stream.read(_BLOCK_BYTES):
                digest.update(block)
        hashes.append(digest.hexdigest())
    return tuple(hashes)


def classes_of(path: Path) -> tuple[str, ...] | None:
    """Give the class names in order of their index: `metadata.yaml` beside the file, else what the file itself says.

    None: neither tells, or neither can be read (the model child says why when it loads the file).
    """
    beside = path.with_name("metadata.yaml")
    if beside.is_file() and (names := _names(beside)):
        return names
    return _labels(path) if path.suffix.lower() == ".xml" else listed_names(onnx_values(path).get("names"))


def onnx_values(path: Path) -> dict[str, Any]:
    """Give an .onnx file's metadata with texts that are Python values (Ultralytics writes them so) read as such.

    Empty for other files, and where it cannot be read.
    """
    if path.suffix.lower() != ".onnx":
        return {}
    try:
        return {key: _value(text) for key, text in onnx_metadata(path).items()}
    except OSError:
        return {}


def listed_names(value: Any) -> tuple[str, ...] | None:
    """Class names out of `names`: Ultralytics writes {0: name, …}, others a list."""
    if isinstance(value, dict) and set(value) == set(range(len(value))):
        value = [value[index] for index in range(len(value))]
    return tuple(str(name) for name in value) if isinstance(value, list) and value else None


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _names(path: Path) -> tuple[str, ...] | None:
    text = read_text(path)
    document: Any = parse(text).value if isinstance(text, str) else None
    names = document.get("names") if isinstance(document, dict) else None
    if isinstance(names, dict) and list(names) == [str(index) for index in range(len(names))]:
        names = list(names.values())
    return tuple(str(name) for name in names) if isinstance(names, list) and names else None


def _labels(path: Path) -> tuple[str, ...] | None:
    """Read `rt_info/model_info/labels` as a stream. A document type (and with it any entity) is refused."""
    where: list[str] = []
    found: list[str] = []
    parser = expat.ParserCreate()

    def start(name: str, attributes: dict[str, str]) -> None:
        where.append(name)
        if where == _LABELS:
            found.append(attributes.get("value", ""))

    def refuse(*_: object) -> None:
        raise ValueError("a model file has no document type")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: where.pop()
    parser.StartDoctypeDeclHandler = refuse
    try:
        with path.open("rb") as stream:
            while not found and (block := stream.read(_BLOCK_BYTES)):
                parser.Parse(block)
    except (OSError, ValueError, expat.ExpatError):
        return None
    # Model API writes names divided by blanks, with `_` for a blank inside a name
    return tuple(found[0].split()) or None if found else None
