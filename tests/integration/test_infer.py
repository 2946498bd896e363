"""`inspectd infer`: one document a line, and a picture that cannot be read does not stop the others."""

from __future__ import annotations

import io
import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from tests.evaluate import furthest
from tests.shared import shared

from inspectd.engine import Engine, ModelSpec
from inspectd.engine.fake import Answer, FakeEngine
from inspectd.engine.openvino import OpenVinoEngine
from inspectd.errors import DeviceError, OutputError
from inspectd.infer import run_infer
from inspectd.records import Box, Detection

FOUND = (Detection(1, "short", 0.75, Box(-2.0, 3.0, 10.5, 4.0), "defects"),)
SPEC = ModelSpec("defects", Path("pcb.xml"))


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    """Two boards with something else between them."""
    paths = [tmp_path / name for name in ("a.png", "b.png", "c.png")]
    for path in (paths[0], paths[2]):
        cv2.imwrite(str(path), np.zeros((48, 64, 3), np.uint8))
    paths[1].write_text("no picture", encoding="utf-8")
    return paths


def run(pictures: list[Path], *script: Answer, as_json: bool = True) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()

    def make(spec: ModelSpec) -> Engine:
        return FakeEngine(spec, script)

    code = run_infer(pictures, [SPEC], as_json=as_json, out=out, err=err, make_engine=make)
    return code, out.getvalue(), err.getvalue()


def test_json_gives_one_document_a_picture(pictures: list[Path]) -> None:
    code, out, err = run([pictures[0], pictures[2]], FOUND)
    first, second = (json.loads(line) for line in out.splitlines())
    assert (code, err) == (0, "")
    assert first == {
        "image": str(pictures[0]),
        "widthPx": 64,
        "heightPx": 48,
        "model": "defects",
        "detections": [
            {
                "detectionId": 0,
                "classId": 1,
                "className": "short",
                "confidence": 0.75,
                "bbox": {"x": -2.0, "y": 3.0, "w": 10.5, "h": 4.0},
                "model": "defects",
            }
        ],
    }
    assert second["detections"] == []


def test_a_picture_that_cannot_be_read_is_told_and_the_others_are_done(pictures: list[Path]) -> None:
    """Exit 69: something outside was unavailable."""
    code, out, err = run(pictures, FOUND, FOUND)
    assert code == 69
    assert [json.loads(line)["image"] for line in out.splitlines()] == [str(pictures[0]), str(pictures[2])]
    assert "b.png" in err


def test_an_answer_that_is_none_is_an_error_and_never_an_empty_list(pictures: list[Path]) -> None:
    code, out, err = run(
        [pictures[0], pictures[2]], OutputError("defects: 3 of 84000 output values are not finite"), FOUND
    )
    assert code == 69
    assert [json.loads(line)["image"] for line in out.splitlines()] == [str(pictures[2])]
    assert "a.png: defects: 3 of 84000" in err


def test_a_device_error_ends_it(pictures: list[Path]) -> None:
    """After it any further call may hang or answer noise."""
    with pytest.raises(DeviceError):
        run(pictures, DeviceError("defects: out of resources"))


def test_a_person_gets_a_table(pictures: list[Path]) -> None:
    _, out, _ = run(pictures[:1], FOUND, as_json=False)
    headline, picture, row = out.splitlines()
    assert "defects: yolo, 640 x 640 px, classes without names, CPU" in headline
    assert "a.png  64 x 48 px  defects  1 found" in picture
    assert row.split() == ["short", "0.750", "x", "-2.0", "y", "3.0", "w", "10.5", "h", "4.0"]


@pytest.mark.shared
def test_the_real_model_gives_the_references_boxes() -> None:
    """The command's own path, with rounding and all."""
    reference = json.loads(shared("models/tinydet-pcb/reference.json").read_text(encoding="utf-8"))
    name, expected = next(iter(reference["detections"].items()))
    spec = ModelSpec(
        "defects", shared("models/tinydet-pcb/tinydet_640x640.xml"), threads=2, precision="f32", confidence=0.05
    )
    out = io.StringIO()
    code = run_infer(
        [shared("data/deeppcb/images") / name],
        [spec],
        as_json=True,
        out=out,
        err=io.StringIO(),
        make_engine=OpenVinoEngine,
    )
    found = json.loads(out.getvalue())["detections"]
    boxes = [(*(d["bbox"][key] for key in "xywh"), d["confidence"], d["classId"]) for d in found]
    px, score = furthest(
        [(x, y, x + w, y + h, score, kind) for x, y, w, h, score, kind in boxes],
        [(*row[:4], row[4], int(row[5])) for row in expected],
    )
    assert code == 0
    assert px <= 0.5
    assert score <= 0.002
