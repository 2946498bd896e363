"""The `models:` entry to paste, with all that was assumed or configured; what the file tells is left to it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from inspectd.config.scalars import resolved, trap
from inspectd.engine.description import ModelDescription
from inspectd.engine.preprocessing import Numbers
from inspectd.engine.sourced import Source, Sourced

_WIDTH = 96
_PLAIN = re.compile(r"[\w./][\w./ +()-]*(?<! )")
"""Words that YAML takes for text also in a list, as far as `resolved` says so."""


def uses_iou(layout: str) -> bool:
    """Whether the layout has overlapping boxes; others come without, by their net or by a built-in NMS."""
    return layout.startswith("yolo") and not layout.startswith("yolo-end2end")


def input_numbers(numbers: Numbers) -> dict[str, float | tuple[float, float, float]]:
    """Give `scale`, or `mean` and `std`, that mean the same: the net gets (x / scale - mean) / std."""
    subtract, divide = numbers
    if not any(subtract) and len(set(divide)) == 1:
        return {"scale": divide[0]}
    return {"mean": subtract, "std": divide}


def model_yaml(described: ModelDescription, *, path: str, device: str, precision: str) -> str:
    """Give the text. Read again, it gives the same description, and none of what it can say is assumed."""
    lines = ["models:", f"  {_id(described.name)}:", f"    task: {described.task.value}", f"    path: {_text(path)}"]
    lines.append(f"    # sha256: {described.sha256}")
    lines += _told("    ", "layout", described.layout)
    told_input = list(_input(described))
    lines += ["    input:", *told_input] if told_input else []
    lines += _classes(described.classes)
    if device != "CPU":
        lines.append(f"    devices: [{device}]")
    if precision != "auto":
        lines.append(f"    precision: {precision}")
    lines += _told("    ", "confidence", described.confidence)
    if uses_iou(described.layout.value):
        lines += _told("    ", "iou", described.iou)
    return "\n".join(lines) + "\n"


def number(value: float) -> str:
    """Every digit that there is, and no `.0`."""
    return repr(value).removesuffix(".0")


def _input(described: ModelDescription) -> Iterator[str]:
    wanted = described.preprocessing
    yield from _told("      ", "color", wanted.color)
    for key, value in input_numbers(wanted.numbers.value).items():
        yield from _told("      ", key, Sourced(value, wanted.numbers.source, wanted.numbers.where))
    yield from _told("      ", "resize", wanted.resize)
    yield from _told("      ", "pad", wanted.pad)


def _told(indent: str, key: str, value: Sourced[Any]) -> Iterator[str]:
    if value.source is not Source.FILE:
        why = f"  # assumed: {value.where}" if value.source is Source.ASSUMED else ""
        yield f"{indent}{key}: {_value(value.value)}{why}"


def _classes(classes: Sourced[tuple[str, ...]]) -> Iterator[str]:
    if classes.source is Source.FILE:
        return
    if classes.source is Source.ASSUMED:
        yield "    # order = class index; nobody names them: put the right names"
    if not classes.value:
        yield "    # classes: [...]"
        return
    line = "    classes: ["
    for index, name in enumerate(classes.value):
        item = _text(name) + ("]" if index == len(classes.value) - 1 else ", ")
        if len(line) + len(item) > _WIDTH:
            yield line.rstrip()
            line = "      "
        line += item
    yield line


def _value(value: object) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Sequence):
        return f"[{', '.join(map(number, value))}]"
    return number(value) if isinstance(value, float) else str(value)


def _text(value: str) -> str:
    is_plain = _PLAIN.fullmatch(value) and isinstance(resolved(value), str) and trap(value) is None
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def _id(name: str) -> str:
    """A name that the configuration takes; `yes` or `17` would not be read as a text."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:64] or "model"
    return _text(plain)
