"""How large things are in the simulated pictures, by the picture's size in px."""

from __future__ import annotations

_MODEL_INPUT_PX = 320


def size_fault(width_px: int, height_px: int) -> str | None:
    """Tell why boards cannot be drawn in this size; None if they can."""
    longest, shortest = max(width_px, height_px), min(width_px, height_px)
    if shortest < 120 or longest > 2.5 * shortest:
        return f"{width_px} × {height_px} px: needs at least 120 px, and no side longer than 2.5 times the other"
    return None


def unit_px(width_px: int, height_px: int) -> float:
    """Picture px per unit of the artwork: the letterbox into the model's square input has the inverse gain."""
    return max(width_px, height_px) / _MODEL_INPUT_PX


def board_size_px(width_px: int, height_px: int) -> tuple[int, int]:
    """Width and height of every board on the line."""
    belt_px = 2 * margin_px(width_px, height_px)
    return width_px - belt_px, height_px - belt_px


def margin_px(width_px: int, height_px: int) -> int:
    """Belt on each side of a board that lies in the middle."""
    return round(0.05 * min(width_px, height_px))
