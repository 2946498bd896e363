"""What a model file says about itself, together with the configuration."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from inspectd.config.modelfile import classes_of
from inspectd.config.onnxfile import onnx_metadata
from inspectd.decode.layouts import Claim, Layout, Output
from inspectd.engine import ModelSpec
from inspectd.engine.admission import is_same_answer, p95, requests_for, warmup_picture
from inspectd.engine.description import Net, describe
from inspectd.engine.modelfile import (
    FileWords,
    checked_hash,
    class_names,
    input_size_px,
    layout_claim,
    read_metadata,
    read_words,
    told_task,
)
from inspectd.engine.preprocessing import Preprocessing, other_preprocessing, preprocessing
from inspectd.engine.sourced import Source, Sourced
from inspectd.errors import ModelRefused

SPEC = ModelSpec("defects", Path("models/pcb.xml"))
INFO = {"labels": "open short", "reverse_input_channels": "YES", "scale_values": "255", "pad_value": "114"}


def test_a_spec_crosses_the_channel_unchanged() -> None:
    spec = replace(SPEC, classes=("open", "short"), mean=(1.0, 2.0, 3.0), cpus=(0, 1), cache_dir=Path("cache"))
    assert ModelSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert ModelSpec.from_json(json.loads(json.dumps(SPEC.to_json()))) == SPEC


YOLO = Layout("yolo", "shape", (0,), 2)


def words(metadata: dict[Any, Any] | None = None, info: dict[str, str] | None = None) -> FileWords:
    return FileWords(metadata or {}, "metadata.yaml", info or {})


def named(spec: ModelSpec, metadata: dict[Any, Any] | None = None, info: dict[str, str] | None = None) -> Any:
    found = class_names(spec, words(metadata, info))
    return found and found.value


def prepared(spec: ModelSpec, info: dict[str, str], layout: str = "yolo", **flags: bool) -> Preprocessing:
    return preprocessing(spec, info, Layout(layout, "shape", (0,), 2, **flags))


@pytest.mark.parametrize(
    ("metadata", "info", "layout"),
    [
        ({"task": "detect", "end2end": True, "args": {"nms": False}}, {}, "yolo-end2end"),
        ({"task": "detect", "end2end": False, "head": "Detect", "args": {"nms": True}}, {}, "yolo-end2end"),
        ({"task": "detect", "end2end": False, "head": "RTDETRDecoder", "args": {"nms": None}}, {}, "rtdetr"),
        ({"task": "detect", "end2end": False, "head": "Detect"}, {}, "yolo"),
        ({"task": "segment", "end2end": True}, {}, "yolo-end2end-seg"),
        ({"task": "segment", "args": {"nms": True}}, {}, "yolo-end2end-seg"),
        ({"task": "segment", "end2end": False, "head": "Segment"}, {}, "yolo-seg"),
        ({"task": "obb"}, {}, "yolo-obb"),
        ({"task": "pose"}, {}, "yolo-pose"),
        ({"task": "classify"}, {}, "yolo-cls"),
        ({}, {"model_type": "YOLOX"}, "yolox"),
    ],
)
def test_the_file_says_its_layout(metadata: dict[str, object], info: dict[str, str], layout: str) -> None:
    claim = layout_claim(words(metadata, info))
    assert isinstance(claim, Claim)
    assert claim.layout == layout


def test_the_type_yolo_says_nothing_about_the_layout() -> None:
    """Ultralytics writes it for every head, RT-DETR too."""
    assert layout_claim(words({}, {"model_type": "YOLO"})) is None
    assert layout_claim(words({"task": "segment"})) is None


@pytest.mark.parametrize(
    ("metadata", "info"),
    [
        ({"task": "depth"}, {}),
        ({}, {"model_type": "Classification"}),
        ({}, {"model_type": "AnomalyDetection"}),
        ({}, {"task_type": "instance_segmentation"}),
    ],
)
def test_a_model_for_another_task_is_refused_by_its_own_word(metadata: dict[str, str], info: dict[str, str]) -> None:
    with pytest.raises(ModelRefused, match="a model for another task; expected one that detects"):
        told_task(SPEC, words(metadata, info))


def test_names_compare_with_a_space_as_underscore_and_the_files_own_are_used() -> None:
    """`labels` in rt_info are separated by spaces, so exporters write `_` inside a name."""
    spec = replace(SPEC, classes=("mouse bite", "spur"))
    assert named(spec, {}, {"labels": "mouse_bite spur"}) == ("mouse_bite", "spur")
    assert named(SPEC, {"names": {1: "spur", 0: "mouse bite"}}) == ("mouse bite", "spur")
    assert named(spec) == ("mouse bite", "spur")
    assert named(SPEC) is None


def test_other_names_or_another_order_are_a_contradiction() -> None:
    """Order is the class index: swapped names would call a short an open."""
    with pytest.raises(ModelRefused, match=r"\['short', 'open'\].*\['open', 'short'\] \(rt_info labels\)"):
        class_names(replace(SPEC, classes=("short", "open")), words({}, INFO))


def test_the_input_is_as_the_file_says() -> None:
    rgb = prepared(SPEC, INFO).preparation
    assert (rgb.color, rgb.subtract, rgb.divide, rgb.pad) == ("rgb", (0, 0, 0), (255, 255, 255), 114)
    bgr = prepared(SPEC, {"reverse_input_channels": "NO", "mean_values": "1 2 3", "scale_values": "[57.0]"}).preparation
    assert (bgr.color, bgr.subtract, bgr.divide) == ("bgr", (1, 2, 3), (57, 57, 57))


def test_the_input_is_as_the_configuration_says_where_the_file_is_silent() -> None:
    spec = replace(SPEC, color="bgr", scale=255.0, mean=(0.5, 0.4, 0.2), std=(0.25, 0.25, 0.5), resize="crop", pad=0)
    found = prepared(spec, {})
    assert (found.color.value, found.resize.value, found.pad.value) == ("bgr", "crop", 0)
    assert found.preparation.subtract == pytest.approx((127.5, 102, 51))
    assert found.preparation.divide == pytest.approx((63.75, 63.75, 127.5))
    assert {part.source for part in (found.color, found.numbers, found.resize, found.pad)} == {Source.CONFIGURATION}


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("yolo", ("rgb", 255.0, "letterbox")),
        ("yolox", ("bgr", 1.0, "letterbox_topleft")),
        ("yolox-decoded", ("bgr", 1.0, "letterbox_topleft")),
        ("rtdetr", ("rgb", 255.0, "stretch")),
        ("detr", ("rgb", 255.0, "stretch")),
        ("dfine", ("rgb", 255.0, "stretch")),
        ("ssd", ("rgb", 255.0, "stretch")),
    ],
)
def test_where_nobody_says_the_layouts_maker_does(layout: str, expected: tuple[str, float, str]) -> None:
    found = prepared(SPEC, {}, layout)
    assert (found.color.value, found.preparation.divide[0], found.resize.value) == expected
    assert {part.source for part in (found.color, found.numbers, found.resize, found.pad)} == {Source.ASSUMED}


def test_the_original_detr_wants_the_mean_and_deviation_of_imagenet() -> None:
    found = prepared(SPEC, {}, "detr", has_no_object=True).preparation
    assert found.subtract == pytest.approx((123.675, 116.28, 103.53))
    assert found.divide == pytest.approx((58.395, 57.12, 57.375))


@pytest.mark.parametrize(
    ("word", "resize"),
    [
        ("standard", "stretch"),
        ("fit_to_window", "letterbox_topleft"),
        ("fit_to_window_letterbox", "letterbox"),
        ("crop", "crop"),
    ],
)
def test_model_apis_words_for_resizing(word: str, resize: str) -> None:
    found = prepared(SPEC, {"resize_type": word}).resize
    assert (found.value, found.source) == (resize, Source.FILE)


def test_the_letterbox_of_an_rt_detr_from_ultralytics_is_not_believed() -> None:
    """It writes `fit_to_window_letterbox` into every export and stretches this one; the boxes would lie wrong."""
    info = {"model_type": "YOLO", "resize_type": "fit_to_window_letterbox"}
    assert prepared(SPEC, info, "rtdetr").resize.value == "stretch"
    assert prepared(SPEC, info, "yolo").resize.value == "letterbox"


def test_a_yolox_whose_scale_nobody_tells_has_one_other_habit() -> None:
    """What was told stays; where the scale was told there is no other."""
    first = prepared(replace(SPEC, color="bgr"), {}, "yolox-decoded")
    other = other_preprocessing(first, Layout("yolox-decoded", "configuration", (0,), 2))
    assert other is not None
    assert (other.color.value, other.preparation.divide[0], other.resize.value) == ("bgr", 255.0, "letterbox")
    told = prepared(replace(SPEC, scale=1.0), {}, "yolox-decoded")
    assert other_preprocessing(told, Layout("yolox-decoded", "configuration", (0,), 2)) is None
    assert other_preprocessing(prepared(SPEC, {}), YOLO) is None


def test_an_input_of_whole_numbers_gets_the_pixels_as_they_are() -> None:
    assert preprocessing(SPEC, {}, YOLO, is_integer_input=True).preparation.divide == (1, 1, 1)


@pytest.mark.parametrize("change", [{"color": "bgr"}, {"scale": 1.0}, {"pad": 0}, {"resize": "stretch"}])
def test_another_input_than_the_files_is_a_contradiction(change: dict[str, object]) -> None:
    with pytest.raises(ModelRefused, match=r"configuration says input .* the file says"):
        prepared(replace(SPEC, **change), {**INFO, "resize_type": "fit_to_window_letterbox"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("info", "text"),
    [
        ({"resize_type": "fill"}, "resize_type is 'fill', expected one of standard"),
        ({"reverse_input_channels": "maybe"}, "reverse_input_channels is 'maybe'"),
        ({"scale_values": "0"}, "nothing divides by 0"),
        ({"scale_values": "nan"}, "expected finite numbers"),
        ({"mean_values": "1 2"}, "has 2 values, expected 1 or 3"),
        ({"mean_values": "one"}, "expected numbers"),
        ({"pad_value": "300"}, "expected 0..255"),
        ({"embedded_processing": "True"}, "preprocessing built in"),
    ],
)
def test_a_word_that_means_nothing_is_refused(info: dict[str, str], text: str) -> None:
    with pytest.raises(ModelRefused, match=text):
        prepared(SPEC, info)


@pytest.mark.parametrize(
    ("size", "expected"),
    [([384, 640], (384, 640)), (320, (320, 320)), ((64, 64), (64, 64)), (None, None), ([0, 640], None), ("640", None)],
)
def test_the_size_of_an_open_input_is_told_by_imgsz(size: object, expected: tuple[int, int] | None) -> None:
    found = input_size_px(words({"imgsz": size}))
    assert (found and found.value) == expected


def net(*shapes: tuple[int, ...], source: Source = Source.FILE) -> Net:
    outputs = tuple(Output("", shape) for shape in shapes)
    return Net(0, "NCHW", Sourced((640, 640), source), False, None, outputs, ())


def test_each_value_of_a_description_says_who_said_it() -> None:
    spec = replace(SPEC, confidence=0.3, color="rgb")
    info = {"labels": "open short", "scale_values": "255", "iou_threshold": "0.7", "confidence_threshold": "0.35"}
    described = describe(spec, "00", words({}, info), net((1, 6, 8400)))
    document = described.to_json()
    sources = {key: item["source"] for key, item in document.items() if isinstance(item, dict)}
    assert sources == {
        "task": "assumed",
        "layout": "file",
        "inputSizePx": "file",
        "color": "configuration",
        "subtract": "file",
        "divide": "file",
        "resize": "assumed",
        "pad": "assumed",
        "classes": "file",
        "confidence": "configuration",
        "iou": "file",
    }
    assert (described.confidence.value, described.iou.value) == (0.3, 0.7)
    assert json.loads(json.dumps(document))["resize"]["where"] == "default of Ultralytics"
    assert "the file suggests a confidence of 0.35" in described.notes[0]


@pytest.mark.parametrize(
    ("classes", "expected", "note"),
    [
        (None, ("class_0", "class_1"), "nobody names the classes"),
        (("open",), ("open", "class_1"), "1 of 2 classes are named"),
    ],
)
def test_classes_that_are_not_named_are_numbers_and_it_is_told(
    classes: tuple[str, ...] | None, expected: tuple[str, ...], note: str
) -> None:
    described = describe(replace(SPEC, classes=classes), "00", words(), net((1, 6, 8400)))
    assert described.classes.value == expected
    assert note in described.notes[0]


def test_a_size_that_was_assumed_is_told() -> None:
    described = describe(SPEC, "00", words(), net((1, 6, 8400), source=Source.ASSUMED))
    assert "640 x 640 px is assumed" in described.notes[-1]


def test_thresholds_in_the_file_are_numbers_from_0_to_1() -> None:
    with pytest.raises(ModelRefused, match="iou_threshold is 'high'"):
        describe(SPEC, "00", words({}, {"iou_threshold": "high"}), net((1, 6, 8400)))


def test_the_hash_covers_the_weights(tmp_path: Path) -> None:
    """A retrained net differs in its .bin only; the .xml's own sum, as a person would take it, is accepted as well."""
    spec = replace(SPEC, path=tmp_path / "pcb.xml")
    spec.path.write_bytes(b"<net/>")
    (tmp_path / "pcb.bin").write_bytes(b"weights")
    both = hashlib.sha256(b"<net/>weights").hexdigest()
    assert checked_hash(spec) == both
    assert checked_hash(replace(spec, sha256=both.upper())) == both
    assert checked_hash(replace(spec, sha256=hashlib.sha256(b"<net/>").hexdigest())) == both
    with pytest.raises(ModelRefused, match=f"has SHA-256 {both}, configured is 00"):
        checked_hash(replace(spec, sha256="00" * 32))


