"""What a stand does to the host and asks of it: waits, the local door, mounts."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

STEP_S = 0.05
"""Between two looks at what tells nobody that it changed: the journal's files, /proc."""
GIVEN_UP = threading.Event()
"""Somebody has interrupted the run: nobody waits any more."""


def is_met(condition: Callable[[], object], limit_s: float) -> bool:
    """Wait for a condition; gives whether it is met within the limit."""
    until_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() >= until_s:
            return False
        if GIVEN_UP.wait(STEP_S):
            pytest.fail("given up")
    return True


def answers(door: Path) -> bool:
    """Whether somebody listens at a local socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        try:
            caller.connect(str(door))
        except OSError:
            return False
    return True


def mount(undo: ExitStack, where: Path, options: str) -> None:
    """Mount a tmpfs until `undo` is closed."""
    where.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(where)], check=True, timeout=10)
    undo.callback(subprocess.run, ["umount", "-l", str(where)], check=True, timeout=10)
