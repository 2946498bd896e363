"""All that is made of a model file, each value with its source. The engine runs by these values; `model` shows them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inspectd.classnames import with_room_for
from inspectd.decode import DECODERS
from inspectd.decode.layouts import Head, Layout, Output, recognise
from inspectd.engine import DEFAULT_CONFIDENCE, DEFAULT_IOU, ModelSpec
from inspectd.engine.modelfile import FileWords, class_names, layout_claim, told_task
from inspectd.engine.preprocessing import Preprocessing, other_preprocessing, preprocessing
from inspectd.engine.sourced import Source, Sourced
from inspectd.errors import ModelRefused


@dataclass(frozen=True, slots=True)
class Net:
    """Inputs and outputs of a read model whose shapes are fixed."""

    picture_index: int
    axes: str
    """NCHW or NHWC."""
    size_px: Sourced[tuple[int, int]]
    """(height, width)"""
    is_integer_input: bool
    sizes_index: int | None
    """Index of `orig_target_sizes`."""
    outputs: tuple[Output, ...]
    extra_inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeviceAnswer:
    """Whether one device of this PC can run the model."""

    name: str
    full_name: str
    can_run: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What the daemon makes of a model file."""

    name: str
    path: Path
    sha256: str
    task: Sourced[str]
    layout: Sourced[str]
    recognised: Layout
    net: Net
    preprocessing: Preprocessing
    classes: Sourced[tuple[str, ...]]
    """Empty where nobody names them and the layout does not tell how many there are: then they are numbers."""
    confidence: Sourced[float]
    iou: Sourced[float]
    """Without meaning in layouts that need no NMS."""
    notes: tuple[str, ...]
    """What a person should know: names that are missing, a size that was assumed."""
    devices: tuple[DeviceAnswer, ...] = ()

    @property
    def input_width_px(self) -> int:
        """Width of the picture input."""
        return self.net.size_px.value[1]

    @property
    def input_height_px(self) -> int:
        """Height of the picture input."""
        return self.net.size_px.value[0]

    def alternative(self) -> ModelDescription | None:
        """Give the other preprocessing that nets of this layout are known to want, where nobody says which."""
        other = other_preprocessing(self.preprocessing, self.recognised)
        if other is None:
            return None
        note = (
            f"nobody tells how the picture is to be prepared, and as the maker of {self.layout.value} does it the "
            "warm-up failed; RGB 0..1 in a centred letterbox is assumed: add `input:` under the model"
        )
        return replace(self, preprocessing=other, notes=(*self.notes, note))

    def to_json(self) -> dict[str, Any]:
        """Give plain values; each with its source as {value, source, where}."""
        subtract, divide = self.preprocessing.numbers.value
        numbers = self.preprocessing.numbers
        values: dict[str, Sourced[Any]] = {
            "task": self.task,
            "layout": self.layout,
            "inputSizePx": Sourced(
                {"width": self.input_width_px, "height": self.input_height_px},
                self.net.size_px.source,
                self.net.size_px.where,
            ),
            "color": self.preprocessing.color,
            "subtract": Sourced(list(subtract), numbers.source, numbers.where),
            "divide": Sourced(list(divide), numbers.source, numbers.where),
            "resize": self.preprocessing.resize,
            "pad": self.preprocessing.pad,
            "classes": Sourced(list(self.classes.value), self.classes.source, self.classes.where),
            "confidence": self.confidence,
            "iou": self.iou,
        }
        document: dict[str, Any] = {"name": self.name, "path": str(self.path), "sha256": self.sha256}
        document |= {
            key: {"value": item.value, "source": str(item.source), "where": item.where} for key, item in values.items()
        }
        document["devices"] = [
            {"name": d.name, "fullName": d.full_name, "canRun": d.can_run, "reason": d.reason} for d in self.devices
        ]
        document["notes"] = list(self.notes)
        return document


def describe(spec: ModelSpec, digest: str, words: FileWords, net: Net) -> ModelDescription:
    """Decide everything that can be before the model runs.

    Raises LayoutRefused with the candidates, or ModelRefused with what was found, what was expected, and the cure.
    """
    task = told_task(spec, words)
    named = class_names(spec, words)
    height_px, width_px = net.size_px.value
    head = Head(net.outputs, net.extra_inputs, width_px, height_px, None if named is None else len(named.value))
    layout = recognise(spec.name, head, layout_claim(words), spec.layout, tuple(DECODERS))
    classes, notes = _classes(spec, named, layout)
    if net.size_px.source is Source.ASSUMED:
        notes.append(
            f"the file leaves the size of its input open and does not tell one; {width_px} x {height_px} px is "
            "assumed: export the model with a fixed image size if that is wrong"
        )
    confidence, iou = _thresholds(spec, words, notes)
    return ModelDescription(
        name=spec.name,
        path=spec.path,
        sha256=digest,
        task=task,
        layout=Sourced(layout.name, _layout_source(layout), layout.decided_by),
        recognised=layout,
        net=net,
        preprocessing=preprocessing(spec, words.info, layout, is_integer_input=net.is_integer_input),
        classes=classes,
        confidence=confidence,
        iou=iou,
        notes=tuple(notes),
    )


def _layout_source(layout: Layout) -> Source:
    """A shape is the file's word too."""
    return Source.CONFIGURATION if layout.decided_by == "configuration" else Source.FILE


def _classes(
    spec: ModelSpec, named: Sourced[tuple[str, ...]] | None, layout: Layout
) -> tuple[Sourced[tuple[str, ...]], list[str]]:
    names = () if named is None else named.value
    count = layout.class_count or 0
    if len(names) > count > 0:
        raise ModelRefused(
            f"{spec.name}: {len(names)} classes are named, layout {layout.name} has room for {count}; "
            "check that `classes` are this model's"
        )
    if named is None:
        told = f"class_0 to class_{count - 1}" if count else "class_0, class_1, …"
        note = f"nobody names the classes; they are called {told}: add `classes: [...]` under the model"
        return Sourced(with_room_for((), count), Source.ASSUMED, "numbers"), [note]
    if len(names) < count:
        note = (
            f"{len(names)} of {count} classes are named ({named.where}); the rest is called "
            f"{', '.join(f'class_{i}' for i in range(len(names), min(count, len(names) + 3)))}"
            + (", …" if count > len(names) + 3 else "")
        )
        return Sourced(with_room_for(names, count), named.source, named.where), [note]
    return named, []


def _thresholds(spec: ModelSpec, words: FileWords, notes: list[str]) -> tuple[Sourced[float], Sourced[float]]:
    confidence = Sourced(DEFAULT_CONFIDENCE, Source.ASSUMED, "default")
    if spec.confidence is not None:
        confidence = Sourced(spec.confidence, Source.CONFIGURATION, "confidence")
    said = _threshold(spec, words, "confidence_threshold")
    if said is not None and said != confidence.value:
        notes.append(
            f"the file suggests a confidence of {said:g} (rt_info confidence_threshold); {confidence.value:g} is what "
            "is recorded, and the rules decide"
        )
    iou = Sourced(DEFAULT_IOU, Source.ASSUMED, "default")
    said = _threshold(spec, words, "iou_threshold")
    if spec.iou is not None:
        iou = Sourced(spec.iou, Source.CONFIGURATION, "iou")
    elif said is not None:
        iou = Sourced(said, Source.FILE, "rt_info iou_threshold")
    return confidence, iou


def _threshold(spec: ModelSpec, words: FileWords, key: str) -> float | None:
    text = words.info.get(key, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ModelRefused(f"{spec.name}: rt_info {key} is {text!r}, expected a number from 0 to 1")
    return value
