"""What a model file says about itself, as plain values, and what comes of it together with the configuration.

Two conventions: Ultralytics' `metadata.yaml` beside the model, and OpenVINO's `rt_info/model_info` (Model API, Geti,
Anomalib, Ultralytics). A contradiction between file and configuration is refused with both named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from inspectd.config.modelfile import SUFFIXES, hashes_of
from inspectd.decode.layouts import Claim
from inspectd.engine import ModelSpec, Triple
from inspectd.errors import ModelRefused

_PAD = 114
"""Grey of Ultralytics' letterbox, where neither file nor configuration gives one."""
_SCALE = 255.0
_LETTERBOX = ("", "fit_to_window_letterbox")
_TASKS = {"segment": "yolo-seg", "obb": "yolo-obb", "pose": "yolo-pose", "classify": "yolo-cls"}


@dataclass(frozen=True, slots=True)
class InputRecipe:
    """How pixels become the net's numbers: (x - subtract) / divide per channel, x in 0..255."""

    color: str
    """rgb or bgr: the channel order that the net wants."""
    subtract: Triple
    divide: Triple
    pad: int


def checked_hash(spec: ModelSpec) -> str:
    """SHA-256 of the model: of an .onnx the file's own, of an IR that of .xml and .bin one after the other.

    (`cat pcb.xml pcb.bin | sha256sum`: the weights of a retrained net are all that changes.) A configured `sha256`
    may be this or the .xml's own. Raises ModelRefused.
    """
    path = spec.path
    if path.suffix.lower() not in SUFFIXES:
        raise ModelRefused(f"{spec.name}: {path} is no model file; expected .xml (with its .bin) or .onnx")
    try:
        hashes = hashes_of(path)
    except OSError as error:
        raise ModelRefused(f"{spec.name}: cannot read {error.filename}: {error.strerror}") from error
    if spec.sha256 is not None and spec.sha256.lower() not in hashes:
        raise ModelRefused(
            f"{spec.name}: {path} has SHA-256 {hashes[-1]}, configured is {spec.sha256}; "
            "put the right file there, or correct `sha256` if the new one is meant"
        )
    return hashes[-1]


def read_metadata(spec: ModelSpec) -> Mapping[str, Any]:
    """Give `metadata.yaml` beside the model, empty if there is none. Raises ModelRefused."""
    path = spec.path.with_name("metadata.yaml")
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ModelRefused(f"{spec.name}: cannot read {path}: {error}; repair or remove it") from error
    if not isinstance(document, dict):
        raise ModelRefused(f"{spec.name}: {path} is not a map of keys; repair or remove it")
    return document


def layout_claim(metadata: Mapping[str, Any], model_info: Mapping[str, str]) -> Claim | None:
    """What the file says about its layout, if it says it for certain."""
    task, head = str(metadata.get("task", "detect")), str(metadata.get("head") or "")
    arguments = metadata.get("args")
    nms = isinstance(arguments, dict) and arguments.get("nms") is True
    if task in _TASKS:
        return Claim(_TASKS[task], "metadata.yaml task")
    if "RTDETR" in head:
        return Claim("rtdetr", "metadata.yaml head")
    if nms:
        return Claim("yolo-end2end", "metadata.yaml args.nms")
    if metadata.get("end2end") is True:
        return Claim("yolo-end2end", "metadata.yaml end2end")
    if head and metadata.get("end2end") is False:
        return Claim("yolo", "metadata.yaml head")
    if model_info.get("model_type", "").upper() == "YOLOX":
        return Claim("yolox", "rt_info model_type")
    return None


def class_names(spec: ModelSpec, metadata: Mapping[str, Any], model_info: Mapping[str, str]) -> tuple[str, ...] | None:
    """Names in order of their index, the file's own spelling; None if nobody gives any. Raises ModelRefused."""
    said, source = _names(metadata.get("names")), "metadata.yaml names"
    if said is None and model_info.get("labels"):
        said, source = tuple(model_info["labels"].split()), "rt_info labels"
    if said is None or spec.classes is None:
        return said or spec.classes
    if [_plain(name) for name in said] != [_plain(name) for name in spec.classes]:
        raise ModelRefused(
            f"{spec.name}: configuration says classes {list(spec.classes)}, the file says {list(said)} ({source}); "
            "correct the line or leave it out"
        )
    return said


