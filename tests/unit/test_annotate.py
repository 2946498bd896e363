"""Annotated pictures: the size stays, the defect stays visible, a class keeps its colour; and where they are kept."""

from __future__ import annotations

import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from inspectd.annotate import PALETTE, Caption, annotated, colour_of
from inspectd.camera import Pixels
from inspectd.camera.files import read_picture
from inspectd.errors import OutsideError, UsageError
from inspectd.picturefolder import PictureFolder
from inspectd.records import Box, Detection


def found(box: Box, class_id: int = 1, class_name: str = "short") -> Detection:
    return Detection(class_id, class_name, 0.75, box, "defects")


def grey(height_px: int = 480, width_px: int = 640, value: int = 90) -> Pixels:
    return np.full((height_px, width_px, 3), value, np.uint8)


def count_of(pixels: Pixels, colour: tuple[int, int, int]) -> int:
    return int((pixels == np.array(colour, np.uint8)).all(axis=2).sum())


def changed(pixels: Pixels, drawn: Pixels) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.asarray((pixels != drawn).any(axis=2))


@pytest.mark.parametrize("size", [(480, 640), (3000, 200), (64, 48), (8, 8), (1, 1)])
def test_the_picture_keeps_its_size_and_the_original_its_pixels(size: tuple[int, int]) -> None:
    pixels = grey(*size)
    drawn = annotated(pixels, [found(Box(1, 1, 3, 3))], truth=[Box(0, 0, 4, 4)], caption=Caption("OK", PALETTE[3]))
    assert drawn.shape == pixels.shape
    assert drawn.dtype == np.uint8
    assert np.array_equal(pixels, grey(*size))


def test_nothing_found_changes_nothing() -> None:
    assert np.array_equal(annotated(grey(), []), grey())


def test_the_inside_of_a_box_is_left_alone() -> None:
    """A defect of a few px would vanish under the line that is to show it."""
    box = Box(300, 200, 12, 9)
    drawn = annotated(grey(), [found(box)])
    assert not changed(grey(), drawn)[200:209, 300:312].any()
    assert count_of(drawn, colour_of(1)) > 50


@pytest.mark.parametrize("background", [(0, 0, 0), (255, 255, 255), colour_of(1)])
def test_a_box_is_seen_on_any_background(background: tuple[int, int, int]) -> None:
    """Also on black, white and its own colour: a coloured line with a black one on both sides."""
    pixels = np.broadcast_to(np.array(background, np.uint8), (480, 640, 3)).copy()
    drawn = annotated(pixels, [found(Box(300, 200, 60, 60))])
    assert changed(pixels, drawn)[190:270, 290:370].sum() > 200


def test_a_class_has_one_colour_in_every_picture() -> None:
    """By its number: what else is in the picture, and how sure the model is, do not count."""
    alone = annotated(grey(), [found(Box(100, 100, 50, 50), 3, "spur")])
    other = annotated(grey(), [found(Box(10, 10, 50, 50)), found(Box(100, 100, 50, 50), 3, "spur")])
    assert count_of(alone, PALETTE[3]) > 100
    assert count_of(other, PALETTE[3]) == count_of(alone, PALETTE[3])
    assert colour_of(len(PALETTE) + 3) == PALETTE[3]
    assert len(set(PALETTE)) == len(PALETTE)


@pytest.mark.parametrize(
    "box", [Box(-20, -20, 40, 40), Box(620, 460, 90, 90), Box(0, 0, 640, 480), Box(700, 500, 10, 10), Box(5, 5, 0, 0)]
)
def test_a_box_over_the_edge_is_cut_to_the_picture(box: Box) -> None:
    """Boxes are not clipped by the decoder: a model says where the other half of an object is."""
    assert changed(grey(), annotated(grey(), [found(box)])).any()


def test_sizes_grow_with_the_picture() -> None:
    small, large = (annotated(grey(side, side), [found(Box(side / 2, side / 2, 9, 9))]) for side in (640, 2560))
    assert changed(grey(2560, 2560), large).sum() > 8 * changed(grey(640, 640), small).sum()