def test_a_missing_part_or_a_picture_instead_of_a_model_is_refused(tmp_path: Path) -> None:
    spec = replace(SPEC, path=tmp_path / "pcb.xml")
    spec.path.write_bytes(b"<net/>")
    with pytest.raises(ModelRefused, match=r"cannot read .*pcb\.bin"):
        checked_hash(spec)
    with pytest.raises(ModelRefused, match=r"expected \.xml .* or \.onnx"):
        checked_hash(replace(SPEC, path=tmp_path / "board.png"))


def onnx_of(**texts: str) -> bytes:
    """An ONNX file as far as its own texts go: a version, a graph that is skipped, and metadata_props."""

    def field(number: int, content: bytes) -> bytes:
        assert len(content) < 16384
        length = bytes([len(content) & 0x7F | 0x80, len(content) >> 7])
        return bytes([number << 3 | 2]) + length + content

    entries = (field(14, field(1, key.encode()) + field(2, text.encode())) for key, text in texts.items())
    return b"\x08\x0a" + field(7, bytes(5000)) + b"".join(entries)


def test_an_onnx_file_tells_its_classes_and_its_size(tmp_path: Path) -> None:
    """Ultralytics writes Python values as text."""
    path = tmp_path / "pcb.onnx"
    path.write_bytes(onnx_of(names="{0: 'mouse bite', 1: 'spur'}", imgsz="[384, 640]", task="detect"))
    found = read_words(replace(SPEC, path=path), {})
    assert found.metadata_place == "ONNX metadata"
    assert named(SPEC, dict(found.metadata)) == classes_of(path) == ("mouse bite", "spur")
    assert input_size_px(found) == Sourced((384, 640), Source.FILE, "ONNX metadata imgsz")


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_a_file_that_is_no_onnx_tells_nothing(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Whatever the bytes: no error of another kind, no hang. The runtime says what is wrong with it."""
    path = tmp_path_factory.getbasetemp() / "any.onnx"
    for start in (b"", onnx_of(names="{}")[:-2]):
        path.write_bytes(start + content)
        assert isinstance(onnx_metadata(path), dict)
        classes_of(path)


def test_broken_metadata_is_refused_and_absent_metadata_is_nothing(tmp_path: Path) -> None:
    spec = replace(SPEC, path=tmp_path / "pcb.xml")
    assert read_metadata(spec) == {}
    (tmp_path / "metadata.yaml").write_text("names: [", encoding="utf-8")
    with pytest.raises(ModelRefused, match=r"metadata\.yaml"):
        read_metadata(spec)
    (tmp_path / "metadata.yaml").write_text("- a list", encoding="utf-8")
    with pytest.raises(ModelRefused, match="not a map"):
        read_metadata(spec)


@pytest.mark.parametrize(
    ("fps_total", "p95_s", "optimal", "requests"),
    [(0, 0.02, 2, 2), (30, 0.02, 2, 2), (120, 0.02, 2, 4), (120, 0.1, 2, 4), (60, 0.04, 8, 4), (1, 0.01, 1, 2)],
)
def test_requests_follow_the_load_within_twice_the_devices_optimum(
    fps_total: float, p95_s: float, optimal: int, requests: int
) -> None:
    assert requests_for(fps_total, p95_s, optimal) == requests


def test_the_warm_up_picture_is_always_the_same_and_p95_of_few_is_the_slowest() -> None:
    assert (warmup_picture(640, 384) == warmup_picture(640, 384)).all()
    assert warmup_picture(640, 384).shape == (384, 640, 3)
    assert p95([0.1, 0.3, 0.2]) == 0.3


def test_an_answer_from_the_cache_is_the_first_one_but_for_the_order_of_sums() -> None:
    first: list[NDArray[Any]] = [np.linspace(0, 640, 5000, dtype=np.float32).reshape(1, 10, 500), np.arange(5)]
    assert is_same_answer([first[0] * np.float32(1.0001), first[1]], first)
    swapped = first[0].copy()
    swapped[0, 0, :3] = 0
    assert is_same_answer([swapped, first[1]], first)
    noisy = first[0].copy()
    noisy[0, 3] += 10
    assert not is_same_answer([noisy, first[1]], first)
    assert not is_same_answer([first[0] * np.float32(np.nan), first[1]], first)
    assert not is_same_answer(first[:1], first)
    assert not is_same_answer([], first)
