"""Makes a process unkillable, as a driver that hangs does: SIGKILL stays pending until it is let go.

By the freezer of cgroup v1, which holds against SIGKILL (that of cgroup v2 does not). Where it is not mounted it is
mounted at a place of our own: cgroup v2 has no freezer controller that could be in the way. Needs root. The process may
live in a container; its pid is the one that is seen from here.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

LIMIT_S = 10.0
STEP_S = 0.005
SIGKILL_BIT = 1 << 8


@contextmanager
def freezer() -> Iterator[Path]:
    """Have a group of the v1 freezer; empty at the end. Raises OSError and CalledProcessError without root."""
    with ExitStack() as undo:
        root = _mounted() or undo.enter_context(_mount())
        group = root / f"inspectd-test-{uuid.uuid4().hex[:8]}"
        group.mkdir()
        undo.callback(_remove, group)
        yield group


@contextmanager
def frozen(*pids: int) -> Iterator[Path]:
    """Freeze whole processes; they are let go at the end, and then die of what they were sent. Gives the group."""
    with freezer() as group:
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        freeze(group)
        yield group


@contextmanager
def frozen_thread(thread_id: int) -> Iterator[Path]:
    """Freeze one thread only, like one that is stuck in a driver: the others of its process die when killed."""
    with freezer() as group:
        (group / "tasks").write_text(str(thread_id))
        freeze(group)
        yield group


def freeze(group: Path) -> None:
    """Freeze the group, and wait until everything in it stands still."""
    (group / "freezer.state").write_text("FROZEN")
    wait_until(lambda: (group / "freezer.state").read_text().strip() == "FROZEN")


def thaw(group: Path) -> None:
    """Let go."""
    (group / "freezer.state").write_text("THAWED")


def is_condemned(pid: int) -> bool:
    """Whether SIGKILL is pending for every thread: it runs no instruction of its own any more."""
    return all(_is_sigkill_pending(thread / "status") for thread in _living_threads(pid))


def is_there(pid: int) -> bool:
    """Whether the process has not ended (a zombie has)."""
    return bool(_living_threads(pid))


def wait_until(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Wait for what the kernel does."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not within {limit_s:g} s")
        time.sleep(STEP_S)


def _living_threads(pid: int) -> list[Path]:
    living = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                if (thread / "stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}:
                    living.append(thread)
    return living


def _is_sigkill_pending(status: Path) -> bool:
    """Whether it waits for the thread, or for its whole process."""
    words = (line.split() for line in status.read_text().splitlines())
    return any(int(word[1], 16) & SIGKILL_BIT for word in words if word[0] in {"SigPnd:", "ShdPnd:"})


def _mounted() -> Path | None:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup" and "freezer" in options.split(","):
            return Path(place)
    return None


@contextmanager
def _mount() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="freezer-") as place:
        subprocess.run(["mount", "-t", "cgroup", "-o", "freezer", "inspectd-test", place], check=True)
        try:
            yield Path(place)
        finally:
            subprocess.run(["umount", place], check=True)


def _remove(group: Path) -> None:
    """Let go of what is in it; it dies of its SIGKILL, or goes on in the parent group."""
    thaw(group)
    for _ in range(2):
        for thread_id in (group / "tasks").read_text().split():
            with suppress(OSError):
                (group.parent / "tasks").write_text(thread_id)
    wait_until(lambda: not (group / "tasks").read_text().split())
    group.rmdir()
