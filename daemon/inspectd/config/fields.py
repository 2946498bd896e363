"""Types of single values in the YAML. Each says in plain words what it wants; none does any I/O."""

from __future__ import annotations

import re
from datetime import time
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

ID_PATTERN = r"^[A-Za-z0-9_-]+$"
LEVEL_PATTERN = r"^[A-Za-z0-9_-]*$"
SHA256_PATTERN = r"^[0-9a-f]{64}$"
DEVICE_PATTERN = r"^[A-Z]+(\.[0-9]+)?$"

Auto = Literal["auto"]


class Part(BaseModel):
    """Base of every section: frozen, unknown keys refused.

    Strict because YAML has types: text where a number is wanted is a mistake, not something to convert.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _number_or_auto(smallest: float, largest: float, kind: type[int | float]) -> BeforeValidator:
    """One fault for `auto | number` where pydantic's union would give two."""

    def validate(value: Any) -> Any:
        number = isinstance(value, (int, kind)) and not isinstance(value, bool)
        if value == "auto" or (number and smallest <= value <= largest):
            return value
        raise PydanticCustomError(
            "auto_or_number",
            "give `auto` or a {kind} from {smallest} to {largest}",
            {"kind": "whole number" if kind is int else "number", "smallest": smallest, "largest": largest},
        )

    return BeforeValidator(validate)


def _one_as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _continuous(value: Any) -> Any:
    if value == "triggered":
        raise PydanticCustomError(
            "not_in_this_version", "triggered cameras are not in this version of inspectd; only `continuous` is"
        )
    return value


def _different_devices(value: tuple[str, ...]) -> tuple[str, ...]:
    first: dict[str, str] = {}
    for device in value:
        key = device.removesuffix(".0")  # OpenVINO's GPU is GPU.0
        if key in first:
            raise PydanticCustomError(
                "twice",
                "names {device} after {same}, which is the same; give each device once, the preferred one first",
                {"device": device, "same": first[key], "bare": True},
            )
        first[key] = device
    return value


def _clock_time(value: str) -> str:
    if not re.fullmatch(r"\d\d:\d\d", value):
        raise PydanticCustomError("clock_time", 'give a time of day in quotes, like "06:00"')
    try:
        time.fromisoformat(value)
    except ValueError:
        raise PydanticCustomError("clock_time", "there is no such time of day; 00:00 to 23:59") from None
    return value


def _path_text(value: Any) -> Any:
    if value == "":
        raise PydanticCustomError("path_text", "is empty; give a path, or remove the key", {"bare": True})
    if isinstance(value, str) and value.startswith("~"):
        raise PydanticCustomError("path_text", "`~` is not a home folder here; write the path out")
    return value


def _topic_base(value: str) -> str:
    levels = re.sub(r"\{(enterprise|site|area|line|cell|id)\}", "x", value).split("/")
    if not all(re.fullmatch(r"[A-Za-z0-9_-]+", level) for level in levels):
        raise PydanticCustomError(
            "topic_base",
            "give topic levels of A-Z a-z 0-9 _ - divided by single `/`; {names} are filled in from `station`",
            {"names": "{enterprise} {site} {area} {line} {cell} {id}"},
        )
    return value


def _topic_prefix(value: str) -> str:
    if not value.strip("/") or any(mark in value for mark in "+#\0") or not value.isprintable():
        raise PydanticCustomError(
            "topic_prefix", "give the beginning of a topic, such as `mes/replies/`, without + or #"
        )
    return value


Id = Annotated[str, StringConstraints(pattern=ID_PATTERN, max_length=64)]
"""A topic level, or the name of a camera, a model or a rule."""
Level = Annotated[str, StringConstraints(pattern=LEVEL_PATTERN, max_length=64)]
"""A topic level that may be empty."""
Text = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
FilePath = Annotated[Path, BeforeValidator(_path_text), Field(strict=False)]
"""As written; the loader makes it absolute."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Millis = Annotated[int, Field(ge=1, le=3_600_000)]
Sha256 = Annotated[str, StringConstraints(pattern=SHA256_PATTERN)]
Device = Annotated[str, StringConstraints(pattern=DEVICE_PATTERN)]
"""As OpenVINO names them: CPU, GPU, GPU.1, NPU."""
ClockTime = Annotated[str, AfterValidator(_clock_time)]
TopicBase = Annotated[str, AfterValidator(_topic_base)]
TopicPrefix = Annotated[str, StringConstraints(max_length=200), AfterValidator(_topic_prefix)]
Devices = Annotated[tuple[Device, ...], Field(strict=False, min_length=1), AfterValidator(_different_devices)]
Mode = Annotated[Literal["continuous"], BeforeValidator(_continuous)]
Resize = Literal["letterbox", "letterbox_topleft", "stretch", "crop"]
LayoutName = Literal[
    "yolo",
    "yolo-end2end",
    "yolov5",
    "yolox",
    "yolox-decoded",
    "rtdetr",
    "detr-probs",
    "detr",
    "dfine",
    "ssd",
    "boxes-labels",
    "yolo-seg",
    "yolo-end2end-seg",
    "yolov5-seg",
]
"""As `decode.DECODERS`; not taken from there, since `check` needs no NumPy. A test compares the two."""
AutoCount = Annotated[Auto | Annotated[int, Field(ge=1, le=1024)], _number_or_auto(1, 1024, int)]
AutoMb = Annotated[Auto | Annotated[int, Field(ge=64, le=1_048_576)], _number_or_auto(64, 1_048_576, int)]
AutoGb = Annotated[Auto | Annotated[float, Field(ge=0.01, le=100_000)], _number_or_auto(0.01, 100_000, float)]
Names = Annotated[
    tuple[Text, ...],
    Field(strict=False, min_length=1),
    BeforeValidator(_one_as_list, json_schema_input_type=Text | Annotated[list[Text], Field(min_length=1)]),
]
"""One name or a list of names; always a tuple afterwards."""
Point = Annotated[tuple[Finite, Finite], Field(strict=False)]
Triple = Annotated[tuple[Finite, Finite, Finite], Field(strict=False)]
