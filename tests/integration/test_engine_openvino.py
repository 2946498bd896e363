"""The engine on the true runtime: the reference's boxes, and what a failing operation in the graph leads to."""

from __future__ import annotations

import json
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
from tests.evaluate import Row, furthest, map50, read_labels
from tests.shared import shared

from inspectd.camera.files import read_picture
from inspectd.engine import ModelSpec
from inspectd.engine.openvino import OpenVinoEngine
from inspectd.errors import DeviceError, EngineError, ModelRefused, OutputError, StaleSlot
from inspectd.records import Detection

SQUARE = "models/tinydet-pcb/tinydet_640x640.xml"
PX, SCORE = 0.5, 0.002


def spec(name: str, **changes: Any) -> ModelSpec:
    """As the reference was made: f32, confidence 0.05, IoU 0.5."""
    return replace(
        ModelSpec("defects", shared(name), threads=2, precision="f32", confidence=0.05, requests=2), **changes
    )


def nothing() -> None:
    """No slot to check."""


def rows(found: tuple[Detection, ...]) -> list[Row]:
    return [(d.box.x, d.box.y, d.box.x + d.box.w, d.box.y + d.box.h, d.confidence, d.class_id) for d in found]


def boards() -> list[Path]:
    return sorted(shared("data/deeppcb/images").glob("*.png"))


def reference() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(shared("models/tinydet-pcb/reference.json").read_text(encoding="utf-8"))
    return document


def find_all(name: str, pictures: list[Path], **changes: Any) -> dict[str, list[Row]]:
    """Both requests at once, as in the child."""
    engine = OpenVinoEngine(spec(name, **changes))
    engine.open()

    def serve(request: int) -> dict[str, list[Row]]:
        return {path.name: rows(engine.infer(request, read_picture(path), nothing)) for path in pictures[request::2]}

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(serve, range(2))
    engine.close()
    return first | second


@pytest.mark.shared
def test_the_boxes_are_those_of_the_reference() -> None:
    """Every 30th board: 0.5 px and 0.002, one to one."""
    expected = {
        name: [(*row[:4], row[4], int(row[5])) for row in listed] for name, listed in reference()["detections"].items()
    }
    found = find_all(SQUARE, [path for path in boards() if path.name in expected])
    for name, listed in expected.items():
        px, score = furthest(found[name], listed)
        assert px <= PX, name
        assert score <= SCORE, name


@pytest.mark.shared
@pytest.mark.slow
def test_map50_on_300_boards_is_that_of_the_reference() -> None:
    pictures = boards()
    found = find_all(SQUARE, pictures)
    true = {p.name: read_labels(shared(f"data/deeppcb/labels/{p.stem}.txt"), 640, 640) for p in pictures}
    assert len(found) == 300
    assert map50(found, true) == pytest.approx(reference()["map50"], abs=0.004)


@pytest.mark.shared
@pytest.mark.parametrize("layout", ["end2end", "with_nms"])
def test_an_end_to_end_export_gives_the_same_boxes(layout: str) -> None:
    pictures = boards()[::30]
    plain = find_all(SQUARE, pictures)
    found = find_all(f"models/layouts/{layout}/{layout}.xml", pictures)
    for name, listed in plain.items():
        px, score = furthest(found[name], listed)
        assert px <= PX, name
        assert score <= SCORE, name


@pytest.mark.shared
def test_a_model_that_is_not_square_finds_the_same_defects() -> None:
    """384 × 640: the board becomes 384 px high, so boxes agree roughly and by class, not to the half pixel."""
    pictures = boards()[::30]
    wide = find_all("models/tinydet-pcb/tinydet_384x640.xml", pictures, confidence=0.3)
    true = {p.name: read_labels(shared(f"data/deeppcb/labels/{p.stem}.txt"), 640, 640) for p in pictures}
    assert map50(wide, true) > 0.5


@pytest.mark.shared
def test_facts_say_what_runs() -> None:
    facts = OpenVinoEngine(spec(SQUARE, requests=None, fps_total=1000.0)).open()
    assert (facts.device, facts.precision, facts.layout) == ("CPU", "f32", "yolo")
    assert facts.classes == ("open", "short", "mousebite", "spur", "copper", "pinhole")
    assert (facts.input_width_px, facts.input_height_px) == (640, 640)
    assert facts.requests == 4  # twice the optimum of two threads
    assert facts.warmup_p95_s > 0


@pytest.mark.shared
def test_a_size_that_changes_between_pictures_leaves_nothing_of_the_old_one() -> None:
    """The padding is written again whenever the geometry changes."""
    engine = OpenVinoEngine(spec(SQUARE))
    engine.open()
    board = read_picture(boards()[0])
    first = engine.infer(0, board, nothing)
    engine.infer(0, np.full((1130, 460, 3), 255, np.uint8), nothing)
    narrow = np.ascontiguousarray(board[:, 100:500])
    again = engine.infer(0, narrow, nothing)
    fresh = engine.infer(1, narrow, nothing)
    assert rows(again) == rows(fresh)
    assert rows(engine.infer(0, board, nothing)) == rows(first)


@pytest.mark.shared
def test_a_stale_slot_is_not_inferred() -> None:
    """The pixels changed under the letterbox: no answer of any kind, and the request is free."""
    engine = OpenVinoEngine(spec(SQUARE))
    engine.open()
    board = read_picture(boards()[0])

    def stale() -> None:
        raise StaleSlot("top: slot 3 holds frame 12, expected 11")

    with pytest.raises(StaleSlot):
        engine.infer(0, board, stale)
    assert engine.infer(0, board, nothing)


@pytest.mark.shared
def test_a_cache_that_cannot_be_used_only_costs_time(tmp_path: Path) -> None:
    """A file where the folder should be, and a blob cut short."""
    (tmp_path / "file").write_bytes(b"")
    plain = OpenVinoEngine(spec(SQUARE)).open()
    assert OpenVinoEngine(spec(SQUARE, cache_dir=tmp_path / "file")).open().hash == plain.hash
    cache = tmp_path / "cache"
    OpenVinoEngine(spec(SQUARE, cache_dir=cache)).open()
    (blob,) = cache.rglob("*.blob")
    blob.write_bytes(blob.read_bytes()[:5000])
    assert OpenVinoEngine(spec(SQUARE, cache_dir=cache)).open().hash == plain.hash


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "changes", "text"),
    [
        ("models/layouts/ssd/ssd.xml", {}, "found layout ssd"),
        ("models/layouts/rtdetr/rtdetr.xml", {}, r"found layout rtdetr \(by metadata.yaml head"),
        ("models/layouts/dfine/dfine.xml", {}, "found layout dfine"),
        ("models/layouts/yolox_decoded/yolox_decoded.xml", {}, "yolox or yolox-decoded"),
        ("models/layouts/end2end/end2end.xml", {"layout": "yolo"}, "says layout: yolo, the file says yolo-end2end"),
        (SQUARE, {"classes": ("a", "b")}, "configuration says classes .* the file says"),
        (SQUARE, {"sha256": "00" * 32}, "has SHA-256"),
        ("models/ppocr/rec.onnx", {}, "expected one picture of three channels"),
        ("data/deeppcb/images/00041009.png", {}, "is no model file"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(name: str, changes: dict[str, Any], text: str) -> None:
    """With what was found, what was expected and what to do."""
    with pytest.raises(ModelRefused, match=text):
        OpenVinoEngine(spec(name, **changes)).open()


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
    with pytest.raises(ModelRefused, match="failed its warm-up"):
        faulty_engine(tmp_path).open()


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
