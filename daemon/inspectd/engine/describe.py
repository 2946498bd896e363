"""A read OpenVINO model as plain values, and its shapes made fixed. Imports no runtime: it is handed the model."""

from __future__ import annotations

from typing import Any

import numpy as np

from inspectd.decode.layouts import Output
from inspectd.decode.signatures import SIZES_INPUT
from inspectd.engine.description import Net
from inspectd.engine.faults import FOREIGN, meaning
from inspectd.engine.sourced import Source, Sourced
from inspectd.errors import ModelRefused

_CHANNELS = 3
_ASSUMED_SIDE_PX = 640
"""Of an input whose size is open and that nobody tells: the size of nearly all detectors' exports."""


def fixed_net(name: str, model: Any, told_size_px: Sourced[tuple[int, int]] | None) -> Net:
    """Fix the shapes of `model` at one picture and describe it.

    Raises ModelRefused if there is no input that a picture fits, one that cannot be filled, or if the net does not take
    the fixed shape.
    """
    picture = _picture_index(name, model)
    partial = model.inputs[picture].partial_shape
    sides = [side.get_length() if side.is_static else -1 for side in partial]
    axes = _axes(name, sides, partial)
    size_px = _size_px((sides[2], sides[3]) if axes == "NCHW" else (sides[1], sides[2]), told_size_px)
    height_px, width_px = size_px.value
    extras = [index for index in range(len(model.inputs)) if index != picture]
    names = port_names(model.inputs)
    strange = [index for index in extras if names[index] != SIZES_INPUT]
    if strange:
        raise ModelRefused(
            f"{name}: input {names[strange[0]] or strange[0]} {model.inputs[strange[0]].partial_shape} is none that "
            f"inspectd can fill; expected the picture alone, or {SIZES_INPUT} beside it: export the model without it"
        )
    wanted: dict[int, list[int]] = {picture: [1, _CHANNELS, height_px, width_px]}
    if axes == "NHWC":
        wanted[picture] = [1, height_px, width_px, _CHANNELS]
    wanted |= {index: [1, 2] for index in extras}
    if any(list(_sides(model.inputs[index].partial_shape)) != shape for index, shape in wanted.items()):
        _reshape(name, model, wanted, f"{partial} does not become {wanted[picture]}")
    outputs = raw_outputs(model)
    batched = [output for output in outputs if sides[0] > 1 and output.shape[:1] == (sides[0],)]
    if batched:
        raise ModelRefused(
            f"{name}: input {partial} is made for {sides[0]} pictures at once, and output {list(batched[0].shape)} "
            "stays so with one; export the model with batch 1"
        )
    return Net(
        picture_index=picture,
        axes=axes,
        size_px=size_px,
        is_integer_input=not model.inputs[picture].element_type.is_real(),
        sizes_index=extras[0] if extras else None,
        outputs=outputs,
        extra_inputs=tuple(names[index] for index in extras),
    )


def _reshape(name: str, model: Any, wanted: dict[int, list[int]], what: str) -> None:
    try:
        model.reshape(wanted)
    except FOREIGN as error:
        doing = f"input {what} (export a detector with batch 1 and a fixed image size)"
        raise meaning(name, doing, error, ModelRefused) from error


def raw_outputs(model: Any) -> tuple[Output, ...]:
    """Names, shapes and kinds of the outputs, in their order; no shape at all is ()."""
    return tuple(
        Output(name, _sides(output.partial_shape), not output.element_type.is_real())
        for name, output in zip(port_names(model.outputs), model.outputs, strict=True)
    )


def port_names(ports: list[Any]) -> tuple[str, ...]:
    """Names of inputs or outputs; some exporters give none, and asking for one then raises."""
    return tuple(SIZES_INPUT if SIZES_INPUT in port.names else min(port.names, default="") for port in ports)


def model_info(model: Any) -> dict[str, str]:
    """`rt_info/model_info` as text; empty if the file has none."""
    if not model.has_rt_info(["model_info"]):
        return {}
    section = model.get_rt_info(["model_info"]).value
    return {str(key): str(value) for key, value in section.items()} if isinstance(section, dict) else {}


def is_quantised(model: Any) -> bool:
    """Whether the net works in whole numbers."""
    return any(node.get_type_name() == "FakeQuantize" for node in model.get_ops())


def require_sound_weights(name: str, model: Any) -> None:
    """Refuse NaN among the weights: an activation can swallow it, and the answer is then wrong and looks right.

    Infinity is allowed: attention masks are made of it.
    """
    for node in model.get_ops():
        if node.get_type_name() != "Constant" or node.get_element_type().get_type_name() not in ("f32", "f16"):
            continue
        weights = node.data
        with np.errstate(all="ignore"):
            if np.isfinite(weights.sum()) or not np.isnan(weights).any():
                continue
        raise ModelRefused(
            f"{name}: {int(np.isnan(weights).sum())} of {weights.size} weights of {node.get_friendly_name()} are NaN; "
            "the training went wrong or the file is damaged: export the model again"
        )


def _picture_index(name: str, model: Any) -> int:
    """The first input of rank 4."""
    for index, port in enumerate(model.inputs):
        if port.partial_shape.rank.is_static and len(port.partial_shape) == 4:
            return index
    shapes = ", ".join(str(port.partial_shape) for port in model.inputs) or "none"
    raise _no_picture(name, shapes)


def _axes(name: str, sides: list[int], partial: Any) -> str:
    if sides[1] == _CHANNELS or (sides[1] == -1 and sides[3] != _CHANNELS):
        return "NCHW"
    if sides[3] == _CHANNELS:
        return "NHWC"
    raise _no_picture(name, str(partial))


def _size_px(sides: tuple[int, int], told: Sourced[tuple[int, int]] | None) -> Sourced[tuple[int, int]]:
    """(height, width): what the file fixes, else what it tells, else 640."""
    if -1 not in sides:
        return Sourced(sides, Source.FILE, "input shape")
    given, source, where = (
        (told.value, told.source, told.where)
        if told is not None
        else ((_ASSUMED_SIDE_PX, _ASSUMED_SIDE_PX), Source.ASSUMED, "input shape is open")
    )
    height_px, width_px = (side if side != -1 else open_side for side, open_side in zip(sides, given, strict=True))
    return Sourced((height_px, width_px), source, where)


def _sides(partial: Any) -> tuple[int, ...]:
    if partial.rank.is_dynamic:
        return ()
    return tuple(side.get_length() if side.is_static else -1 for side in partial)


def _no_picture(name: str, shapes: str) -> ModelRefused:
    return ModelRefused(
        f"{name}: input {shapes}, expected one picture of three channels, [1,3,height,width] or [1,height,width,3]; "
        "export a detector for colour pictures, with batch 1 and a fixed image size"
    )
