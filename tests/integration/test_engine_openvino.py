"""The engine on the true runtime: the reference's boxes, and models that do not fit."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.evaluate import Row, furthest, map50, read_labels
from tests.shared import shared

from inspectd.camera.files import read_picture
from inspectd.engine import ModelSpec
from inspectd.engine.openvino import OpenVinoEngine
from inspectd.errors import ModelRefused, StaleSlot
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
