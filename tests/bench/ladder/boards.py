"""The pictures that all rungs get: simulated boards, drawn once and kept as files that cost next to nothing to read."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from inspectd.camera.boards.drawing import draw

COUNT, SIZE_PX, SEED = 8, 640, 1
Picture = NDArray[np.uint8]


def write_boards(disk: Path, name: str = "boards") -> Path:
    """Draw them into a folder under `disk`, unless they are there."""
    folder = disk / name
    if not folder.exists():
        folder.mkdir()
        for number in range(1, COUNT + 1):
            cv2.imwrite(str(folder / f"{number}.bmp"), draw(SEED, number, SIZE_PX, SIZE_PX)[0])
    return folder


def read_boards(folder: Path) -> list[Picture]:
    """Give [H, W, 3] BGR each; they take 1.2 MB of memory each."""
    return [np.asarray(cv2.imread(str(path)), np.uint8) for path in sorted(folder.iterdir())]
