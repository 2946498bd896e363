"""The engine on the true runtime: the reference's boxes, and models that do not fit."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.evaluate import Row, furthest, map50, read_labels
from tests.shared import FOLDER, shared

from inspectd.camera.files import read_picture
from inspectd.decode.layouts import LayoutRefused
from inspectd.engine import ModelSpec
from inspectd.engine.openvino import OpenVinoEngine
from inspectd.engine.sourced import Source
from inspectd.errors import ModelRefused, StaleSlot
from inspectd.records import Detection

SQUARE = "models/tinydet-pcb/tinydet_640x640.xml"
PX, SCORE = 0.5, 0.002
EVERY = 100
"""Every which board is compared in the tests of layouts."""
CLASSES = ("open", "short", "mousebite", "spur", "copper", "pinhole")


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


def reference_layouts() -> list[dict[str, str]]:
    """Empty where there is no shared material; the tests are then skipped as a whole."""
    path = FOLDER / "models/tinydet-pcb/reference.json"
    return json.loads(path.read_text(encoding="utf-8"))["layouts"] if path.exists() else []


@cache
def plain(every: int) -> dict[str, list[Row]]:
    """What the detector finds in its own layout."""
    return find_all(SQUARE, boards()[::every])


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


SISTERS = [item["file"].split("/")[1] for item in reference_layouts()]
UNNAMED = [sister for sister in SISTERS if sister not in ("end2end", "with_nms", "rtdetr", "yolox")]
"""Their files do not name the classes."""
AS_CONFIGURED = {"yolox_decoded": {"layout": "yolox-decoded", "color": "rgb", "scale": 255.0, "resize": "letterbox"}}


@pytest.mark.shared
@pytest.mark.parametrize(("sister", "classes"), [(s, None) for s in SISTERS] + [(s, CLASSES) for s in UNNAMED])
def test_a_sister_in_another_layout_gives_the_same_boxes(sister: str, classes: tuple[str, ...] | None) -> None:
    """Told from the file alone, whether or not the classes are named; only the decoded YOLOX needs its line."""
    pictures = boards()[::EVERY]
    changes = AS_CONFIGURED.get(sister, {})
    found = find_all(f"models/layouts/{sister}/{sister}.xml", pictures, classes=classes, **changes)
    for name, listed in plain(EVERY).items():
        px, score = furthest(found[name], listed)
        assert px <= PX, name
        assert score <= SCORE, name


@pytest.mark.shared
def test_a_decoded_yolox_needs_no_more_than_its_layout() -> None:
    """Prepared as YOLOX does it, its boxes fly off at the warm-up; the other habit is taken, and that is told."""
    name = "models/layouts/yolox_decoded/yolox_decoded.xml"
    found = find_all(name, boards()[::EVERY], layout="yolox-decoded")
    for picture, listed in plain(EVERY).items():
        assert max(furthest(found[picture], listed)) <= SCORE
    described = OpenVinoEngine(spec(name, layout="yolox-decoded")).describe()
    assert (described.preprocessing.resize.value, described.preprocessing.color.value) == ("letterbox", "rgb")
    assert "the warm-up failed; RGB 0..1 in a centred letterbox is assumed" in described.notes[-1]


@pytest.mark.shared
@pytest.mark.parametrize("item", reference_layouts(), ids=lambda item: item["layout"])
def test_a_sisters_layout_is_decided_by_what_the_reference_says(item: dict[str, str]) -> None:
    engine = OpenVinoEngine(spec(f"models/{item['file']}", classes=None))
    if item["layout"] == "yolox-decoded":
        with pytest.raises(LayoutRefused, match="`layout: yolox` or `layout: yolox-decoded`") as raised:
            engine.describe()
        assert raised.value.candidates == ("yolox", "yolox-decoded")
        return
    layout = engine.describe().layout
    assert (layout.value, layout.source) == (item["layout"], Source.FILE)
    in_words = item["decided_by"]
    assert layout.where == (in_words if in_words.startswith("metadata") else layout.where)
    assert layout.where == "shape" or in_words.startswith(("metadata", "rt_info model_type"))


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
@pytest.mark.parametrize(
    ("name", "changes", "text"),
    [
        ("models/layouts/yolox_decoded/yolox_decoded.xml", {}, "yolox or yolox-decoded"),
        ("models/layouts/end2end/end2end.xml", {"layout": "yolo"}, "says layout: yolo, the file says yolo-end2end"),
        (SQUARE, {"classes": ("a", "b")}, "configuration says classes .* the file says"),
        (SQUARE, {"sha256": "00" * 32}, "has SHA-256"),
        ("models/layouts/yolox_decoded/yolox_decoded.xml", {"layout": "yolox"}, "failed its warm-up"),
        ("models/ppocr/rec.onnx", {}, "does not become .*export a detector"),
        ("models/ppocr/det.onnx", {}, "no known detector layout"),
        ("models/ppocr/cls.onnx", {}, "no known detector layout"),
        ("data/deeppcb/images/00041009.png", {}, "is no model file"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(name: str, changes: dict[str, Any], text: str) -> None:
    """With what was found, what was expected and what to do."""
    with pytest.raises(ModelRefused, match=text):
        OpenVinoEngine(spec(name, **changes)).open()
