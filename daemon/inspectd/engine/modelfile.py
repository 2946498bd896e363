"""What a model file says about itself, as plain values, beside what the configuration says.

Two conventions: Ultralytics' `metadata.yaml` beside the model (the same keys inside an .onnx), and OpenVINO's
`rt_info/model_info` (Model API, Geti, Anomalib, Ultralytics).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from inspectd.config.modelfile import SUFFIXES, hashes_of, listed_names, onnx_values
from inspectd.decode.layouts import Claim
from inspectd.engine import ModelSpec
from inspectd.engine.sourced import Source, Sourced
from inspectd.errors import ModelRefused

_TASKS = {"obb": "yolo-obb", "pose": "yolo-pose", "classify": "yolo-cls"}
_DETECTION_TASKS = ("", "detect", "detection", "object_detection", "segment")
_OTHER_MODEL_TYPES = ("classification", "segmentation", "anomaly", "maskrcnn", "keypoint", "ocr", "sam_")
"""How Model API's names of models for other tasks begin."""


@dataclass(frozen=True, slots=True)
class FileWords:
    """What was read beside and inside the model file."""

    metadata: Mapping[str, Any]
    """Ultralytics' keys; empty if there are none."""
    metadata_place: str
    """`metadata.yaml` or `ONNX metadata`."""
    info: Mapping[str, str]
    """rt_info/model_info as text; empty if the file has none."""


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
        cure = "" if error.filename == str(path) else "; an OpenVINO model is two files, copy the .bin beside the .xml"
        raise ModelRefused(f"{spec.name}: cannot read {error.filename}: {error.strerror}{cure}") from error
    if spec.sha256 is not None and spec.sha256.lower() not in hashes:
        raise ModelRefused(
            f"{spec.name}: {path} has SHA-256 {hashes[-1]}, configured is {spec.sha256}; "
            "put the right file there, or correct `sha256` if the new one is meant"
        )
    return hashes[-1]


def read_words(spec: ModelSpec, info: Mapping[str, str]) -> FileWords:
    """Put together what the file says. Raises ModelRefused where `metadata.yaml` cannot be read."""
    beside = read_metadata(spec)
    return (
        FileWords(beside, "metadata.yaml", info) if beside else FileWords(onnx_values(spec.path), "ONNX metadata", info)
    )


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


def layout_claim(words: FileWords) -> Claim | None:
    """What the file says about its layout, if it says it for certain."""
    metadata, place = words.metadata, words.metadata_place
    task, head = str(metadata.get("task", "detect")), str(metadata.get("head") or "")
    arguments = metadata.get("args")
    nms = isinstance(arguments, dict) and arguments.get("nms") is True
    masks = "-seg" if task == "segment" else ""
    if task in _TASKS:
        return Claim(_TASKS[task], f"{place} task")
    if "RTDETR" in head:
        return Claim("rtdetr", f"{place} head")
    if nms:
        return Claim(f"yolo-end2end{masks}", f"{place} args.nms")
    if metadata.get("end2end") is True:
        return Claim(f"yolo-end2end{masks}", f"{place} end2end")
    if head and metadata.get("end2end") is False:
        return Claim(f"yolo{masks}", f"{place} head")
    if words.info.get("model_type", "").upper() == "YOLOX":
        return Claim("yolox", "rt_info model_type")
    return None


def told_task(spec: ModelSpec, words: FileWords) -> Sourced[str]:
    """What the model is for. Raises ModelRefused where the file says that it is for something else."""
    info, task = words.info, str(words.metadata.get("task") or "")
    model_type = info.get("model_type", "")
    said = {f"{words.metadata_place} task": task, "rt_info task_type": info.get("task_type", "")}
    for place, word in said.items():
        if word.lower() not in _DETECTION_TASKS and word not in _TASKS:
            raise _other_task(spec, word, place)
    if model_type.lower().startswith(_OTHER_MODEL_TYPES):
        raise _other_task(spec, model_type, "rt_info model_type")
    place = next((place for place, word in said.items() if word), "")
    return Sourced(spec.task, Source.FILE, place) if place else Sourced(spec.task, Source.ASSUMED, "from the layout")


def class_names(spec: ModelSpec, words: FileWords) -> Sourced[tuple[str, ...]] | None:
    """Names in order of their index, the file's own spelling; None if nobody gives any. Raises ModelRefused."""
    said, place = listed_names(words.metadata.get("names")), f"{words.metadata_place} names"
    if said is None and (labels := words.info.get("labels", "").split()):
        said, place = tuple(labels), "rt_info labels"
    if said is None:
        return None if spec.classes is None else Sourced(spec.classes, Source.CONFIGURATION, "classes")
    if spec.classes is not None and [_plain(name) for name in said] != [_plain(name) for name in spec.classes]:
        raise ModelRefused(
            f"{spec.name}: configuration says classes {list(spec.classes)}, the file says {list(said)} ({place}); "
            "correct the line or leave it out"
        )
    return Sourced(said, Source.FILE, place)


def input_size_px(words: FileWords) -> Sourced[tuple[int, int]] | None:
    """(height, width) from `imgsz`, for files whose input is not fixed."""
    size, place = words.metadata.get("imgsz"), f"{words.metadata_place} imgsz"
    sides = [size, size] if isinstance(size, int) else size
    if isinstance(sides, list | tuple) and len(sides) == 2 and all(isinstance(s, int) and s > 0 for s in sides):
        return Sourced((sides[0], sides[1]), Source.FILE, place)
    return None


def _other_task(spec: ModelSpec, word: str, place: str) -> ModelRefused:
    return ModelRefused(
        f"{spec.name}: the file says {word} ({place}), a model for another task; expected one that detects: "
        "put a detector there"
    )


def _plain(name: str) -> str:
    return name.replace(" ", "_")
