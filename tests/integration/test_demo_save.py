"""`inspectd demo --save`: pictures drawn once more from seed and number, with verdict, findings and truth."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspectd.camera.boards.drawing import draw
from inspectd.camera.files import read_picture
from inspectd.config.schema import Configuration
from inspectd.demo.configuration import as_yaml, packaged
from inspectd.demo.pictures import COUNT, SavedPictures
from inspectd.demo.run import run_demo
from inspectd.errors import UsageError


def configuration(**source: Any) -> Configuration:
    document = packaged()
    document["cameras"]["top"]["source"] = {"kind": "simulator", "seed": 1, "width": 320, "height": 240, **source}
    return Configuration.model_validate(document)


def result(frame_id: int, *found: dict[str, Any], state: int = 1) -> dict[str, Any]:
    return {
        "resultState": state,
        "resultEvaluation": 2 if found else 1,
        "acquisition": {"cameraId": "top", "frameId": frame_id},
        "resultContent": {"detections": list(found)},
    }


def spur(confidence: float) -> dict[str, Any]:
    box = {"x": 100.0, "y": 80.0, "w": 20.0, "h": 20.0}
    return {"detectionId": 0, "classId": 3, "className": "spur", "confidence": confidence, "bbox": box, "model": "m"}


def test_the_first_judged_pictures_are_saved_each_with_its_own_boxes(tmp_path: Path) -> None:
    pictures = SavedPictures(tmp_path, configuration())
    pictures.add(result(1, state=4))
    for frame_id in range(2, COUNT + 10):
        pictures.add(result(frame_id, spur(0.9)))
    assert pictures.write() == COUNT
    assert sorted(path.name for path in tmp_path.iterdir())[:2] == ["top-000002.png", "top-000003.png"]
    drawn, plain = read_picture(tmp_path / "top-000002.png"), draw(1, 2, 320, 240)[0]
    assert drawn.shape == plain.shape
    assert np.array_equal(drawn[80:100, 100:120], plain[80:100, 100:120]), "the same picture, seen through the box"
    assert 0.01 < (drawn != plain).any(axis=2).mean() < 0.2


def test_what_decides_nothing_is_not_drawn(tmp_path: Path) -> None:
    """Everything from 0.10 on is recorded; below every rule's threshold it would hide what counts."""
    least = min(rule.min_confidence or 0.0 for rule in configuration().decision.rules if "spur" in (rule.class_ or ()))
    for number, confidence in enumerate((least - 0.01, least + 0.01)):
        pictures = SavedPictures(tmp_path / str(number), configuration())
        pictures.add(result(2, spur(confidence)))
        pictures.write()
    below, above = (read_picture(tmp_path / name / "top-000002.png") for name in "01")
    assert (below != above).any()


def test_a_camera_that_is_not_simulated_is_refused_before_anything_starts(tmp_path: Path) -> None:
    document = packaged()
    document["cameras"]["side"]["source"] = {"kind": "files", "path": str(tmp_path)}
    (tmp_path / "a.png").write_bytes(b"x")
    (tmp_path / "own.yaml").write_text(as_yaml(document), "utf-8")
    with pytest.raises(UsageError, match="demo --save: camera side is not simulated"):
        run_demo(
            config=tmp_path / "own.yaml",
            seconds=1,
            json_output=True,
            broker=("127.0.0.1", 1),
            out=io.StringIO(),
            save=tmp_path / "out",
        )
    assert not (tmp_path / "out").exists()
