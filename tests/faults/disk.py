"""Faults of disks: full, read-only, a damaged journal, a second daemon on the same folder, a cache that is no use."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.faults.fault import Fault, Setup
from tests.faults.outside import mount
from tests.faults.stand import FPS, MODELS, TOP, Stand

STATE_MB = 48
STORAGE = "StorageFull/storage"
DAMAGED = "OutboxDamaged/storage"
FILLER = "somebody-elses-file"
LIMIT_S = 30.0
OUTSIDE = 69
NOT_COMMITTED = 700
PAGE_BYTES = 4096
MEANWHILE = 2 * FPS


# Stands


def own_mounts(stand: Stand) -> tuple[str, ...]:
    """The daemon in a mount namespace of its own: what happens to its disk there happens to nobody else."""
    del stand
    return ("unshare", "--mount", "--propagation", "private")


def own_cache(stand: Stand) -> dict[str, str]:
    """A disk of its own for compiled models."""
    return {"CACHE_DIRECTORY": str(stand.folder / "cache")}


def _with_cache(document: dict[str, Any], stand: Stand) -> None:
    mount(stand.undoing, stand.folder / "cache", "size=2m")
    del document


SMALL_DISK = Setup("small disk", disk_mb=STATE_MB)
OWN_MOUNTS = Setup("own mounts", prefix=own_mounts, needs=("unshare", "nsenter"))
OWN_CACHE = Setup("own cache", _with_cache, environment=own_cache)


# Faults


def fill(folder: Path) -> Path:
    """Write until nothing more goes; gives the file to be deleted."""
    path = folder / FILLER
    block = bytes(1 << 20)
    with path.open("wb", buffering=0) as file:
        while len(block) >= 1:
            try:
                file.write(block)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                block = block[: len(block) // 2]
    return path


def full(stand: Stand) -> str:
    """The space that was kept is given up first; then `ready` is false, what is computed is told as 700."""
    filler = fill(stand.state)
    with ExitStack() as undo:
        undo.callback(filler.unlink)
        stand.saw("kept for the journal are given up")
        stand.until(lambda: fill_up(filler), "the space that was given up is full too")
        text = stand.alarm(STORAGE)["text"]
        stand.listener.wait_for("state", lambda states: states[-1]["ready"] is False)
        _meanwhile(stand)
    stand.mark()
    stand.until_inspecting()
    stand.listener.wait_for("state", lambda states: states[-1]["ready"])
    stand.alarm_over(STORAGE)
    return f"alarm StorageFull ({text}), ready false, code 700; back by itself"


def fill_up(filler: Path) -> bool:
    """Take what has become free again; gives whether the disk is full."""
    with filler.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(PAGE_BYTES))
        except OSError as error:
            return error.errno == errno.ENOSPC


def read_only(stand: Stand) -> str:
    """A start on a disk that has become read-only is refused with the reason; writable again, it goes on."""
    stand.line.terminate()
    prefix = stand.line.prefix
    script = f'mount --bind "{stand.state}" "{stand.state}" && mount -o remount,bind,ro "{stand.state}" && exec "$@"'
    begin = len(stand.line.log)
    stand.line.prefix = (*prefix, "sh", "-c", script, "sh")
    stand.start()
    code = stand.line.wait()
    stand.line.prefix = prefix
    said = stand.line.log[begin:].strip().splitlines()[-1]
    assert code == OUTSIDE, f"ended with {code}: {said}"
    assert "ead-only" in said, said
    stand.start()
    stand.mark()
    return f"refused at start, exit {code}: {said.replace(str(stand.folder), '…')}"


def read_only_while_running(stand: Stand) -> str:
    """A running daemon's disk turns read-only over it: what is open can still be written, nothing is lost."""
    enter = ("nsenter", "--target", str(stand.pid), "--mount")
    state = str(stand.state)
    subprocess.run([*enter, "mount", "--bind", state, state], check=True, timeout=10)
    try:
        subprocess.run([*enter, "mount", "-o", "remount,bind,ro", state], check=True, timeout=10)
        os.kill(stand.child("camera top"), signal.SIGKILL)
        _meanwhile(stand)
    finally:
        subprocess.run([*enter, "umount", "-l", state], check=True, timeout=10)
    stand.mark()
    stand.alarm_over("CameraLost/top")
    return "the open journal goes on; a camera that died meanwhile was replaced, with its ledger"


