"""One model on OpenVINO: an own pool of InferRequests, preprocessing in the graph, letterbox into the input tensor.

Not AsyncInferQueue: a failed request poisons its slot, and none of its waits has a limit. Here each request is driven
by one thread with `start_async` and `wait_for`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import openvino as ov  # type: ignore[import-untyped]
from numpy.typing import NDArray
from openvino.preprocess import ColorFormat, PrePostProcessor  # type: ignore[import-untyped]

from inspectd.decode import DECODERS, Decoder, Outputs, Reading, detections
from inspectd.decode.geometry import Placement, letterbox
from inspectd.decode.layouts import Head, Layout, recognise
from inspectd.engine import ModelSpec
from inspectd.engine.admission import WARMUP_LIMIT_S, WARMUP_RUNS, p95, requests_for, warmup_picture
from inspectd.engine.describe import model_info, picture_input, port_names, raw_outputs
from inspectd.engine.faults import FOREIGN, meaning
from inspectd.engine.modelfile import (
    InputRecipe,
    checked_hash,
    class_names,
    input_recipe,
    input_size_px,
    layout_claim,
    read_metadata,
)
from inspectd.errors import DeviceError, EngineError, ModelRefused, OutputError
from inspectd.records import Detection, ModelFacts

_log = logging.getLogger(__name__)

_WAIT_SLICE_MS = 100
"""A cancel that came just before the start is noticed after this at the latest."""
_CHANNELS = 3


class OpenVinoEngine:
    """The Engine of every model that OpenVINO reads."""

    def __init__(self, spec: ModelSpec, core: ov.Core | None = None) -> None:
        self._spec = spec
        self._core = core if core is not None else ov.Core()
        """A core from outside brings extensions: operations of one's own in the graph."""
        self._slots: list[_Slot] = []
        self._classes: tuple[str, ...] = ()

    def open(self) -> ModelFacts:
        """See Engine."""
        cv2.setNumThreads(1)
        spec = self._spec
        digest = checked_hash(spec)
        metadata = read_metadata(spec)
        model = self._read(input_size_px(metadata))
        info = model_info(model)
        recipe = input_recipe(spec, info)
        names = class_names(spec, metadata, info)
        axes, width_px, height_px = picture_input(spec.name, model)
        head = Head(
            raw_outputs(model), port_names(model.inputs[1:]), width_px, height_px, None if names is None else len(names)
        )
        layout = recognise(spec.name, head, layout_claim(metadata, info), spec.layout, tuple(DECODERS))
        if len(model.inputs) > 1:
            raise ModelRefused(f"{spec.name}: {len(model.inputs)} inputs, expected one, the picture")
        self._classes = _classes(spec, names, layout)
        is_quantised = any(node.get_type_name() == "FakeQuantize" for node in model.get_ops())
        compiled = self._compile(_with_preprocessing(spec, model, axes, recipe), digest)

        def new_slot() -> _Slot:
            reading = Reading(spec.confidence, spec.iou, len(self._classes), width_px, height_px)
            return _Slot(spec.name, compiled, DECODERS[layout.name], reading, recipe.pad)

        p95_s = self._warm_up(new_slot, layout)
        optimal = int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        requests = spec.requests or requests_for(spec.fps_total, p95_s, optimal)
        self._slots += [new_slot() for _ in range(requests - 1)]
        self._run_together()
        return ModelFacts(
            model=spec.name,
            task=spec.task,
            device=",".join(str(device).strip("()") for device in compiled.get_property("EXECUTION_DEVICES")),
            precision="int8" if is_quantised else _precision(compiled),
            hash=digest,
            classes=self._classes,
            requests=requests,
            input_width_px=width_px,
            input_height_px=height_px,
            layout=layout.name,
            warmup_p95_s=p95_s,
        )

    def infer(
        self, request: int, pixels: NDArray[np.uint8], on_letterboxed: Callable[[], None]
    ) -> tuple[Detection, ...]:
        """See Engine."""
        slot = self._slots[request]
        placement = slot.fill(pixels)
        on_letterboxed()
        slot.start()
        slot.finish()
        return slot.answer(placement, self._classes)

    def cancel(self, request: int) -> None:
        """See Engine."""
        self._slots[request].cancel()

    def close(self) -> None:
        """Drop the requests and with them the compiled model."""
        self._slots = []

    def _read(self, size_px: tuple[int, int] | None) -> ov.Model:
        """Read the file; a shape that it leaves open is fixed at the size that its metadata gives."""
        spec = self._spec
        try:
            model = self._core.read_model(spec.path)
            shape = model.inputs[0].partial_shape if model.inputs else ov.PartialShape([])
            if shape.is_dynamic and shape.rank.is_static and len(shape) == 4 and size_px is not None:
                channels_last = shape[3].is_static and shape[3].get_length() == _CHANNELS
                model.reshape({0: [1, *size_px, _CHANNELS] if channels_last else [1, _CHANNELS, *size_px]})
        except FOREIGN as error:
            raise meaning(spec.name, f"cannot read model {spec.path}", error, ModelRefused) from error
        return model

    def _compile(self, model: ov.Model, digest: str) -> ov.CompiledModel:
        """Compile with the cache if there is one; a cache that fails (full, read-only, stale) only costs time."""
        spec = self._spec
        try:
            settings = self._settings()
            if spec.cache_dir is not None:
                cache = {"CACHE_DIR": str(spec.cache_dir / digest[:16])}
                try:
                    return self._core.compile_model(model, spec.device, settings | cache)
                except FOREIGN as error:
                    _log.warning(
                        "%s", meaning(spec.name, f"compiling without the cache {spec.cache_dir}", error, ModelRefused)
                    )
            return self._core.compile_model(model, spec.device, settings)
        except FOREIGN as error:
            raise meaning(spec.name, f"cannot compile for {spec.device}", error, ModelRefused) from error

    def _settings(self) -> dict[str, Any]:
        """What the device knows of what we want. Threads are not pinned: several children would share one core."""
        spec = self._spec
        wanted: dict[str, Any] = {
            "PERFORMANCE_HINT": spec.hint.upper(),
            "INFERENCE_NUM_THREADS": spec.threads,
            "ENABLE_CPU_PINNING": False,
        }
        if spec.requests is not None:
            wanted["PERFORMANCE_HINT_NUM_REQUESTS"] = spec.requests
        if spec.precision != "auto":
            wanted["INFERENCE_PRECISION_HINT"] = spec.precision
        known = self._core.get_property(spec.device, "SUPPORTED_PROPERTIES")
        return {key: value for key, value in wanted.items() if key in known}

    def _warm_up(self, new_slot: Callable[[], _Slot], layout: Layout) -> float:
        """Run one request alone and look at all that it answers. Gives the p95 of a whole `infer`."""
        durations_s: list[float] = []
        try:
            slot = new_slot()
            self._slots = [slot]
            picture = warmup_picture(slot.reading.input_width_px, slot.reading.input_height_px)
            self.infer(0, picture, _nothing)
            slot.check()
            while len(durations_s) < WARMUP_RUNS and sum(durations_s) < WARMUP_LIMIT_S:
                begin_s = time.monotonic()
                self.infer(0, picture, _nothing)
                durations_s.append(time.monotonic() - begin_s)
        except DeviceError:
            raise
        except EngineError as error:
            raise ModelRefused(
                f"{self._spec.name}: {self._spec.path} as layout {layout.name} (by {layout.decided_by}) failed its "
                f"warm-up: {error}; check `layout` and `classes`, or export the model again"
            ) from error
        return p95(durations_s)

    def _run_together(self) -> None:
        """One inference on every request at once, so that no stream makes its first picture wait."""
        for slot in self._slots:
            slot.start()
        for slot in self._slots:
            slot.finish()


