"""`inspectd infer --save` and `--save-input`, as a user calls it, with the shipped model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from inspectd.camera.boards.drawing import draw
from inspectd.camera.files import read_picture

MODEL = Path(__file__).parents[2] / "config" / "models" / "pcb-demo.xml"
SIDE = 320
"""Of the shipped model's input."""


def infer(*arguments: str | Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "inspectd", "infer", "--model", str(MODEL), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=os.environ,
    )
    return done.returncode, done.stderr


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    """A wide board, one as JPEG, and something else between them."""
    paths = [tmp_path / "in" / name for name in ("wide.png", "broken.png", "square.jpg")]
    paths[0].parent.mkdir()
    cv2.imwrite(str(paths[0]), draw(3, 1, 640, 480)[0])
    paths[1].write_text("no picture", encoding="utf-8")
    cv2.imwrite(str(paths[2]), draw(3, 2, 640, 640)[0])
    return paths


def test_annotated_pictures_keep_size_and_name_and_the_nets_picture_is_letterboxed(
    tmp_path: Path, pictures: list[Path]
) -> None:
    code, said = infer(*pictures, "--save", tmp_path / "out", "--save-input", tmp_path / "net")
    assert code == 69
    assert "broken.png: not a picture" in said
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["square.jpg", "wide.png"]
    assert sorted(path.name for path in (tmp_path / "net").iterdir()) == ["square.png", "wide.png"]
    wide, drawn = read_picture(pictures[0]), read_picture(tmp_path / "out" / "wide.png")
    assert drawn.shape == wide.shape
    assert (drawn != wide).any(), "the board itself is found"
    net = read_picture(tmp_path / "net" / "wide.png")
    assert net.shape == (SIDE, SIDE, 3)
    assert np.array_equal(net[40:280], cv2.resize(wide, (SIDE, 240), interpolation=cv2.INTER_LINEAR))
    assert (net[:40] == 114).all()
    assert (net[280:] == 114).all()


def test_a_folder_with_the_pictures_themselves_is_refused(tmp_path: Path, pictures: list[Path]) -> None:
    before = pictures[0].read_bytes()
    code, said = infer(pictures[0], "--save", tmp_path / "in")
    assert (code, pictures[0].read_bytes()) == (2, before)
    assert "wide.png is one of the pictures to read: give another folder" in said


def test_one_folder_for_both_is_refused(tmp_path: Path, pictures: list[Path]) -> None:
    """They have the same names."""
    code, said = infer(pictures[0], "--save", tmp_path / "x", "--save-input", tmp_path / "in" / ".." / "x")
    assert code == 2
    assert "give two folders" in said
