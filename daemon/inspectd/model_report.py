"""What `inspectd model` shows of a model: tables for a terminal, or one JSON document. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from inspectd.engine.description import DeviceAnswer, ModelDescription
from inspectd.engine.sourced import Source, Sourced
from inspectd.model_trial import TOP, Trials, advice, to_json
from inspectd.model_yaml import input_numbers, number, uses_iou
from inspectd.records import ModelFacts

_STYLES = {Source.FILE: "green", Source.CONFIGURATION: "cyan", Source.ASSUMED: "yellow"}
"""Never by colour alone: the word stands there."""
_INDENT = (0, 0, 0, 2)


@dataclass(frozen=True, slots=True)
class Inspected:
    """A model that the daemon would take."""

    described: ModelDescription
    facts: ModelFacts
    """How it ran at its warm-up."""
    yaml: str
    """The entry to paste."""
    warnings: tuple[str, ...] = ()
    """What was said while it ran, beside the description's own notes."""
    tried: Trials | None = None


def document(seen: Inspected) -> dict[str, Any]:
    """Give everything as plain values."""
    facts = seen.facts
    return {
        **seen.described.to_json(),
        "warmup": {
            "device": facts.device,
            "precision": facts.precision,
            "p95Ms": round(facts.warmup_p95_s * 1000, 3),
        },
        "warnings": list(seen.warnings),
        "yaml": seen.yaml,
        "try": None if seen.tried is None else to_json(seen.tried),
        "refused": None,
    }


def refusal_document(name: str, path: str, text: str, candidates: Sequence[str]) -> dict[str, Any]:
    """Give the same for a model that the daemon would not take."""
    return {"name": name, "path": path, "refused": {"text": text, "candidates": list(candidates)}}


def report(seen: Inspected) -> RenderableType:
    """Draw everything but the entry to paste, which must not be wrapped."""
    described = seen.described
    parts: list[RenderableType] = [
        Text(f"{described.name}  {described.path}", style="bold"),
        Text(f"SHA-256 {described.sha256}"),
        _values(described),
    ]
    if described.classes.value:
        names = [f"{index} {name}" for index, name in enumerate(described.classes.value)]
        parts += [Text(), Text("classes", style="bold"), Padding(Columns(names, padding=(0, 2)), _INDENT)]
    parts += [Text(), Text("devices", style="bold"), Padding(_devices(described.devices, seen.facts), _INDENT)]
    told = [*described.notes, *seen.warnings]
    if told:
        parts += [Text(), Text("notes", style="bold"), Padding(_bullets(told), _INDENT)]
    if seen.tried is not None:
        parts += [Text(), _trials(seen.tried), Text(), Text(advice(seen.tried), style="bold")]
    return Group(*parts)


def _values(described: ModelDescription) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 2), pad_edge=False, header_style="bold")
    for heading in ("", "value", "source", "where"):
        table.add_column(heading)
    for name, value, said in _rows(described):
        where = _why(described) if name == "layout" else said.where
        table.add_row(name, value, Text(str(said.source), style=_STYLES[said.source]), where)
    return table


def _rows(described: ModelDescription) -> Iterator[tuple[str, str, Sourced[Any]]]:
    wanted = described.preprocessing
    yield "task", described.task.value, described.task
    yield "layout", described.layout.value, described.layout
    size = f"{described.input_width_px} x {described.input_height_px} px, {described.net.axes}"
    yield "input", size, described.net.size_px
    yield "color", wanted.color.value, wanted.color
    told = {"scale": 1.0, "mean": (0.0,) * 3, "std": (1.0,) * 3, **input_numbers(wanted.numbers.value)}
    for key, value in told.items():
        text = number(value) if isinstance(value, float) else " ".join(map(number, value))
        yield key, text, wanted.numbers
    yield "resize", wanted.resize.value, wanted.resize
    yield "pad", str(wanted.pad.value), wanted.pad
    count = len(described.classes.value)
    yield "classes", str(count) if count else "any number", described.classes
    yield "confidence", number(described.confidence.value), described.confidence
    if uses_iou(described.layout.value):
        yield "iou", number(described.iou.value), described.iou


def _why(described: ModelDescription) -> str:
    """How the layout was recognised."""
    shapes = ", ".join(f"{output.name} {list(output.shape)}".strip() for output in described.net.outputs)
    if described.layout.where == "shape":
        return f"the only one that fits {shapes}"
    place = "layout" if described.layout.source is Source.CONFIGURATION else described.layout.where
    return f"{place}; fits {shapes}"


def _devices(devices: Sequence[DeviceAnswer], facts: ModelFacts) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for device in devices:
        table.add_row(device.name, "can run it" if device.can_run else f"no: {device.reason}", device.full_name)
    speed = f"{facts.warmup_p95_s * 1000:.1f} ms a picture (p95 of its warm-up)"
    return Group(table, Text(f"It ran on {facts.device} in {facts.precision}, {speed}."))


def _bullets(texts: Sequence[str]) -> Table:
    table = Table.grid(padding=(0, 1))
    for text in texts:
        table.add_row(Text("!", style="yellow"), Text(text))
    return table


def _trials(tried: Trials) -> Table:
    count = len(tried.images)
    table = Table(
        title=f"tried on {tried.images[0] if count == 1 else f'{count} pictures (means)'}",
        caption=(
            f"found: from confidence {tried.confidence:g} up; mean: missing ones count as 0; "
            "more is not better by itself, since false alarms count too"
        ),
        title_style="bold",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 2),
        pad_edge=False,
        header_style="bold",
    )
    table.add_column("color")
    table.add_column("resize")
    for heading in ("found", "best", f"mean of {TOP}"):
        table.add_column(heading, justify="right")
    table.add_column()
    for trial in tried.trials:
        is_used = trial.way == tried.in_use
        figures = [number(round(trial.detections, 1)), f"{trial.best:.3f}", f"{trial.mean_of_top:.3f}"]
        cells = ["–", "–", "–"] if trial.failure else figures
        mark = ("◀ in use " if is_used else "") + (f"no answer: {trial.failure}" if trial.failure else "")
        table.add_row(trial.way.color, trial.way.resize, *cells, mark, style="bold" if is_used else "")
    return table
