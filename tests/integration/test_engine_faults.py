"""What a failing operation in the graph, a missing device and a damaged file lead to, on the true runtime."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray
from openvino import opset13

from inspectd.engine import ModelSpec
from inspectd.engine.openvino import OpenVinoEngine
from inspectd.errors import DeviceError, DeviceRefused, EngineError, ModelRefused, OutOfMemory, OutputError


def nothing() -> None:
    """No slot to check."""


def test_a_device_that_is_not_there_is_the_devices_fault(tmp_path: Path) -> None:
    """The next entry of `devices` is tried; another file would not help."""
    with pytest.raises(DeviceError, match="defects: cannot compile for NOSUCH"):
        faulty_engine(tmp_path, device="NOSUCH").open()


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    engine = faulty_engine(tmp_path)
    (tmp_path / "faulty.xml").write_bytes(b"<net><layers>")
    with pytest.raises(ModelRefused, match="cannot read model"):
        engine.open()


class Fault(ov.Op):  # type: ignore[misc]
    """An operation in the graph that fails on demand, inside the true CPU plugin."""

    mode = "ok"
    begun = threading.Event()
    go_on = threading.Event()

    def __init__(self, inputs: list[Any] | None = None) -> None:
        super().__init__(self)
        if inputs is not None:
            self.set_arguments(inputs)
            self.constructor_validate_and_infer_types()

    def validate_and_infer_types(self) -> None:
        self.set_output_type(0, self.get_input_element_type(0), self.get_input_partial_shape(0))

    def clone_with_new_inputs(self, inputs: list[Any]) -> Fault:
        return Fault(inputs)

    def visit_attributes(self, _visitor: Any) -> bool:
        return True

    def has_evaluate(self) -> bool:
        return True

    def evaluate(self, outputs: list[Any], inputs: list[Any]) -> bool:
        mode = Fault.mode
        if mode in ("broken", "CL_OUT_OF_RESOURCES"):
            raise RuntimeError(mode)
        if mode == "hang":
            Fault.begun.set()
            Fault.go_on.wait(10)
        inputs[0].copy_to(outputs[0])
        if mode == "nan":
            outputs[0].data[0, 5, 7] = np.nan
        return True


@pytest.fixture(autouse=True)
def _sound() -> Iterator[None]:
    """Each test begins with an operation that works."""
    Fault.mode = "ok"
    Fault.begun.clear()
    Fault.go_on.clear()
    yield
    Fault.go_on.set()


def faulty_engine(folder: Path, **changes: Any) -> OpenVinoEngine:
    """A raw `yolo` head of 2 classes that finds one box of class 0 whose score is the picture's first pixel."""
    picture = opset13.parameter([1, 3, 64, 64], ov.Type.f32, name="picture")
    pixel = opset13.reshape(
        opset13.slice(picture, [0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]), [1, 1, 1], special_zero=False
    )
    boxes = opset13.constant(np.tile(np.array([[32], [32], [8], [8]], np.float32), (1, 1, 84)))
    scores = opset13.multiply(opset13.constant(np.full((1, 2, 84), 0.01, np.float32)), pixel)
    one = np.zeros((1, 2, 84), np.float32)
    one[0, 0, 3] = 0.9
    head = opset13.concat([boxes, opset13.add(scores, opset13.multiply(opset13.constant(one), pixel))], 1)
    model = ov.Model([opset13.result(Fault([head.output(0)]).output(0))], [picture], "faulty")
    path = folder / "faulty.xml"
    ov.save_model(model, path, compress_to_fp16=False)
    core = ov.Core()
    core.add_extension(Fault)
    return OpenVinoEngine(
        replace(
            ModelSpec(
                "defects", path, threads=2, precision="f32", confidence=0.5, requests=2, classes=("open", "short")
            ),
            **changes,
        ),
        core,
    )


def bright() -> NDArray[np.uint8]:
    return np.full((64, 64, 3), 255, np.uint8)


@pytest.mark.parametrize(
    ("mode", "kind"), [("broken", EngineError), ("CL_OUT_OF_RESOURCES", DeviceError), ("nan", OutputError)]
)
def test_a_fault_in_the_graph_is_an_error_and_the_pool_goes_on(
    tmp_path: Path, mode: str, kind: type[EngineError]
) -> None:
    """Never an empty list. With AsyncInferQueue the request would be lost for ever."""
    engine = faulty_engine(tmp_path)
    engine.open()
    for request in (0, 1, 0):
        Fault.mode = mode
        with pytest.raises(EngineError, match="defects") as raised:
            engine.infer(request, bright(), nothing)
        assert type(raised.value) is kind
        Fault.mode = "ok"
        (found,) = engine.infer(request, bright(), nothing)
        assert (found.class_name, round(found.confidence, 2)) == ("open", 0.91)


@pytest.mark.parametrize("mode", ["broken", "nan"])
def test_a_model_that_fails_its_warm_up_is_refused(tmp_path: Path, mode: str) -> None:
    Fault.mode = mode
    with pytest.raises(DeviceRefused, match="failed its warm-up"):
        faulty_engine(tmp_path).open()


class SmallCore:
    """A device with room for two requests."""

    def __init__(self, core: ov.Core) -> None:
        self._core = core

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def compile_model(self, *arguments: Any) -> Any:
        compiled = self._core.compile_model(*arguments)
        left = iter(range(2))

        class Compiled:
            def __getattr__(self, name: str) -> Any:
                return getattr(compiled, name)

            def create_infer_request(self) -> Any:
                if next(left, None) is None:
                    raise RuntimeError("[GPU] CL_MEM_OBJECT_ALLOCATION_FAILURE")
                return compiled.create_infer_request()

        return Compiled()


def test_a_device_without_memory_for_the_requests_says_so_and_takes_fewer(tmp_path: Path) -> None:
    engine = faulty_engine(tmp_path, requests=8)
    engine._core = SmallCore(engine._core)
    with pytest.raises(OutOfMemory, match="cannot make an infer request"):
        engine.open()
    assert engine.requests == 8
    engine = faulty_engine(tmp_path, requests=8, requests_most=2)
    engine._core = SmallCore(engine._core)
    assert engine.open().requests == 2


def test_a_cancelled_inference_ends_in_an_error_while_the_other_request_goes_on(tmp_path: Path) -> None:
    """The request comes back when the running operation ends; its answer is not used."""
    engine = faulty_engine(tmp_path)
    engine.open()
    Fault.mode = "hang"
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(engine.infer, 0, bright(), nothing)
        assert Fault.begun.wait(10)
        Fault.mode = "ok"
        assert engine.infer(1, bright(), nothing)
        engine.cancel(0)
        Fault.go_on.set()
        with pytest.raises(EngineError, match="cancelled"):
            hanging.result(10)
    assert engine.infer(0, bright(), nothing)


def test_a_cancel_between_two_pictures_does_nothing(tmp_path: Path) -> None:
    """It was meant for the picture before."""
    engine = faulty_engine(tmp_path)
    engine.open()
    engine.cancel(0)
    assert engine.infer(0, bright(), nothing)


def test_a_picture_that_is_none_is_refused(tmp_path: Path) -> None:
    engine = faulty_engine(tmp_path)
    engine.open()
    with pytest.raises(EngineError, match=r"picture \[64, 64\], expected"):
        engine.infer(0, np.zeros((64, 64), np.uint8), nothing)