def damaged_at_start(stand: Stand) -> str:
    """Killed, and its newest file overwritten: set aside, a new stream begins, the ledger keeps the numbers."""
    assert stand.line.process is not None
    stand.line.kill_group()
    path = _newest(stand)
    stand.keep(path)
    _spoil(path)
    return _new_stream(stand, starts=True)


def damaged_while_running(stand: Stand) -> str:
    """The file is overwritten under the running daemon: it is found when somebody asks for what is in it."""
    stream_id = stand.listener.of("result")[-1]["streamId"]
    path = _newest(stand)
    stand.keep(path)
    _spoil(path)
    stand.listener.request("replay", requestId="damaged", streamId=stream_id, fromSeq=1, toSeq=10)
    return _new_stream(stand, starts=False)


def cache_full(stand: Stand) -> str:
    """The new child compiles without it."""
    cache = stand.folder / "cache"
    for path in cache.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    filler = fill(cache)
    with ExitStack() as undo:
        undo.callback(filler.unlink)
        os.kill(stand.child(f"model {MODELS[TOP]}"), signal.SIGKILL)
        stand.mark()
        stand.until_inspecting(LIMIT_S)
    return "compiled without a cache"


def cache_stale(stand: Stand) -> str:
    """Blobs that are no blobs: the new child deletes them and compiles once."""
    cache = stand.folder / "cache"
    os.kill(stand.child(f"model {MODELS[TOP]}"), signal.SIGKILL)
    stand.until_inspecting(LIMIT_S)
    blobs = [path for path in cache.rglob("*") if path.is_file()]
    assert blobs, "nothing is in the cache"
    for path in blobs:
        with path.open("r+b") as file:
            file.write(os.urandom(path.stat().st_size))
    os.kill(stand.child(f"model {MODELS[TOP]}"), signal.SIGKILL)
    stand.mark()
    stand.until_inspecting(LIMIT_S)
    return f"{len(blobs)} files of garbage in the cache: compiled anew"


def second_daemon(stand: Stand) -> str:
    """The second ends and names the first."""
    command = [sys.executable, "-m", "inspectd", "run", "-c", str(stand.line.path)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=os.environ | stand.environment
    )
    assert ended.returncode == OUTSIDE, ended
    assert f"in use by the inspectd with pid {stand.pid}" in ended.stderr, ended.stderr
    stand.mark()
    return f"it ends with {ended.returncode} and names the first one's pid"


def _new_stream(stand: Stand, *, starts: bool) -> str:
    if starts:
        stand.start()
        stand.mark()
    text = stand.alarm(DAMAGED)["text"]
    if not starts:
        stand.mark()
    stand.until_inspecting(LIMIT_S)
    stand.confirm(DAMAGED)
    return f"alarm OutboxDamaged ({text.replace(str(stand.folder), '…')}); a new stream"


def _spoil(path: Path) -> None:
    """Write random bytes over all of a journal file and of its log: the log alone could bring the file back."""
    for each in (path, path.with_name(f"{path.name}-wal")):
        with each.open("r+b") as file:
            file.write(os.urandom(max(PAGE_BYTES, each.stat().st_size)))


def _newest(stand: Stand) -> Path:
    return max((stand.state / "journal").glob("????????.sqlite"))


def _meanwhile(stand: Stand) -> None:
    first = stand.line.ledger_last(TOP)
    stand.until(lambda: stand.line.ledger_last(TOP) >= first + MEANWHILE, f"{MEANWHILE} pictures")


FAULTS = (
    Fault(
        31, "state disk full", f"tmpfs of {STATE_MB} MB, filled to the last byte", full, 10, SMALL_DISK, of_host=True
    ),
    Fault(32, "state disk read-only at start", "private mount namespace, ro", read_only, 10, OWN_MOUNTS, of_host=True),
    Fault(
        32,
        "state disk turns read-only",
        "private mount namespace, remounted under the running daemon",
        read_only_while_running,
        3,
        OWN_MOUNTS,
        "-running",
    ),
    Fault(
        33, "journal corrupt at start", "kill -9; random bytes over the newest file", damaged_at_start, 10, of_host=True
    ),
    Fault(
        33,
        "journal corrupt while running",
        "random bytes over the newest file and its log; then a replay is asked for",
        damaged_while_running,
        10,
        variant="-running",
        of_host=True,
    ),
    Fault(35, "cache folder full", "tmpfs filled; model child killed", cache_full, 5, OWN_CACHE, "-full"),
    Fault(35, "cache blob stale", "random bytes in the cache; model child killed", cache_stale, 5, OWN_CACHE, "-stale"),
    Fault(44, "second daemon on the same storage", "inspectd run, twice", second_daemon, 1),
)