def test_tags_keep_clear_of_small_boxes_and_of_each_other() -> None:
    """Two defects side by side: neither's name may hide the other."""
    boxes = [Box(300, 200, 20, 20), Box(330, 200, 20, 20), Box(300, 230, 20, 20)]
    drawn = annotated(grey(), [found(box, number) for number, box in enumerate(boxes)])
    for box in boxes:
        inside = np.s_[int(box.y) : int(box.y + box.h), int(box.x) : int(box.x + box.w)]
        assert not changed(grey(), drawn)[inside].any()
    areas = [count_of(drawn, colour_of(number)) for number in range(3)]
    alone = [count_of(annotated(grey(), [found(box, number)]), colour_of(number)) for number, box in enumerate(boxes)]
    assert all(area > 0.7 * whole for area, whole in zip(areas, alone, strict=True))


def test_chinese_class_names_are_drawn() -> None:
    """Not as question marks: two names give two pictures."""
    one, two = (annotated(grey(), [found(Box(300, 200, 20, 20), 1, name)]) for name in ("短路", "开路"))
    assert not np.array_equal(one, two)


def test_the_truth_is_thinner_and_under_what_was_found() -> None:
    box = Box(100, 100, 300, 200)
    true = changed(grey(), annotated(grey(), [], truth=[box]))
    model = changed(grey(), annotated(grey(), [found(box)]))
    assert 0 < true.sum() < 0.5 * model.sum()
    both = annotated(grey(), [found(box)], truth=[box])
    assert count_of(both, colour_of(1)) == count_of(annotated(grey(), [found(box)]), colour_of(1))


def stored(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), grey(8, 8))
    return path


@pytest.mark.parametrize("name", ["a.png", "b.jpg", "c.TIF", "电路板.bmp", "d.webp"])
def test_a_saved_picture_keeps_its_name_and_format(tmp_path: Path, name: str) -> None:
    path = PictureFolder(tmp_path / "new" / "out").save(name, grey(8, 8))
    assert path == tmp_path / "new" / "out" / name
    assert np.abs(read_picture(path).astype(int) - 90).max() <= 1


def test_an_ending_can_be_one_for_all(tmp_path: Path) -> None:
    """What the net gets is compared px by px: JPEG would change it."""
    folder = PictureFolder(tmp_path, ending=".png")
    assert [folder.save(name, grey(8, 8)).name for name in ("a.jpg", "b", "c.d")] == ["a.png", "b.png", "c.d.png"]


def test_two_pictures_of_one_name_are_both_kept(tmp_path: Path) -> None:
    folder = PictureFolder(tmp_path)
    assert [folder.save(name, grey(8, 8)).name for name in ("a.png", "A.png", "a.png")] == [
        "a.png",
        "A-2.png",
        "a-3.png",
    ]


def test_a_second_run_replaces_its_own_pictures(tmp_path: Path) -> None:
    for _ in range(2):
        assert PictureFolder(tmp_path).save("a.png", grey(8, 8)).name == "a.png"


@pytest.mark.parametrize("way", ["itself", "symbolic link", "hard link", "other way to write it"])
def test_an_input_is_never_overwritten(tmp_path: Path, way: str) -> None:
    """Refused before anything is done, however the folder leads there."""
    image = stored(tmp_path / "in" / "a.png")
    out = tmp_path / "out"
    if way == "itself":
        out = image.parent
    elif way == "other way to write it":
        out = tmp_path / "in" / ".." / "in"
    else:
        out.mkdir()
        (os.symlink if way == "symbolic link" else os.link)(image, out / "a.png")
    before = image.read_bytes()
    with pytest.raises(UsageError, match=r"a\.png is one of the pictures to read: give another folder"):
        PictureFolder(out, [image])
    assert image.read_bytes() == before


def test_a_numbered_name_does_not_overwrite_an_input_either(tmp_path: Path) -> None:
    images = [stored(tmp_path / "out" / "a-2.png")]
    with pytest.raises(UsageError):
        PictureFolder(tmp_path / "out", images)
    folder = PictureFolder(tmp_path / "out", [stored(tmp_path / "x" / "a.png")])
    folder.save("a.png", grey(8, 8))


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match="cannot be made"):
        PictureFolder(stored(tmp_path / "a.png") / "out")
