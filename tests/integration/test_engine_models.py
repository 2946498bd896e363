"""Files as exporters write them, on the true runtime: they run with the right boxes, or are refused with the cure."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray
from openvino import opset13 as ops
from tests.tinynet import ir, onnx

from inspectd.engine import ModelSpec
from inspectd.engine.openvino import OpenVinoEngine
from inspectd.engine.sourced import Source
from inspectd.errors import ModelRefused
from inspectd.records import Detection


def engine_for(path: Path, **changes: Any) -> OpenVinoEngine:
    spec = ModelSpec("defects", path, threads=2, precision="f32", confidence=0.5, requests=1)
    return OpenVinoEngine(replace(spec, **changes))


def red_spot(height_px: int = 64, width_px: int = 64) -> NDArray[np.uint8]:
    """Black but for the middle of the cell at x 16…24, y 40…48, which is red (BGR)."""
    picture = np.zeros((height_px, width_px, 3), np.uint8)
    picture[44, 20, 2] = 255
    return picture


def look(engine: OpenVinoEngine, picture: NDArray[np.uint8] | None = None) -> tuple[Detection, ...]:
    engine.open()
    return engine.infer(0, red_spot() if picture is None else picture, lambda: None)


def only(found: tuple[Detection, ...]) -> tuple[str, tuple[float, ...]]:
    (detection,) = found
    box = detection.box
    return detection.class_name, (box.x, box.y, box.w, box.h)


RED: tuple[str, tuple[float, ...]] = ("class_0", (16, 40, 8, 8))


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"shape": (1, 64, 64, 3)},
        {"half_output": True},
        {"kind": ov.Type.f16},
        {"shape": (4, 3, 64, 64)},
        {"shape": (-1, 3, 64, 64)},
        {"class_count": 1},
    ],
    ids=["plain", "channels last", "float16 output", "float16 input", "batch of four", "open batch", "one class"],
)
def test_every_form_of_export_gives_the_same_box(tmp_path: Path, form: dict[str, Any]) -> None:
    assert only(look(engine_for(ir(tmp_path / "tiny.xml", **form)))) == RED


def test_whole_numbers_are_taken_as_they_are(tmp_path: Path) -> None:
    """A net with a u8 input scales inside: dividing by 255 would leave it black. Here 255 · 12 saturates."""
    assert only(look(engine_for(ir(tmp_path / "tiny.xml", kind=ov.Type.u8)))) == RED


def test_colours_are_not_swapped(tmp_path: Path) -> None:
    """Class 0 looks at the first channel that the net gets."""
    path = ir(tmp_path / "tiny.xml", class_count=3)
    assert only(look(engine_for(path, color="rgb"))) == RED
    assert only(look(engine_for(path, color="bgr"))) == ("class_2", RED[1])


def test_an_open_input_is_fixed_at_the_size_that_the_file_tells(tmp_path: Path) -> None:
    path = ir(tmp_path / "tiny.xml", shape=(1, 3, -1, -1))
    (tmp_path / "metadata.yaml").write_text("imgsz: [64, 64]\n", encoding="utf-8")
    described = engine_for(path).describe()
    assert (described.net.size_px.value, described.net.size_px.source) == ((64, 64), Source.FILE)
    assert only(look(engine_for(path))) == RED


def test_an_open_input_whose_size_nobody_tells_is_640_and_that_is_said(tmp_path: Path) -> None:
    """A net that cannot have it is refused with the cure."""
    picture = ops.parameter([1, 3, -1, -1], ov.Type.f32)
    pooled = ops.reduce_mean(picture, [1, 2, 3], keep_dims=False)
    table = ops.add(ops.constant(np.full((1, 6, 8400), 0.01, np.float32)), ops.multiply(pooled, np.float32(0)))
    ov.save_model(ov.Model([ops.result(table)], [picture]), tmp_path / "open.xml")
    described = engine_for(tmp_path / "open.xml").describe()
    assert described.net.size_px.source is Source.ASSUMED
    assert "640 x 640 px is assumed" in " ".join(described.notes)
    with pytest.raises(ModelRefused, match=r"does not become \[1, 3, 640, 640\] \(export a detector with batch 1"):
        engine_for(ir(tmp_path / "tiny.xml", shape=(1, 3, -1, -1))).open()


def test_an_onnx_file_runs_with_its_own_class_names(tmp_path: Path) -> None:
    path = onnx(tmp_path / "tiny.onnx", {"names": "{0: 'mouse bite', 1: 'spur'}", "task": "detect"})
    engine = engine_for(path)
    assert only(look(engine)) == ("mouse bite", RED[1])
    described = engine.describe()
    assert (described.classes.source, described.classes.where) == (Source.FILE, "ONNX metadata names")


def test_names_that_are_too_few_are_completed_and_it_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engine_for(ir(tmp_path / "tiny.xml", class_count=3, info={"labels": "open_circuit"}), color="bgr")
    with caplog.at_level(logging.WARNING):
        facts = engine.open()
        for _ in range(3):
            assert only(engine.infer(0, red_spot(), lambda: None)) == ("class_2", RED[1])
    assert facts.classes == ("open_circuit", "class_1", "class_2")
    assert [record.message for record in caplog.records if "named" in record.message] == [
        "defects: 1 of 3 classes are named (rt_info labels); the rest is called class_1, class_2"
    ]


def test_the_picture_as_the_net_gets_it(tmp_path: Path) -> None:
    """For `infer --save-input`: scaled and padded, in BGR, the same pixels as in the input tensor."""
    engine = engine_for(ir(tmp_path / "tiny.xml"), resize="letterbox_topleft", pad=9)
    engine.open()
    picture = engine.input_picture(np.full((32, 16, 3), 200, np.uint8))
    assert picture.shape == (64, 64, 3)
    assert (picture[:, :32] == 200).all()
    assert (picture[:, 32:] == 9).all()


@pytest.mark.parametrize("resize", ["letterbox", "letterbox_topleft", "stretch", "crop"])
def test_a_box_lies_in_the_picture_where_it_was_seen(tmp_path: Path, resize: Any) -> None:
    """A tall picture: the middle of what was found is the middle of what was drawn, to half a cell, however resized."""
    picture = np.zeros((256, 128, 3), np.uint8)
    picture[88:136, 16:64, 2] = 255
    engine = engine_for(ir(tmp_path / "tiny.xml"), resize=resize, iou=1.0)
    found = [detection.box for detection in look(engine, picture)]
    assert found
    left, right = min(box.x for box in found), max(box.x + box.w for box in found)
    top, bottom = min(box.y for box in found), max(box.y + box.h for box in found)
    cell = found[0]
    assert abs((left + right) / 2 - 40) <= cell.w / 2
    assert abs((top + bottom) / 2 - 112) <= cell.h / 2


def test_the_devices_that_can_run_it(tmp_path: Path) -> None:
    described = engine_for(ir(tmp_path / "tiny.xml")).describe()
    assert [(device.name, device.can_run) for device in described.devices if device.name == "CPU"] == [("CPU", True)]


def grey(path: Path) -> None:
    picture = ops.parameter([1, 1, 64, 64], ov.Type.f32)
    ov.save_model(ov.Model([ops.result(ops.relu(picture))], [picture]), path)


def no_batch(path: Path) -> None:
    picture = ops.parameter([3, 64, 64], ov.Type.f32)
    ov.save_model(ov.Model([ops.result(ops.relu(picture))], [picture]), path)


def four_at_once(path: Path) -> None:
    ir(path, shape=(4, 3, 64, 64), batch=4)


def one_more_input(path: Path) -> None:
    ir(path, extra_input="im_shape")


def truncated(path: Path) -> None:
    ir(path)
    bin_path = path.with_suffix(".bin")
    bin_path.write_bytes(bin_path.read_bytes()[:100])


def without_weights(path: Path) -> None:
    ir(path)
    path.with_suffix(".bin").unlink()


def not_a_number(path: Path) -> None:
    ir(path, fault=np.nan)


def a_picture(path: Path) -> None:
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(200))
    path.with_suffix(".bin").write_bytes(b"")


def a_classifier(path: Path) -> None:
    picture = ops.parameter([1, 3, 64, 64], ov.Type.f32)
    ov.save_model(ov.Model([ops.result(ops.reduce_mean(picture, [2, 3], keep_dims=False))], [picture]), path)


def logits(path: Path) -> None:
    picture = ops.parameter([1, 3, 64, 64], ov.Type.f32)
    pooled = ops.reduce_mean(picture, [1, 2, 3], keep_dims=False)
    table = np.full((1, 6, 84), 30, np.float32)
    ov.save_model(ov.Model([ops.result(ops.add(ops.constant(table), pooled))], [picture]), path)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (grey, r"input \[1,1,64,64\], expected one picture of three channels.*export"),
        (no_batch, r"input \[3,64,64\], expected one picture"),
        (four_at_once, r"(\[4,3,64,64\] does not become \[1, 3, 64, 64\]|made for 4 pictures).*batch 1"),
        (one_more_input, r"input im_shape \[1,2\] is none that inspectd can fill.*export"),
        (truncated, "cannot read model|weights"),
        (without_weights, r"cannot read .*tiny\.bin.*copy the \.bin beside"),
        (not_a_number, "1 of 6144 weights of .* are NaN.*export the model again"),
        (a_picture, "cannot read model"),
        (a_classifier, r"\[1, 3\] .* no known detector layout.*export the model again"),
        (logits, r"failed its warm-up: .*scores from .* expected 0\.\.1.*check `layout`"),
    ],
)
def test_what_cannot_run_is_refused_with_the_cure(tmp_path: Path, make: Callable[[Path], None], text: str) -> None:
    make(tmp_path / "tiny.xml")
    with pytest.raises(ModelRefused, match=text):
        engine_for(tmp_path / "tiny.xml").open()
