"""The demo model's network, its loss, and the way its answers are read. Plain PyTorch; input 320 × 320, RGB, 0..1."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from inspectd.camera.boards.scene import BOARD_CLASS, DEFECT_CLASSES

INPUT_PX = 320
PAD_VALUE = 114
CLASSES = (*DEFECT_CLASSES, BOARD_CLASS)
BOARD = CLASSES.index(BOARD_CLASS)
FINE_STRIDE, COARSE_STRIDE = 8, 32
"""Defects are looked for in cells of 8 px, the board's outline in cells of 32 px."""


class _Conv(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> None:
        padding = (kernel - 1) // 2 if kernel % 2 else (kernel - stride) // 2
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False),
            nn.BatchNorm2d(outputs, momentum=0.05),
            nn.ReLU(inplace=True),
        )


class _Block(nn.Module):
    """Residual block with a waist."""

    def __init__(self, channels: int, waist: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_Conv(channels, waist), _Conv(waist, channels))

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.body(x)
        return x + change


def _last(outputs: int, bias: float) -> nn.Conv2d:
    conv = nn.Conv2d(32, outputs, 1)
    if conv.bias is not None:
        nn.init.constant_(conv.bias, bias)
    return conv


class _Head(nn.Module):
    """Class logits, and distances to the four sides in px, per cell."""

    def __init__(self, inputs: int, classes: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.classes = nn.Sequential(_Conv(inputs, 32), _last(classes, -4.6))  # 1 %, or empty cells drown the rest
        self.sides = nn.Sequential(_Conv(inputs, 32), _last(4, 1.0))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.classes(x).flatten(2), functional.softplus(self.sides(x)).flatten(2) * self.stride


class Net(nn.Module):
    """Anchor-free detector; the fine head knows the six defects, the coarse head the board."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(_Conv(3, 32, kernel=8, stride=4), _Block(32, 16))
        self.fine = nn.Sequential(_Conv(32, 64, stride=2), _Block(64, 32), _Block(64, 32))
        self.middle = nn.Sequential(_Conv(64, 96, stride=2), _Block(96, 48))
        self.coarse = nn.Sequential(_Conv(96, 128, stride=2), _Block(128, 64))
        self.context = _Conv(96, 32, 1)
        self.join = _Conv(96, 64, 1)
        self.fine_head = _Head(64, len(DEFECT_CLASSES), FINE_STRIDE)
        self.coarse_head = _Head(128, 1, COARSE_STRIDE)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Give logits [n, 6, 1600] and sides [n, 4, 1600] of the defects, [n, 1, 100] and [n, 4, 100] of the board."""
        fine = self.fine(self.stem(x))
        middle = self.middle(fine)
        wide = functional.interpolate(self.context(middle), scale_factor=2.0, mode="nearest")
        return (*self.fine_head(self.join(torch.cat((fine, wide), 1))), *self.coarse_head(self.coarse(middle)))


class Exported(nn.Module):
    """The network with its answer in the layout `yolo`: [1, 4 + 7, 1700], cx cy w h in px, then scores 0..1."""

    fine_cells: Tensor
    coarse_cells: Tensor

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("fine_cells", cell_centres(FINE_STRIDE))
        self.register_buffer("coarse_cells", cell_centres(COARSE_STRIDE))

    def forward(self, x: Tensor) -> Tensor:
        """Give [1, 11, 1700]."""
        defects, defect_sides, board, board_sides = self.net(x)
        boxes = torch.cat((_centred(self.fine_cells, defect_sides), _centred(self.coarse_cells, board_sides)), 2)
        defect_scores = functional.pad(defects.sigmoid(), (0, 0, 0, 1))
        board_scores = functional.pad(board.sigmoid(), (0, 0, BOARD, 0))
        scores = torch.cat((defect_scores, board_scores), 2)
        return torch.cat((boxes, scores), 1)


def cell_centres(stride: int) -> Tensor:
    """[2, cells]: x and y of each cell's centre in px, row by row."""
    steps = (torch.arange(INPUT_PX // stride) + 0.5) * stride
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    return torch.stack((x.flatten(), y.flatten()))


def _centred(cells: Tensor, sides: Tensor) -> Tensor:
    left_top, right_bottom = sides[:, :2], sides[:, 2:]
    return torch.cat((cells + (right_bottom - left_top) / 2, left_top + right_bottom), 1)


def loss(answer: tuple[Tensor, Tensor, Tensor, Tensor], boxes: list[Tensor], mosaics: int) -> Tensor:
    """Score a batch; `boxes` per picture [k, 5]: class, x0, y0, x1, y1 in px of the input.

    The board is not asked for in the first `mosaics` pictures: they show only pieces.
    """
    defects = _head_loss(answer[0], answer[1], [b[b[:, 0] != BOARD] for b in boxes], FINE_STRIDE)
    boards = [b[b[:, 0] == BOARD] - torch.tensor([BOARD, 0, 0, 0, 0]) for b in boxes[mosaics:]]
    return defects + 0.5 * _head_loss(answer[2][mosaics:], answer[3][mosaics:], boards, COARSE_STRIDE)


def _head_loss(logits: Tensor, sides: Tensor, boxes: list[Tensor], stride: int) -> Tensor:
    """Focal loss of the classes and GIoU of the boxes, over the cells next to a box's centre."""
    cells = cell_centres(stride)
    target = torch.zeros_like(logits)
    owned, wanted, picture = [], [], []
    for number, truth in enumerate(boxes):
        if not len(truth):
            continue
        centres = (truth[:, 1:3] + truth[:, 3:5]) / 2
        distance = torch.cdist(cells.T, centres)
        nearest = distance.min(1)
        cell = torch.nonzero(nearest.values < 1.05 * stride)[:, 0]
        owner = nearest.indices[cell]
        target[number, truth[owner, 0].long(), cell] = 1.0
        owned.append(cell)
        wanted.append(truth[owner, 1:])
        picture.append(torch.full_like(cell, number))
    score = logits.sigmoid()
    focus = (target - score).abs().detach() ** 1.5
    count = max(1, int(target.sum()))
    classes = (functional.binary_cross_entropy_with_logits(logits, target, reduction="none") * focus).sum() / count
    if not owned:
        return classes
    cell, truth = torch.cat(owned), torch.cat(wanted)
    found = sides[torch.cat(picture), :, cell]
    at = cells.T[cell]
    return 4 * classes + 2 * (1 - _giou(torch.cat((at - found[:, :2], at + found[:, 2:]), 1), truth)).mean()


def _giou(a: Tensor, b: Tensor) -> Tensor:
    """Generalized IoU of corner boxes (Rezatofighi et al., 2019)."""
    overlap = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0).prod(1)
    hull = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - overlap
    return overlap / union - (hull - union) / hull


def letterbox(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], float, int, int]:
    """Fit a picture into the input, centred; also the gain and the left and top padding in px."""
    height, width = pixels.shape[:2]
    gain = INPUT_PX / max(height, width)
    new_w, new_h = round(width * gain), round(height * gain)
    left, top = round((INPUT_PX - new_w) / 2 - 0.1), round((INPUT_PX - new_h) / 2 - 0.1)
    boxed = np.full((INPUT_PX, INPUT_PX, 3), PAD_VALUE, np.uint8)
    boxed[top : top + new_h, left : left + new_w] = cv2.resize(pixels, (new_w, new_h), interpolation=cv2.INTER_LINEAR)
    return boxed, gain, left, top


def decode(output: NDArray[np.float32], confidence: float, iou: float) -> list[tuple[int, float, NDArray[Any]]]:
    """Read [11, N]: (class, score, x0 y0 x1 y1 px of the input), best first, NMS within each class."""
    scores = output[4:].max(0)
    keep = scores >= confidence
    classes, scores, (cx, cy, w, h) = output[4:].argmax(0)[keep], scores[keep], output[:4, keep]
    corners = np.stack((cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2), 1)
    found: list[tuple[int, float, NDArray[Any]]] = []
    for i in np.argsort(-scores):
        if all(classes[i] != other or overlap(corners[i], box) <= iou for other, _, box in found):
            found.append((int(classes[i]), float(scores[i]), corners[i]))
    return found


def overlap(a: NDArray[Any], b: NDArray[Any]) -> float:
    """IoU of two corner boxes."""
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if w <= 0 or h <= 0:
        return 0.0
    return float(w * h / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - w * h))
