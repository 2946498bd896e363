"""The demo model's training pictures: drawn once by the simulator, kept on disk, varied at random but repeatably."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demo_pictures import INPUT_PX, Sample, crowded, plain

TRAIN_SEED = 100_000
"""First seed; a seed is a line with six boards of its own."""
PER_LINE, CROWDED = 10, 5
"""Pictures of a line, and how many of them are crowded; the rest is as the line gives it, half without a defect."""
SIZES_PX = ((640, 640),) * 16 + ((640, 480), (480, 640), (320, 240), (1280, 960))
"""Picture sizes of the training lines, most often the demo's."""


def keep_samples(folder: Path, lines: int) -> Sequence[Sample]:
    """Draw the training set, or read what an earlier run with the same number of lines has drawn.

    Pictures are mapped, not loaded: the kernel may drop what is not needed.
    """
    pixels_path, boxes_path = folder / f"pixels-{lines}.npy", folder / f"boxes-{lines}.npz"
    if not boxes_path.exists():
        _draw(pixels_path, boxes_path, lines)
    pixels = np.load(pixels_path, mmap_mode="r")
    with np.load(boxes_path) as kept:
        return [Sample(*pair) for pair in zip(pixels, np.split(kept["boxes"], kept["ends"]), strict=True)]


def vary(item: Sample, rng: Random) -> tuple[NDArray[np.float32], Tensor]:
    """Mirror, turn, light and tint a sample at random: RGB [3, h, w] in 0..1, and its boxes."""
    pixels, boxes = item.pixels, item.boxes.copy()
    if rng.random() < 0.5:
        pixels, boxes[:, [1, 3]] = pixels[:, ::-1], INPUT_PX - boxes[:, [3, 1]]
    if rng.random() < 0.5:
        pixels, boxes[:, [2, 4]] = pixels[::-1], INPUT_PX - boxes[:, [4, 2]]
    if rng.random() < 0.5:
        pixels, boxes = pixels.transpose(1, 0, 2), boxes[:, [0, 2, 1, 4, 3]]
    channels = rng.sample(range(3), 3) if rng.random() < 0.1 else [2, 1, 0]
    light = rng.uniform(0.8, 1.2)
    tint = np.array([light * rng.uniform(0.95, 1.05) / 255 for _ in range(3)], np.float32)
    values = pixels[:, :, channels].astype(np.float32) * tint
    return np.ascontiguousarray(np.minimum(values, 1).transpose(2, 0, 1)), torch.from_numpy(boxes)


def _draw(pixels_path: Path, boxes_path: Path, lines: int) -> None:
    shape = (lines * PER_LINE, INPUT_PX, INPUT_PX, 3)
    pixels = np.lib.format.open_memmap(pixels_path, mode="w+", dtype=np.uint8, shape=shape)
    boxes = []
    for line in range(lines):
        size_px = SIZES_PX[line % len(SIZES_PX)]
        for frame_id in range(PER_LINE):
            make = crowded if frame_id < CROWDED else plain
            item = make(TRAIN_SEED + line, frame_id, *size_px)
            pixels[len(boxes)] = item.pixels
            boxes.append(item.boxes)
        if line % 20 == 0:
            print(f"drawing line {line} of {lines}", flush=True)
    pixels.flush()
    np.savez(boxes_path, boxes=np.concatenate(boxes), ends=np.cumsum([len(rows) for rows in boxes])[:-1])