class _Slot:
    """One InferRequest with its own input memory."""

    def __init__(self, name: str, compiled: ov.CompiledModel, decoder: Decoder, reading: Reading, pad: int) -> None:
        self._name = name
        self._decoder = decoder
        self.reading = reading
        self._pad = pad
        self._canvas = np.full((1, reading.input_height_px, reading.input_width_px, _CHANNELS), pad, dtype=np.uint8)
        self._placement: Placement | None = None
        self._is_cancelled = False
        try:
            self._request = compiled.create_infer_request()
            self._request.set_input_tensor(0, ov.Tensor(self._canvas, shared_memory=True))
        except FOREIGN as error:
            raise meaning(name, "cannot make an infer request", error, DeviceError) from error
        self._output_count = len(compiled.outputs)

    def fill(self, pixels: NDArray[np.uint8]) -> Placement:
        """Letterbox into the input tensor. Forgets a cancel that was meant for the picture before."""
        self._is_cancelled = False
        if pixels.ndim != 3 or pixels.shape[2] != _CHANNELS or not pixels.size:
            raise EngineError(f"{self._name}: picture {list(pixels.shape)}, expected [height, width, 3]")
        placement = letterbox(
            pixels.shape[1], pixels.shape[0], self.reading.input_width_px, self.reading.input_height_px
        )
        if placement != self._placement:
            self._canvas.fill(self._pad)
            self._placement = placement
        placement.paste(pixels, self._canvas[0])
        return placement

    def start(self) -> None:
        if self._is_cancelled:
            raise EngineError(f"{self._name}: cancelled")
        try:
            self._request.start_async()
        except FOREIGN as error:
            raise meaning(self._name, "inference did not start", error, EngineError) from error

    def finish(self) -> None:
        try:
            while not self._request.wait_for(_WAIT_SLICE_MS):
                if self._is_cancelled:
                    self._request.cancel()
        except FOREIGN as error:
            if self._is_cancelled:
                raise EngineError(f"{self._name}: cancelled") from error
            raise meaning(self._name, "inference failed", error, EngineError) from error
        if self._is_cancelled:
            raise EngineError(f"{self._name}: cancelled")

    def cancel(self) -> None:
        self._is_cancelled = True
        self._request.cancel()

    def answer(self, placement: Placement, classes: tuple[str, ...]) -> tuple[Detection, ...]:
        try:
            found = self._decoder.decode(self._outputs(), self.reading)
        except OutputError as error:
            raise OutputError(f"{self._name}: {error}") from error
        return detections(found, placement, classes, self._name)

    def check(self) -> None:
        self._decoder.check(self._outputs(), self.reading)

    def _outputs(self) -> Outputs:
        """Views into the request's memory: good until its next start. By index, since names may be missing."""
        return [self._request.get_output_tensor(index).data for index in range(self._output_count)]


