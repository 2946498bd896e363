"""`inspectd model`: what is made of real files, tried on real pictures, and what is refused with its cure."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from tests.shared import shared
from tests.tinynet import ir

from inspectd.camera.boards.drawing import draw
from inspectd.camera.files import read_picture
from inspectd.engine import ModelSpec
from inspectd.engine.openvino import OpenVinoEngine
from inspectd.errors import SourceError, UsageError
from inspectd.model_command import inspect_model

DEMO = Path(__file__).parents[2] / "config" / "models" / "pcb-demo.xml"
STATION = """\
version: 1
station: {enterprise: acme, site: suzhou, area: smt, line: line3, id: aoi-01}
cameras:
  top: {source: {kind: simulator}, fps: 1, models: [NAME]}
"""
EVERY_KEY = ("layout", "color", "subtract", "divide", "resize", "pad", "classes", "confidence", "iou")


def run(model: Path | str, *images: Path, config: Path | None = None, **chosen: str) -> tuple[int, dict[str, Any]]:
    out, err = io.StringIO(), io.StringIO()
    environment = {"HOME": "/home/line"}
    code = inspect_model(str(model), config, environment, images=images, chosen=chosen, as_json=True, out=out, err=err)
    assert err.getvalue() == ""
    return code, json.loads(out.getvalue())


def told(model: Path | str, *images: Path, **chosen: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = inspect_model(str(model), None, {}, images=images, chosen=chosen, as_json=False, out=out, err=err)
    return code, out.getvalue(), err.getvalue()


def configuration(folder: Path, name: str, models: str) -> Path:
    path = folder / "line.yaml"
    path.write_text(STATION.replace("NAME", name) + models, encoding="utf-8")
    return path


@pytest.fixture
def spot(tmp_path: Path) -> Path:
    """A wide picture, black but for a red block."""
    pixels = np.zeros((64, 96, 3), np.uint8)
    pixels[40:56, 36:60, 2] = 255
    cv2.imwrite(str(tmp_path / "spot.png"), pixels)
    return tmp_path / "spot.png"


def way(document: dict[str, Any], color: str, resize: str) -> dict[str, Any]:
    (found,) = (w for w in document["try"]["ways"] if (w["color"], w["resize"]) == (color, resize))
    assert isinstance(found, dict)
    return found


def test_what_is_pasted_is_taken_by_the_configuration_and_leaves_nothing_assumed(tmp_path: Path) -> None:
    code, bare = run(ir(tmp_path / "tiny.xml", class_count=3))
    assert (code, bare["refused"]) == (0, None)
    assert {bare[key]["source"] for key in EVERY_KEY[1:]} == {"assumed"}
    code, configured = run("tiny", config=configuration(tmp_path, "tiny", bare["yaml"]))
    assert code == 0
    assert {bare[key]["value"] for key in ("color", "resize")} == {"rgb", "letterbox"}
    for key in EVERY_KEY:
        assert configured[key]["value"] == bare[key]["value"], key
    assert {configured[key]["source"] for key in EVERY_KEY[1:]} == {"configuration"}


def test_wrong_colours_are_seen_at_once_and_the_line_is_told(tmp_path: Path, spot: Path) -> None:
    """The tiny net of one class sees only the first channel that it gets: red, where it is right."""
    path = ir(tmp_path / "tiny.xml", class_count=1)
    _, right = run(path, spot)
    assert way(right, "rgb", "letterbox")["inUse"]
    assert way(right, "rgb", "letterbox")["best"] > 0.9
    assert way(right, "bgr", "letterbox")["best"] < 0.5, "the grey beside the picture"
    assert right["try"]["advice"] == "No way scores clearly higher than rgb letterbox, the one in use."
    models = f"models:\n  tiny: {{task: detect, path: {path}, input: {{color: bgr}}}}\n"
    _, wrong = run("tiny", spot, config=configuration(tmp_path, "tiny", models))
    assert way(wrong, "bgr", "letterbox")["inUse"]
    assert wrong["try"]["advice"].startswith("rgb letterbox scores clearly higher")
    assert "write `input: {color: rgb}` under the model" in wrong["try"]["advice"]


@pytest.mark.parametrize(("color", "resize"), [("rgb", "stretch"), ("bgr", "letterbox_topleft"), ("bgr", "crop")])
def test_a_way_scores_as_a_daemon_would_that_is_configured_so(
    tmp_path: Path, spot: Path, color: Any, resize: Any
) -> None:
    path = ir(tmp_path / "tiny.xml", class_count=3)
    engine = OpenVinoEngine(ModelSpec("tiny", path, color=color, resize=resize, requests=1))
    engine.open()
    found = engine.infer(0, read_picture(spot), lambda: None)
    scored = way(run(path, spot)[1], color, resize)
    assert found
    assert scored["detections"] == len(found)
    assert scored["best"] == pytest.approx(found[0].confidence, abs=1e-5)


def test_the_shipped_model_on_drawn_boards_is_not_told_to_be_used_otherwise(tmp_path: Path) -> None:
    """It was trained with every tint, so that colours do not show; and cut boards make false alarms, not proof."""
    pictures = [tmp_path / "wide.png", tmp_path / "wider.png"]
    cv2.imwrite(str(pictures[0]), draw(3, 1, 640, 480)[0])
    cv2.imwrite(str(pictures[1]), draw(5, 4, 900, 500)[0])
    code, said = run(DEMO, *pictures)
    used = way(said, "rgb", "letterbox")
    assert (code, used["inUse"], said["color"]["source"]) == (0, True, "file")
    assert all(one["best"] > 0.8 for one in used["scores"]), "the board itself"
    assert said["try"]["advice"].startswith("No way scores clearly higher than rgb letterbox, the one in use.")


@pytest.mark.shared
def test_a_tie_is_refused_with_both_candidates_and_how_to_tell_them_apart() -> None:
    path = shared("models/layouts/yolox_decoded/yolox_decoded.xml")
    code, said = run(path)
    assert (code, said["refused"]["candidates"]) == (69, ["yolox", "yolox-decoded"])
    assert "add the right line under the model: `layout: yolox` or `layout: yolox-decoded`" in said["refused"]["text"]
    code, out, err = told(path)
    assert (code, out) == (69, "")
    assert f"  inspectd model {path} --layout yolox-decoded --try PICTURE\n" in err
    code, said = run(path, layout="yolox-decoded")
    assert (code, said["layout"]["source"]) == (0, "configuration")
    assert "layout: yolox-decoded" in said["yaml"]


@pytest.mark.shared
def test_a_real_detector_is_described() -> None:
    code, said = run(shared("models/tinydet-pcb/tinydet_640x640.xml"), precision="f32")
    assert (code, said["layout"]["value"], said["warmup"]["precision"]) == (0, "yolo", "f32")
    assert said["inputSizePx"]["value"] == {"width": 640, "height": 640}
    assert next(device["canRun"] for device in said["devices"] if device["name"] == "CPU")
    assert "precision: f32" in said["yaml"]


@pytest.mark.shared
@pytest.mark.parametrize("name", ["det", "cls", "rec"])
def test_a_model_that_reads_text_is_refused(name: str) -> None:
    code, said = run(shared(f"models/ppocr/{name}.onnx"))
    assert (code, said["refused"]["candidates"]) == (69, [])
    assert said["refused"]["text"].startswith(f"{name}: ")


def test_a_picture_is_no_model(spot: Path) -> None:
    code, out, err = told(spot)
    assert (code, out) == (69, "")
    assert err == f"spot: {spot} is no model file; expected .xml (with its .bin) or .onnx\n"


def test_a_picture_in_a_models_clothes_is_refused(tmp_path: Path, spot: Path) -> None:
    disguised = spot.rename(tmp_path / "spot.xml")
    code, said = run(disguised)
    assert (code, said["name"], said["path"]) == (69, "spot", str(disguised))
    assert "cannot read" in said["refused"]["text"]


def test_a_device_that_is_not_there_is_refused_with_the_cure(tmp_path: Path) -> None:
    code, said = run(ir(tmp_path / "tiny.xml"), device="NPU.7")
    assert code == 69
    assert "cannot compile for NPU.7" in said["refused"]["text"]
    assert "another --device (CPU is always there)" in said["refused"]["text"]


def test_a_picture_that_cannot_be_read_and_a_model_that_is_not_configured_end_it(tmp_path: Path) -> None:
    path = ir(tmp_path / "tiny.xml")
    with pytest.raises(SourceError, match=r"no\.png"):
        run(path, tmp_path / "no.png")
    models = f"models:\n  tiny: {{task: detect, path: {path}}}\n"
    with pytest.raises(UsageError, match=r"line\.yaml has no model 'tony', did you mean `tiny`\?"):
        run("tony", config=configuration(tmp_path, "tiny", models))


def test_notes_are_told_once_and_not_in_between(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The engine logs them as well, which without a daemon would go to the terminal."""
    code, out, err = told(ir(tmp_path / "tiny.xml"))
    assert (code, err) == (0, "")
    assert out.count("nobody names the classes") == 1
    assert capfd.readouterr().err == ""


def test_it_is_a_command(tmp_path: Path, spot: Path) -> None:
    path = ir(tmp_path / "tiny.xml", class_count=1)
    done = subprocess.run(
        [sys.executable, "-m", "inspectd", "model", str(path), "--try", str(spot)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=os.environ,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "◀ in use" in done.stdout
    assert f"    path: {path}\n" in done.stdout