def input_size_px(metadata: Mapping[str, Any]) -> tuple[int, int] | None:
    """(height, width) from `imgsz`, for files whose input is not fixed."""
    size = metadata.get("imgsz")
    if isinstance(size, int):
        return size, size
    if isinstance(size, list) and len(size) == 2 and all(isinstance(side, int) for side in size):
        return size[0], size[1]
    return None


def input_recipe(spec: ModelSpec, model_info: Mapping[str, str]) -> InputRecipe:
    """Colour, scale and padding from configuration and file. Raises ModelRefused on a contradiction."""
    resize = model_info.get("resize_type", "")
    if resize not in _LETTERBOX:
        raise ModelRefused(
            f"{spec.name}: the file says resize_type {resize}; this version letterboxes only "
            f"({_LETTERBOX[-1]}): export the model with letterbox"
        )
    reverse = model_info.get("reverse_input_channels", "").upper()
    color_said = {"YES": "rgb", "TRUE": "rgb", "NO": "bgr", "FALSE": "bgr"}.get(reverse)
    pad_said = _numbers(spec, model_info, "pad_value")
    subtract_said, divide_said = (_triple(spec, model_info, key) for key in ("mean_values", "scale_values"))
    numbers_said = (subtract_said or (0.0,) * 3, divide_said or (1.0,) * 3) if subtract_said or divide_said else None
    numbers = numbers_said or ((0.0,) * 3, (_SCALE,) * 3)
    if spec.scale is not None or spec.mean is not None or spec.std is not None:
        scale, mean, std = spec.scale or 1.0, spec.mean or (0.0,) * 3, spec.std or (1.0,) * 3
        numbers = (
            (mean[0] * scale, mean[1] * scale, mean[2] * scale),
            (std[0] * scale, std[1] * scale, std[2] * scale),
        )
        _agree(spec, "(mean, divisor) in 0..255", numbers, numbers_said)
    _agree(spec, "color", spec.color, color_said)
    _agree(spec, "pad", spec.pad, int(pad_said[0]) if pad_said else None)
    pad = spec.pad if spec.pad is not None else int(pad_said[0]) if pad_said else _PAD
    return InputRecipe(spec.color or color_said or "rgb", numbers[0], numbers[1], pad)


def _agree(spec: ModelSpec, key: str, configured: object, said: object) -> None:
    if configured is not None and said is not None and configured != said:
        raise ModelRefused(
            f"{spec.name}: configuration says input {key} {configured}, the file says {said} (rt_info); "
            "correct the line or leave it out"
        )


def _names(value: Any) -> tuple[str, ...] | None:
    """Ultralytics writes {0: name, …}, others a list."""
    if isinstance(value, dict) and value and sorted(value) == list(range(len(value))):
        return tuple(str(value[index]) for index in range(len(value)))
    if isinstance(value, list) and value:
        return tuple(str(name) for name in value)
    return None


def _plain(name: str) -> str:
    return name.replace(" ", "_")


def _numbers(spec: ModelSpec, model_info: Mapping[str, str], key: str) -> tuple[float, ...] | None:
    text = model_info.get(key, "").translate(str.maketrans("[],", "   ")).split()
    try:
        return tuple(float(number) for number in text) or None
    except ValueError as error:
        raise ModelRefused(f"{spec.name}: rt_info {key} is {model_info[key]!r}, expected numbers") from error


def _triple(spec: ModelSpec, model_info: Mapping[str, str], key: str) -> Triple | None:
    numbers = _numbers(spec, model_info, key)
    if numbers is None:
        return None
    if len(numbers) not in (1, 3):
        raise ModelRefused(f"{spec.name}: rt_info {key} has {len(numbers)} values, expected 1 or 3")
    return (numbers[0], numbers[len(numbers) // 2], numbers[-1])
