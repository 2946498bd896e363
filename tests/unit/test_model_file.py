"""What a model file says about itself, together with the configuration."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from inspectd.decode.layouts import Claim
from inspectd.engine import ModelSpec
from inspectd.engine.admission import p95, requests_for, warmup_picture
from inspectd.engine.modelfile import checked_hash, class_names, input_recipe, layout_claim, read_metadata
from inspectd.errors import ModelRefused

SPEC = ModelSpec("defects", Path("models/pcb.xml"))
INFO = {"labels": "open short", "reverse_input_channels": "YES", "scale_values": "255", "pad_value": "114"}


def test_a_spec_crosses_the_channel_unchanged() -> None:
    spec = replace(SPEC, classes=("open", "short"), mean=(1.0, 2.0, 3.0), cpus=(0, 1), cache_dir=Path("cache"))
    assert ModelSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert ModelSpec.from_json(json.loads(json.dumps(SPEC.to_json()))) == SPEC


@pytest.mark.parametrize(
    ("metadata", "info", "layout"),
    [
        ({"task": "detect", "end2end": True, "args": {"nms": False}}, {}, "yolo-end2end"),
        ({"task": "detect", "end2end": False, "head": "Detect", "args": {"nms": True}}, {}, "yolo-end2end"),
        ({"task": "detect", "end2end": False, "head": "RTDETRDecoder", "args": {"nms": None}}, {}, "rtdetr"),
        ({"task": "detect", "end2end": False, "head": "Detect"}, {}, "yolo"),
        ({"task": "segment", "end2end": True}, {}, "yolo-seg"),
        ({}, {"model_type": "YOLOX"}, "yolox"),
    ],
)
def test_the_file_says_its_layout(metadata: dict[str, object], info: dict[str, str], layout: str) -> None:
    claim = layout_claim(metadata, info)
    assert isinstance(claim, Claim)
    assert claim.layout == layout


def test_the_type_yolo_says_nothing_about_the_layout() -> None:
    """Ultralytics writes it for every head, RT-DETR too."""
    assert layout_claim({}, {"model_type": "YOLO"}) is None


def test_names_compare_with_a_space_as_underscore_and_the_files_own_are_used() -> None:
    """`labels` in rt_info are separated by spaces, so exporters write `_` inside a name."""
    spec = replace(SPEC, classes=("mouse bite", "spur"))
    assert class_names(spec, {}, {"labels": "mouse_bite spur"}) == ("mouse_bite", "spur")
    assert class_names(SPEC, {"names": {0: "mouse bite", 1: "spur"}}, {}) == ("mouse bite", "spur")
    assert class_names(spec, {}, {}) == ("mouse bite", "spur")
    assert class_names(SPEC, {}, {}) is None


def test_other_names_or_another_order_are_a_contradiction() -> None:
    """Order is the class index: swapped names would call a short an open."""
    with pytest.raises(ModelRefused, match=r"\['short', 'open'\].*\['open', 'short'\] \(rt_info labels\)"):
        class_names(replace(SPEC, classes=("short", "open")), {}, INFO)


def test_the_input_is_as_the_file_says() -> None:
    recipe = input_recipe(SPEC, INFO)
    assert (recipe.color, recipe.subtract, recipe.divide, recipe.pad) == ("rgb", (0, 0, 0), (255, 255, 255), 114)
    bgr = input_recipe(SPEC, {"reverse_input_channels": "NO", "mean_values": "1 2 3", "scale_values": "[57.0]"})
    assert (bgr.color, bgr.subtract, bgr.divide) == ("bgr", (1, 2, 3), (57, 57, 57))


def test_the_input_is_as_the_configuration_says_where_the_file_is_silent() -> None:
    spec = replace(SPEC, color="bgr", scale=255.0, mean=(0.5, 0.4, 0.2), std=(0.25, 0.25, 0.5), pad=0)
    recipe = input_recipe(spec, {})
    assert (recipe.color, recipe.pad) == ("bgr", 0)
    assert recipe.subtract == pytest.approx((127.5, 102, 51))
    assert recipe.divide == pytest.approx((63.75, 63.75, 127.5))


@pytest.mark.parametrize("change", [{"color": "bgr"}, {"scale": 1.0}, {"pad": 0}])
def test_another_input_than_the_files_is_a_contradiction(change: dict[str, object]) -> None:
    with pytest.raises(ModelRefused, match=r"configuration says input .* the file says"):
        input_recipe(replace(SPEC, **change), INFO)  # type: ignore[arg-type]


def test_a_resize_that_is_not_a_letterbox_is_refused() -> None:
    """Boxes would come back to the wrong place."""
    with pytest.raises(ModelRefused, match="resize_type standard"):
        input_recipe(SPEC, {"resize_type": "standard"})


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
