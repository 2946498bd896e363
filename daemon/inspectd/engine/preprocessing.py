"""How a model wants its picture: the file's word, else the configuration's, else what the layout's maker does. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from inspectd.decode.layouts import Layout
from inspectd.decode.preparation import ALTERNATIVES, Color, Preparation, Resize, Triple, makers
from inspectd.engine import ModelSpec
from inspectd.engine.sourced import Source, Sourced, choose
from inspectd.errors import ModelRefused

T = TypeVar("T")

_RESIZES: Mapping[str, Resize] = {
    "standard": "stretch",
    "fit_to_window": "letterbox_topleft",
    "fit_to_window_letterbox": "letterbox",
    "crop": "crop",
}
"""Words of Model API's `resize_type`."""
_COLORS: Mapping[str, Color] = {"YES": "rgb", "TRUE": "rgb", "NO": "bgr", "FALSE": "bgr"}
"""Model API's `reverse_input_channels`, for pictures in BGR."""
_ZERO: Triple = (0.0, 0.0, 0.0)
_ONE: Triple = (1.0, 1.0, 1.0)
_STRETCHED_IN_TRUTH = ("rtdetr", "detr-probs")

Numbers = tuple[Triple, Triple]
"""What is subtracted and what then divides, per channel, with pixels in 0..255."""


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """Every part with its source."""

    color: Sourced[Color]
    numbers: Sourced[Numbers]
    resize: Sourced[Resize]
    pad: Sourced[int]

    @property
    def preparation(self) -> Preparation:
        """The values alone."""
        subtract, divide = self.numbers.value
        return Preparation(self.color.value, subtract, divide, self.resize.value, self.pad.value)


def preprocessing(
    spec: ModelSpec, info: Mapping[str, str], layout: Layout, *, is_integer_input: bool = False
) -> Preprocessing:
    """Put it together. `info` is rt_info/model_info. Raises ModelRefused on a contradiction or an unknown word."""
    if info.get("embedded_processing", "").upper() in ("YES", "TRUE"):
        raise ModelRefused(
            f"{spec.name}: the file has its preprocessing built in (rt_info embedded_processing), which inspectd would "
            "do a second time; export the model without it"
        )
    maker, whose = makers(layout.name, has_no_object=layout.has_no_object)
    default = f"default of {whose}"
    numbers: Numbers = (maker.subtract, maker.divide)
    numbers_default = default
    if is_integer_input:
        numbers, numbers_default = (_ZERO, _ONE), "the input takes whole numbers"
    pad_said = _numbers(spec, info, "pad_value")
    return Preprocessing(
        choose(
            spec.name,
            "input color",
            spec.color,
            _word(spec, info, "reverse_input_channels", _COLORS),
            "rt_info reverse_input_channels",
            Sourced(maker.color, Source.ASSUMED, default),
        ),
        choose(
            spec.name,
            "input (mean, divisor) in 0..255",
            _configured_numbers(spec),
            _said_numbers(spec, info),
            "rt_info mean_values, scale_values",
            Sourced(numbers, Source.ASSUMED, numbers_default),
        ),
        choose(
            spec.name,
            "input resize",
            spec.resize,
            _said_resize(spec, info, layout),
            "rt_info resize_type",
            Sourced(maker.resize, Source.ASSUMED, default),
        ),
        choose(
            spec.name,
            "input pad",
            spec.pad,
            _grey(spec, pad_said[0]) if pad_said else None,
            "rt_info pad_value",
            Sourced(maker.pad, Source.ASSUMED, default),
        ),
    )


def other_preprocessing(first: Preprocessing, layout: Layout) -> Preprocessing | None:
    """Give the other known habit of a layout, if its scale was assumed; what was told stays as it is."""
    other = ALTERNATIVES.get(layout.name)
    if other is None or first.numbers.source is not Source.ASSUMED:
        return None
    where = f"the default of {layout.name}'s maker failed the warm-up"
    numbers: Numbers = (other.subtract, other.divide)
    return Preprocessing(
        first.color if first.color.source is not Source.ASSUMED else Sourced(other.color, Source.ASSUMED, where),
        Sourced(numbers, Source.ASSUMED, where),
        first.resize if first.resize.source is not Source.ASSUMED else Sourced(other.resize, Source.ASSUMED, where),
        first.pad,
    )


def _said_resize(spec: ModelSpec, info: Mapping[str, str], layout: Layout) -> Resize | None:
    """Ultralytics writes "letterbox" into every export, also of RT-DETR, which it stretches: not believed there."""
    if layout.name in _STRETCHED_IN_TRUTH and info.get("model_type", "").upper().startswith("YOLO"):
        return None
    return _word(spec, info, "resize_type", _RESIZES)


def _said_numbers(spec: ModelSpec, info: Mapping[str, str]) -> Numbers | None:
    subtract, divide = _triple(spec, info, "mean_values"), _triple(spec, info, "scale_values")
    if divide is not None and not all(divide):
        raise ModelRefused(f"{spec.name}: rt_info scale_values is {info['scale_values']!r}, and nothing divides by 0")
    return (subtract or _ZERO, divide or _ONE) if subtract or divide else None


def _configured_numbers(spec: ModelSpec) -> Numbers | None:
    """The net gets (x / scale - mean) / std."""
    if spec.scale is None and spec.mean is None and spec.std is None:
        return None
    scale, mean, std = spec.scale or 1.0, spec.mean or _ZERO, spec.std or _ONE
    return (
        (mean[0] * scale, mean[1] * scale, mean[2] * scale),
        (std[0] * scale, std[1] * scale, std[2] * scale),
    )


def _word(spec: ModelSpec, info: Mapping[str, str], key: str, words: Mapping[str, T]) -> T | None:
    text = info.get(key, "")
    found = words.get(text.upper(), words.get(text.lower()))
    if text and found is None:
        raise ModelRefused(f"{spec.name}: rt_info {key} is {text!r}, expected one of {', '.join(words)}")
    return found


def _grey(spec: ModelSpec, value: float) -> int:
    if not 0 <= value <= 255:
        raise ModelRefused(f"{spec.name}: rt_info pad_value is {value:g}, expected 0..255")
    return int(value)


def _numbers(spec: ModelSpec, info: Mapping[str, str], key: str) -> tuple[float, ...] | None:
    text = info.get(key, "").translate(str.maketrans("[](),", "     ")).split()
    try:
        numbers = tuple(float(number) for number in text)
    except ValueError as error:
        raise ModelRefused(f"{spec.name}: rt_info {key} is {info[key]!r}, expected numbers") from error
    if not all(map(math.isfinite, numbers)):
        raise ModelRefused(f"{spec.name}: rt_info {key} is {info[key]!r}, expected finite numbers")
    return numbers or None


def _triple(spec: ModelSpec, info: Mapping[str, str], key: str) -> Triple | None:
    numbers = _numbers(spec, info, key)
    if numbers is None:
        return None
    if len(numbers) not in (1, 3):
        raise ModelRefused(f"{spec.name}: rt_info {key} has {len(numbers)} values, expected 1 or 3")
    return (numbers[0], numbers[len(numbers) // 2], numbers[-1])
