"""Prints what a simulated picture costs: ms of CPU to draw it, to know its truth, and to open the line.

PYTHONPATH=daemon python tests/bench/bench_simulator.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import cv2

from inspectd.camera.boards.drawing import draw, prepare
from inspectd.camera.boards.scene import truth

SIZES_PX = ((640, 640), (320, 240), (1280, 720), (1920, 1080))
BUDGET_MS = 2.0
"""Of a picture of 640 × 640 (DESIGN, Budgets)."""
SEED, PICTURES, ROUNDS = 1, 100, 5


def cpu_ms(action: Callable[[int], object]) -> float:
    """CPU of one call, the best of some rounds: other work on the host only ever adds to it."""
    rounds = []
    for _ in range(ROUNDS):
        started_s = time.process_time()
        for frame_id in range(PICTURES):
            action(frame_id)
        rounds.append((time.process_time() - started_s) / PICTURES * 1000)
    return min(rounds)


def main() -> None:
    cv2.setNumThreads(1)  # as in the camera child
    print(f"{'size':>12} {'draw ms':>8} {'truth ms':>9} {'open ms':>8}")
    for width_px, height_px in SIZES_PX:
        started_s = time.process_time()
        prepare(SEED, width_px, height_px)
        open_ms = (time.process_time() - started_s) * 1000
        draw_ms = cpu_ms(lambda n, w=width_px, h=height_px: draw(SEED, n, w, h))  # type: ignore[misc]
        truth_ms = cpu_ms(lambda n, w=width_px, h=height_px: truth(SEED, n, w, h))  # type: ignore[misc]
        budget = f"  budget {BUDGET_MS:.1f}" if (width_px, height_px) == (640, 640) else ""
        print(f"{width_px:>5} × {height_px:<4} {draw_ms:8.2f} {truth_ms:9.3f} {open_ms:8.0f}{budget}")


if __name__ == "__main__":
    main()
