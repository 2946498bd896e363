"""Brings the operation into every Core, and faults into what is around the graph: compile, letterbox, answer."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import openvino as ov  # type: ignore[import-untyped]
from tests.faults.inject.op import FaultOp
from tests.faults.inject.orders import FOLDER_VARIABLE, Order, claimed


def install(model: str) -> None:
    """In the child of this model, as soon as it has imported the runtime."""
    FaultOp.model = model
    make, compile_model = ov.Core.__init__, ov.Core.compile_model
    get_output, resize = ov.InferRequest.get_output_tensor, cv2.resize

    def __init__(core: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807 - it takes that one's place
        make(core, *arguments, **options)
        core.add_extension(FaultOp)

    def compile_or_refuse(core: Any, *arguments: Any, **options: Any) -> Any:
        if (order := _ordered(model, "refuse")) is not None:
            raise RuntimeError(order.text)
        return compile_model(core, *arguments, **options)

    def resize_slowly(*arguments: Any, **options: Any) -> Any:
        if (order := _ordered(model, "letterbox")) is not None:
            time.sleep(order.seconds)
        return resize(*arguments, **options)

    def output_or_another(request: Any, *arguments: Any) -> Any:
        tensor = get_output(request, *arguments)
        if _ordered(model, "reshape") is not None:
            return ov.Tensor(np.ascontiguousarray(tensor.data[..., :-1]))
        return tensor

    ov.Core.__init__, ov.Core.compile_model = __init__, compile_or_refuse
    ov.InferRequest.get_output_tensor = output_or_another
    cv2.resize = resize_slowly


def _ordered(model: str, kind: str) -> Order | None:
    return claimed(Path(os.environ[FOLDER_VARIABLE]), model, frozenset({kind}))