def _with_preprocessing(spec: ModelSpec, model: ov.Model, axes: str, recipe: InputRecipe) -> ov.Model:
    """u8 NHWC BGR in and f32 out; colour, scale and layout become part of the graph."""
    try:
        steps = PrePostProcessor(model)
        picture = steps.input(0)
        picture.tensor().set_element_type(ov.Type.u8).set_layout(ov.Layout("NHWC")).set_color_format(ColorFormat.BGR)
        picture.model().set_layout(ov.Layout(axes))
        picture.preprocess().convert_element_type(ov.Type.f32)
        if recipe.color == "rgb":
            picture.preprocess().convert_color(ColorFormat.RGB)
        picture.preprocess().mean(list(recipe.subtract)).scale(list(recipe.divide))
        for index, output in enumerate(model.outputs):
            if output.element_type.is_real():
                steps.output(index).tensor().set_element_type(ov.Type.f32)
        return steps.build()
    except FOREIGN as error:
        raise meaning(spec.name, "cannot add the preprocessing", error, ModelRefused) from error


def _classes(spec: ModelSpec, names: tuple[str, ...] | None, layout: Layout) -> tuple[str, ...]:
    if names is not None:
        return names
    if layout.class_count is None:
        raise ModelRefused(
            f"{spec.name}: neither the file nor the configuration names the classes, and layout {layout.name} does not "
            "tell how many there are; add `classes: [...]` under the model"
        )
    return tuple(f"class_{index}" for index in range(layout.class_count))


def _precision(compiled: ov.CompiledModel) -> str:
    return str(compiled.get_property("INFERENCE_PRECISION_HINT").to_string())


def _nothing() -> None:
    """No shared slot, no stamp to check."""
