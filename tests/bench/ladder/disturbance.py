"""An operation at the end of a graph that sleeps or fails on demand, inside the true CPU plugin."""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov  # type: ignore[import-untyped]
from openvino import opset13 as ops

_FIRST = 10


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What happens on every so many-th call, first on the tenth: a slow model shall meet it too."""

    every: int
    sleep_s: float = 0.0
    fails: bool = False


class Disturbed(ov.Op):  # type: ignore[misc]
    """Hands its input on. The class itself holds the plan, since the plugin makes copies of the operation."""

    plan: Disturbance | None = None
    at_once = threading.Semaphore(2)
    """An accelerator has room for so many; the CPU plugin would run as many as it has streams."""
    _calls = itertools.count(1)

    @classmethod
    def begin(cls, plan: Disturbance | None) -> None:
        """From now on, counted anew."""
        cls._calls = itertools.count(1)
        cls.plan = plan

    def __init__(self, inputs: list[Any] | None = None) -> None:
        super().__init__(self)
        if inputs is not None:
            self.set_arguments(inputs)
            self.constructor_validate_and_infer_types()

    def validate_and_infer_types(self) -> None:
        self.set_output_type(0, self.get_input_element_type(0), self.get_input_partial_shape(0))

    def clone_with_new_inputs(self, inputs: list[Any]) -> Disturbed:
        return Disturbed(inputs)

    def visit_attributes(self, _visitor: Any) -> bool:
        return True

    def has_evaluate(self) -> bool:
        return True

    def evaluate(self, outputs: list[Any], inputs: list[Any]) -> bool:
        plan = Disturbed.plan
        if plan is not None and next(Disturbed._calls) % plan.every == _FIRST % plan.every:
            if plan.fails:
                raise RuntimeError("the operation failed as it was told to")
            with Disturbed.at_once:
                time.sleep(plan.sleep_s)
        inputs[0].copy_to(outputs[0])
        return True


def core() -> ov.Core:
    """A core that knows the operation."""
    made = ov.Core()
    made.add_extension(Disturbed)
    return made


def disturbed_copy(model: Path, folder: Path) -> Path:
    """Write the model with the operation before its first output; what the file says of itself stays."""
    read = core().read_model(model)
    result = read.outputs[0].node
    source = result.input_value(0)
    names = source.names
    operation = Disturbed([source])
    result.input(0).replace_source_output(operation.output(0))
    source.set_names(set())
    operation.output(0).set_names(names)
    read.validate_nodes_and_infer_types()
    path = folder / f"{model.stem}-disturbed.xml"
    ov.save_model(read, path, compress_to_fp16=False)
    metadata = model.with_name("metadata.yaml")
    if metadata.exists():
        shutil.copy(metadata, folder)
    return path


def bare_head(path: Path, side_px: int) -> Path:
    """Write a net of the layout `yolo` that computes nothing: one box of one of two classes in any picture."""
    rows = sum((side_px // stride) ** 2 for stride in (8, 16, 32))
    head = np.full((1, 6, rows), 0.01, np.float32)
    head[0, :4] = side_px / 2
    head[0, 4, 0] = 0.9
    picture = ops.parameter([1, 3, side_px, side_px], ov.Type.f32, name="images")
    pixel = ops.slice(picture, [0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1])
    nothing = ops.reshape(ops.multiply(pixel, np.float32(0)), [1, 1, 1], special_zero=False)
    model = ov.Model([ops.result(ops.add(ops.constant(head), nothing))], [picture], "bare")
    model.set_rt_info("one other", ["model_info", "labels"])
    ov.save_model(model, path, compress_to_fp16=False)
    return path
