"""A read OpenVINO model described as plain values. Imports no runtime: it is handed the model."""

from __future__ import annotations

from typing import Any

from inspectd.decode.layouts import Output
from inspectd.errors import ModelRefused


def picture_input(name: str, model: Any) -> tuple[str, int, int]:
    """(axes, width, height) of the first input. Raises ModelRefused if it is none that a picture fits."""
    shape = model.inputs[0].partial_shape if model.inputs else None
    if shape is not None and shape.is_static:
        match list(shape.to_shape()):
            case [1, 3, height_px, width_px]:
                return "NCHW", width_px, height_px
            case [1, height_px, width_px, 3]:
                return "NHWC", width_px, height_px
    raise ModelRefused(
        f"{name}: input {shape}, expected one picture of three channels, [1,3,height,width] or "
        "[1,height,width,3] with fixed sizes; export the model with batch 1 and a fixed image size"
    )


def raw_outputs(model: Any) -> tuple[Output, ...]:
    """Names, shapes and kinds of the outputs, in their order."""
    return tuple(
        Output(
            name,
            tuple(side.get_length() if side.is_static else -1 for side in output.partial_shape),
            not output.element_type.is_real(),
        )
        for name, output in zip(port_names(model.outputs), model.outputs, strict=True)
        if output.partial_shape.rank.is_static
    )


def port_names(ports: list[Any]) -> tuple[str, ...]:
    """Names of inputs or outputs; some exporters give none, and asking for one then raises."""
    return tuple(min(port.names, default="") for port in ports)


def model_info(model: Any) -> dict[str, str]:
    """`rt_info/model_info` as text; empty if the file has none."""
    if not model.has_rt_info(["model_info"]):
        return {}
    section = model.get_rt_info(["model_info"]).value
    return {str(key): str(value) for key, value in section.items()} if isinstance(section, dict) else {}
