"""One model on OpenVINO: an own pool of InferRequests, preprocessing in the graph, letterbox into the input tensor.

Not AsyncInferQueue: a failed request poisons its slot, and none of its waits has a limit. Here each request is driven
by one thread with `start_async` and `wait_for`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import openvino as ov  # type: ignore[import-untyped]
from numpy.typing import NDArray
from openvino.preprocess import ColorFormat, PrePostProcessor  # type: ignore[import-untyped]

from inspectd.decode import DECODERS, Reading, detections
from inspectd.engine import ModelSpec, Step
from inspectd.engine.admission import (
    WARMUP_LIMIT_S,
    WARMUP_RUNS,
    is_same_answer,
    p95,
    requests_for,
    warmup_picture,
)
from inspectd.engine.cache import Answer, CacheEntry, entry_key
from inspectd.engine.describe import fixed_net, is_quantised, model_info, require_sound_weights
from inspectd.engine.description import ModelDescription, describe
from inspectd.engine.faults import FOREIGN, meaning
from inspectd.engine.modelfile import checked_hash, input_size_px, read_words
from inspectd.engine.settings import at_most, devices_for, full_device_name, settings_for
from inspectd.engine.slot import Canvas, Slot
from inspectd.errors import DeviceError, DeviceRefused, EngineError, ModelRefused
from inspectd.records import Detection, ModelFacts

_log = logging.getLogger(__name__)


class OpenVinoEngine:
    """The Engine of every model that OpenVINO reads."""

    def __init__(self, spec: ModelSpec, core: ov.Core | None = None) -> None:
        self._spec = spec
        self._core = core if core is not None else ov.Core()
        """A core from outside brings extensions: operations of one's own in the graph."""
        self.requests = at_most(spec.requests or 1, spec.requests_most)
        self.on_step: Callable[[Step], None] = lambda _: None
        self._slots: list[Slot] = []
        self._classes: tuple[str, ...] = ()
        self._described: ModelDescription | None = None
        self._has_told_of_numbers = False

    def open(self) -> ModelFacts:
        """See Engine."""
        cv2.setNumThreads(1)
        spec, (model, described) = self._spec, self._read()
        is_int8 = is_quantised(model)
        try:
            compiled, p95_s = self._admit(model, described)
        except ModelRefused as error:
            other = described.alternative()
            if other is None:
                raise
            _log.info("%s", error)
            model, described = self._read()[0], other
            compiled, p95_s = self._admit(model, described)
        for note in described.notes:
            _log.warning("%s: %s", spec.name, note)
        self._described = described
        optimal = int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        requests = spec.requests or requests_for(spec.fps_total, p95_s, optimal)
        self.requests = at_most(requests, spec.requests_most)
        self._slots += [self._slot(compiled, described) for _ in range(self.requests - 1)]
        self._run_together()
        return ModelFacts(
            model=spec.name,
            task=spec.task,
            device=",".join(str(device).strip("()") for device in compiled.get_property("EXECUTION_DEVICES")),
            precision="int8" if is_int8 else compiled.get_property("INFERENCE_PRECISION_HINT").to_string(),
            hash=described.sha256,
            classes=self._classes,
            requests=self.requests,
            input_width_px=described.input_width_px,
            input_height_px=described.input_height_px,
            layout=described.layout.value,
            warmup_p95_s=p95_s,
        )

    def describe(self) -> ModelDescription:
        """Say what is made of the model file, and which devices of this PC can run it.

        Runs the model only where its warm-up decides something. Raises LayoutRefused with the candidates, or
        ModelRefused.
        """
        model, described = self._read()
        if self._described is not None or described.alternative() is not None:
            if self._described is None:
                self.open()
                self.close()
            described = self._described or described
        return replace(described, devices=devices_for(self._spec.name, self._core, model))

    def input_picture(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Give a picture as the open model gets it: [H, W, 3] BGR of the input's size, before colour and scale."""
        canvas = self._canvas(self._described or self._read()[1])
        canvas.fill(pixels)
        picture: NDArray[np.uint8] = canvas.pixels[0]
        return picture

    def infer(
        self, request: int, pixels: NDArray[np.uint8], on_letterboxed: Callable[[], None]
    ) -> tuple[Detection, ...]:
        """See Engine."""
        slot = self._slots[request]
        placement = slot.fill(pixels)
        on_letterboxed()
        slot.start()
        slot.finish()
        found = slot.found()
        highest = int(found.class_ids.max(initial=-1))
        if highest >= len(self._classes) and not self._has_told_of_numbers:
            self._has_told_of_numbers = True
            _log.warning(
                "%s: class %d was found and %d are named; it is called class_%d: complete `classes` under the model",
                self._spec.name,
                highest,
                len(self._classes),
                highest,
            )
        return detections(found, placement, self._classes, self._spec.name)

    def cancel(self, request: int) -> None:
        """See Engine."""
        self._slots[request].cancel()

    def close(self) -> None:
        """Drop the requests and with them the compiled model."""
        self._slots = []

    def _read(self) -> tuple[ov.Model, ModelDescription]:
        """Read the file, fix its shapes, and decide all that can be decided before it runs."""
        spec = self._spec
        digest = checked_hash(spec)
        try:
            model = self._core.read_model(spec.path)
            words = read_words(spec, model_info(model))
            net = fixed_net(spec.name, model, input_size_px(words))
        except FOREIGN as error:
            raise meaning(spec.name, f"cannot read model {spec.path}", error, ModelRefused) from error
        described = describe(spec, digest, words, net)
        require_sound_weights(spec.name, model)
        return model, described

    def _admit(self, model: ov.Model, described: ModelDescription) -> tuple[ov.CompiledModel, float]:
        """Compile and warm up with one request; give the p95 of a whole `infer`. Raises DeviceRefused."""
        name = self._spec.name
        self._classes = described.classes.value
        self._has_told_of_numbers = not self._classes  # its notes say so
        model = _with_preprocessing(name, model, described)
        settings = self._settings()
        entry = self._cache_entry(described, settings)
        compiled = self._compile(model, settings, entry)
        self._slots = [self._slot(compiled, described)]
        if entry is not None and entry.answer is not None:
            if is_same_answer(self._first_answer(described), entry.answer):
                return compiled, self._warm_up(described)
            _log.warning("%s: the cached model answers otherwise than when it was compiled; made again", name)
            entry.drop(name)
            compiled = self._compile(model, settings, entry)
            self._slots = [self._slot(compiled, described)]
        p95_s = self._warm_up(described)
        if entry is not None:
            entry.seal(name, self._first_answer(described))
        return compiled, p95_s

    def _settings(self) -> dict[str, Any]:
        device = self._spec.device
        try:
            return settings_for(self._spec, self._core.get_property(device, "SUPPORTED_PROPERTIES"))
        except FOREIGN as error:
            raise meaning(self._spec.name, f"cannot compile for {device}", error, DeviceError) from error

    def _cache_entry(self, described: ModelDescription, settings: Mapping[str, Any]) -> CacheEntry | None:
        spec = self._spec
        if spec.cache_dir is None:
            return None
        key = entry_key(
            {
                "file": described.sha256,
                "openvino": ov.__version__,
                "device": (spec.device, full_device_name(self._core, spec.device)),
                "settings": settings,
                "input": (described.preprocessing.preparation, described.net),
            }
        )
        return CacheEntry.open(spec.name, spec.cache_dir, key)

    def _compile(self, model: ov.Model, settings: Mapping[str, Any], entry: CacheEntry | None) -> ov.CompiledModel:
        """Compile, with the cache if there is one; a cache that fails (full, read-only) only costs time."""
        self.on_step("compiling")
        compiled = self._compiled(model, settings, entry)
        self.on_step("warmingUp")
        return compiled

    def _compiled(self, model: ov.Model, settings: Mapping[str, Any], entry: CacheEntry | None) -> ov.CompiledModel:
        spec = self._spec
        if entry is not None:
            try:
                return self._core.compile_model(model, spec.device, {**settings, "CACHE_DIR": str(entry.folder)})
            except FOREIGN as error:
                _log.warning("%s", meaning(spec.name, "compiling without the cache", error, ModelRefused))
        try:
            return self._core.compile_model(model, spec.device, settings)
        except FOREIGN as error:
            raise meaning(spec.name, f"cannot compile for {spec.device}", error, DeviceRefused) from error

    def _slot(self, compiled: ov.CompiledModel, described: ModelDescription) -> Slot:
        """Make one request with its own input memory."""
        spec, net, canvas = self._spec, described.net, self._canvas(described)
        width_px, height_px = described.input_width_px, described.input_height_px
        try:
            request = compiled.create_infer_request()
            request.set_input_tensor(net.picture_index, ov.Tensor(canvas.pixels, shared_memory=True))
            if net.sizes_index is not None:
                kind = compiled.inputs[net.sizes_index].element_type.to_dtype()
                sizes = ov.Tensor(np.array([[width_px, height_px]], dtype=kind))
                request.set_input_tensor(net.sizes_index, sizes)
        except FOREIGN as error:
            raise meaning(spec.name, "cannot make an infer request", error, DeviceError) from error
        layout = described.recognised
        reading = Reading(described.confidence.value, described.iou.value, layout.class_count or 0, width_px, height_px)
        return Slot(spec.name, request, canvas, layout.order, DECODERS[layout.name], reading)

    def _canvas(self, described: ModelDescription) -> Canvas:
        preparation = described.preprocessing.preparation
        size = (described.input_width_px, described.input_height_px)
        return Canvas(self._spec.name, *size, preparation.resize, preparation.pad)

    def _warm_up(self, described: ModelDescription) -> float:
        """Run one request alone and look at all that it answers. Gives the p95 of a whole `infer`."""
        durations_s: list[float] = []
        layout = described.recognised
        picture = warmup_picture(described.input_width_px, described.input_height_px)
        try:
            self.infer(0, picture, _nothing)
            self._slots[0].check()
            while len(durations_s) < WARMUP_RUNS and sum(durations_s) < WARMUP_LIMIT_S:
                begin_s = time.monotonic()
                self.infer(0, picture, _nothing)
                durations_s.append(time.monotonic() - begin_s)
        except DeviceError:
            raise
        except EngineError as error:
            raise DeviceRefused(
                f"{self._spec.name}: {self._spec.path} as layout {layout.name} (by {layout.decided_by}) failed its "
                f"warm-up: {error}; check `layout`, `classes` and `input`, or export the model again"
            ) from error
        return p95(durations_s)

    def _first_answer(self, described: ModelDescription) -> Answer:
        """Raw answer to the warm-up picture; empty where there is none, which is like no other."""
        slot = self._slots[0]
        try:
            slot.fill(warmup_picture(described.input_width_px, described.input_height_px))
            slot.start()
            slot.finish()
        except DeviceError:
            raise
        except EngineError:
            return []
        return slot.answer()

    def _run_together(self) -> None:
        """One inference on every request at once, so that no stream makes its first picture wait."""
        for slot in self._slots:
            slot.start()
        for slot in self._slots:
            slot.finish()


def _with_preprocessing(name: str, model: ov.Model, described: ModelDescription) -> ov.Model:
    """u8 NHWC BGR in and f32 out; colour, scale and layout become part of the graph."""
    net, preparation = described.net, described.preprocessing.preparation
    try:
        steps = PrePostProcessor(model)
        picture = steps.input(net.picture_index)
        picture.tensor().set_element_type(ov.Type.u8).set_layout(ov.Layout("NHWC")).set_color_format(ColorFormat.BGR)
        picture.model().set_layout(ov.Layout(net.axes))
        picture.preprocess().convert_element_type(ov.Type.f32)
        if preparation.color == "rgb":
            picture.preprocess().convert_color(ColorFormat.RGB)
        picture.preprocess().mean(list(preparation.subtract)).scale(list(preparation.divide))
        for index, output in enumerate(model.outputs):
            if output.element_type.is_real():
                steps.output(index).tensor().set_element_type(ov.Type.f32)
        return steps.build()
    except FOREIGN as error:
        raise meaning(name, "cannot add the preprocessing", error, ModelRefused) from error


def _nothing() -> None:
    """No shared slot, no stamp to check."""
