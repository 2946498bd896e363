"""The demo model's training pictures: drawn by the simulator, kept on disk, mixed and varied at random."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demo_model import BOARD, CLASSES, INPUT_PX, letterbox
from inspectd.camera.boards.drawing import draw
from inspectd.camera.boards.scene import truth

TRAIN_SEED = 100_000
"""First seed; a seed is a line with six boards of its own."""
SIZES_PX = ((640, 640),) * 12 + ((640, 480),) * 3 + ((480, 640), (320, 240), (1280, 960), (1920, 1080))
"""Picture sizes of the training lines, most often the demo's."""
PIECE_PX, PIECES_PX = 107, (0, 107, 213)
"""Size and places of the nine pieces of a mosaic."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One letterboxed BGR picture, and its boxes [k, 5]: class, x0, y0, x1, y1 in px of the input."""

    pixels: NDArray[np.uint8]
    boxes: NDArray[np.float32]


def sample(seed: int, frame_id: int, width_px: int, height_px: int) -> Sample:
    """Draw one picture as the daemon would give it to the net."""
    pixels, boxes = draw(seed, frame_id, width_px, height_px)
    boxed, gain, left, top = letterbox(pixels)
    rows = [
        (
            CLASSES.index(b.class_name),
            b.x * gain + left,
            b.y * gain + top,
            (b.x + b.w) * gain + left,
            (b.y + b.h) * gain + top,
        )
        for b in boxes
    ]
    return Sample(boxed, np.array(rows, np.float32).reshape(-1, 5))


def make_samples(lines: int, per_line: int) -> list[Sample]:
    """Draw the training set: seven of ten pictures with defects, the rest good boards and empty places."""
    samples = []
    for line in range(lines):
        seed = TRAIN_SEED + line
        width_px, height_px = SIZES_PX[line % len(SIZES_PX)]
        counts = [len(truth(seed, frame_id, width_px, height_px)) for frame_id in range(6 * per_line)]
        with_defects = [frame_id for frame_id, count in enumerate(counts) if count > 1]
        without = [frame_id for frame_id, count in enumerate(counts) if count <= 1]
        bad = round(0.7 * per_line)
        chosen = with_defects[:bad] + without[: per_line - bad]
        samples += [sample(seed, frame_id, width_px, height_px) for frame_id in chosen]
        if line % 20 == 0:
            print(f"drawing line {line} of {lines}", flush=True)
    return samples


def keep_samples(folder: Path, lines: int, per_line: int) -> list[Sample]:
    """Draw the training set, or read what an earlier run with the same numbers has drawn."""
    path = folder / f"samples-{lines}-{per_line}.npz"
    if not path.exists():
        drawn = make_samples(lines, per_line)
        ends = np.cumsum([len(item.boxes) for item in drawn])[:-1]
        pixels, boxes = np.stack([item.pixels for item in drawn]), np.concatenate([item.boxes for item in drawn])
        np.savez(path, pixels=pixels, boxes=boxes, ends=ends)
    with np.load(path) as kept:
        split = np.split(kept["boxes"], kept["ends"])
        return [Sample(pixels, boxes) for pixels, boxes in zip(kept["pixels"], split, strict=True)]


def mosaic(bad: list[Sample], rng: Random) -> Sample:
    """Put nine pieces together, each with a defect: much more to learn in the same time than from whole boards."""
    pixels, boxes = np.empty((INPUT_PX, INPUT_PX, 3), np.uint8), []
    for to_x, to_y in ((x, y) for x in PIECES_PX for y in PIECES_PX):
        size = PIECE_PX
        item = rng.choice(bad)
        defects = item.boxes[item.boxes[:, 0] != BOARD]
        x, y = (int(at) - rng.randint(6, size - 26) for at in rng.choice(list(defects))[1:3])
        x, y = min(max(x, 0), INPUT_PX - size), min(max(y, 0), INPUT_PX - size)
        pixels[to_y : to_y + size, to_x : to_x + size] = item.pixels[y : y + size, x : x + size]
        shifted = defects - np.array([0, x, y, x, y], np.float32)
        centres = (shifted[:, 1:3] + shifted[:, 3:5]) / 2
        inside = shifted[((centres > 2) & (centres < size - 2)).all(1)]
        inside[:, 1:] = inside[:, 1:].clip(0, size)
        boxes.append(inside + np.array([0, to_x, to_y, to_x, to_y], np.float32))
    return Sample(pixels, np.concatenate(boxes))


def vary(item: Sample, rng: Random) -> tuple[NDArray[np.float32], Tensor]:
    """Mirror, turn, light and tint a sample at random: RGB [3, h, w] in 0..1, and its boxes."""
    pixels, boxes = item.pixels, item.boxes.copy()
    if rng.random() < 0.5:
        pixels, boxes[:, [1, 3]] = pixels[:, ::-1], INPUT_PX - boxes[:, [3, 1]]
    if rng.random() < 0.5:
        pixels, boxes[:, [2, 4]] = pixels[::-1], INPUT_PX - boxes[:, [4, 2]]
    if rng.random() < 0.5:
        pixels, boxes = pixels.transpose(1, 0, 2), boxes[:, [0, 2, 1, 4, 3]]
    channels = rng.sample(range(3), 3) if rng.random() < 0.3 else [2, 1, 0]
    light = rng.uniform(0.75, 1.25)
    tint = np.array([light * rng.uniform(0.95, 1.05) / 255 for _ in range(3)], np.float32)
    values = pixels[:, :, channels].astype(np.float32) * tint
    return np.ascontiguousarray(np.minimum(values, 1).transpose(2, 0, 1)), torch.from_numpy(boxes)
