"""Tiny detectors as true files: an anchor-free head, as IR and as ONNX, in the forms that exporters write.

A score is high where the picture is bright. The boxes are the cells themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import openvino as ov  # type: ignore[import-untyped]
from numpy.typing import NDArray
from openvino import opset13 as ops

STRIDES = (8, 16, 32)
ROW_COUNT = 84
"""At 64 × 64."""


def grid_boxes(side_px: int = 64) -> NDArray[np.float32]:
    """[1, 4, N] cx cy w h of every cell."""
    levels = []
    for stride in STRIDES:
        y, x = np.mgrid[: side_px // stride, : side_px // stride].reshape(2, -1)
        size = np.full(len(x), stride)
        levels.append(np.stack(((x + 0.5) * stride, (y + 0.5) * stride, size, size)))
    return np.concatenate(levels, axis=1)[None].astype(np.float32)


def weights(class_count: int, stride: int) -> NDArray[np.float32]:
    """Each class looks at one colour of its cell's middle: red for class 0, then green, blue, red …."""
    kernel = np.random.default_rng(stride).normal(0, 0.001, (class_count, 3, stride, stride))
    for kind in range(class_count):
        kernel[kind, kind % 3, stride // 2, stride // 2] = 12
    return kernel.astype(np.float32)


def ir(
    path: Path,
    *,
    shape: Sequence[int] = (1, 3, 64, 64),
    class_count: int = 2,
    batch: int | None = None,
    kind: ov.Type = ov.Type.f32,
    half_output: bool = False,
    extra_input: str = "",
    fault: float | None = None,
    info: dict[str, str] | None = None,
) -> Path:
    """Save a `yolo` head as IR. `batch`: a fixed number of pictures is written into the graph itself."""
    picture = ops.parameter(list(shape), kind, name="images")
    x = ops.convert(picture, "f32")
    if shape[-1] == 3:
        x = ops.transpose(x, [0, 3, 1, 2])
    side_px = 64 if -1 in shape else max(shape[1:])
    scores = []
    for stride in STRIDES:
        kernel = weights(class_count, stride)
        if fault is not None:
            kernel[0, 0, 0, 0] = fault
        level = ops.convolution(x, ops.constant(kernel), [stride] * 2, [0, 0], [0, 0], [1, 1])
        level = ops.sigmoid(ops.subtract(level, np.float32(6)))
        scores.append(ops.reshape(level, [batch or 0, class_count, -1], special_zero=batch is None))
    table = ops.concat(scores, 2)
    nothing = ops.multiply(ops.slice(table, [0], [1], [1], [1]), np.float32(0))
    head = ops.concat([ops.add(nothing, ops.constant(grid_boxes(side_px))), table], 1)
    result = ops.result(ops.convert(head, "f16") if half_output else head)
    inputs = [picture]
    if extra_input:
        inputs.append(ops.parameter([1, 2], ov.Type.f32, name=extra_input))
        inputs[-1].output(0).set_names({extra_input})
        result = ops.result(ops.add(head, ops.multiply(ops.reduce_sum(inputs[-1], [0, 1]), np.float32(0))))
    model = ov.Model([result], inputs, "tiny")
    for key, value in (info or {}).items():
        model.set_rt_info(value, ["model_info", key])
    ov.save_model(model, path, compress_to_fp16=False)
    return path


def onnx(path: Path, metadata: dict[str, str] | None = None, class_count: int = 2) -> Path:
    """Save the same head as ONNX, written by hand (onnx/onnx.proto; IR version 8, opset 13)."""
    tensors = [_tensor("boxes", grid_boxes()), _tensor("to", np.array([0, class_count, -1]))]
    nodes, levels = [], []
    for stride in STRIDES:
        tensors.append(_tensor(f"w{stride}", weights(class_count, stride)))
        tensors.append(_tensor(f"b{stride}", np.full(class_count, -6, np.float32)))
        sides = _ints("kernel_shape", stride, stride) + _ints("strides", stride, stride)
        nodes.append(_node("Conv", ["images", f"w{stride}", f"b{stride}"], f"c{stride}", sides))
        nodes.append(_node("Sigmoid", [f"c{stride}"], f"s{stride}"))
        nodes.append(_node("Reshape", [f"s{stride}", "to"], f"r{stride}"))
        levels.append(f"r{stride}")
    nodes.append(_node("Concat", levels, "scores", _int("axis", 2)))
    nodes.append(_node("Concat", ["boxes", "scores"], "output0", _int("axis", 1)))
    graph = b"".join(_field(1, node) for node in nodes) + _field(2, b"tiny") + b"".join(_field(5, t) for t in tensors)
    graph += _field(11, _value("images", (1, 3, 64, 64))) + _field(
        12, _value("output0", (1, 4 + class_count, ROW_COUNT))
    )
    entries = (_field(1, key.encode()) + _field(2, text.encode()) for key, text in (metadata or {}).items())
    opset = _field(8, _number(2, 13))
    path.write_bytes(_number(1, 8) + _field(7, graph) + opset + b"".join(_field(14, entry) for entry in entries))
    return path


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _field(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _tensor(name: str, values: NDArray[np.float32] | NDArray[np.int64]) -> bytes:
    kind = 1 if values.dtype == np.float32 else 7
    sides = b"".join(_number(1, side) for side in values.shape)
    return sides + _number(2, kind) + _field(8, name.encode()) + _field(9, values.tobytes())


def _node(operation: str, inputs: Sequence[str], output: str, attributes: bytes = b"") -> bytes:
    names = b"".join(_field(1, name.encode()) for name in inputs)
    return names + _field(2, output.encode()) + _field(4, operation.encode()) + attributes


def _ints(name: str, *values: int) -> bytes:
    return _field(5, _field(1, name.encode()) + b"".join(_number(8, value) for value in values) + _number(20, 7))


def _int(name: str, value: int) -> bytes:
    return _field(5, _field(1, name.encode()) + _number(3, value) + _number(20, 2))


def _value(name: str, shape: Sequence[int]) -> bytes:
    sides = b"".join(_field(1, _number(1, side)) for side in shape)
    return _field(1, name.encode()) + _field(2, _field(1, _number(1, 1) + _field(2, sides)))
