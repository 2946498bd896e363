"""Ledgers that a process of an earlier daemon still holds: killed, but not ended."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests import frozen

from inspectd import ledgers
from inspectd.errors import OutsideError
from inspectd.ledger import Ledger
from inspectd.ledgers import camera_names, open_ledgers, stuck
from inspectd.publish.sqlitefile import DiskFull

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may freeze a process")
NUMBERING = """
import pathlib, sys, threading
from inspectd.ledger import Ledger
ledger = Ledger.open(pathlib.Path(sys.argv[1]))
ledger.begin(41, simulated=True)
"""
IN_THE_MAIN_THREAD = "print(0, flush=True)\nwhile ledger.take(): pass"
IN_A_SECOND_THREAD = """
thread = threading.Thread(target=lambda: [ledger.take() for _ in iter(int, 1)])
thread.start()
print(thread.native_id, flush=True)
"""
READING = "import sys, threading; file = open(sys.argv[1]); print(0, flush=True); threading.Event().wait()"


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """For processes that never end."""
    monkeypatch.setattr(ledgers, "END_LIMIT_S", 0.1)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """For processes that end as soon as this PC has time for them."""
    monkeypatch.setattr(ledgers, "END_LIMIT_S", 30.0)


@contextmanager
def process(code: str, path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Have a process with the ledger open, and the number that it says at its beginning."""
    path.parent.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stdout is not None
        try:
            yield running, int(running.stdout.readline())
        finally:
            running.kill()


@contextmanager
def opened(folder: Path, *cameras: str) -> Iterator[tuple[dict[str, Ledger], dict[str, tuple[int, ...]]]]:
    """What the next daemon has, and who it knows to be stuck; closed like a daemon that ends."""
    found, survivors = open_ledgers(folder, cameras)
    try:
        yield found, stuck(survivors)
    finally:
        for ledger in found.values():
            ledger.close()
        for one in (one for some in survivors.values() for one in some):
            one.close()


def last_of(path: Path) -> int:
    """Last number on a page, read without the daemon's code."""
    return int.from_bytes(path.read_bytes()[8:16], "little")


def set_aside(folder: Path) -> list[Path]:
    return sorted(folder.glob(".top.held-*"))


@needs_root
@pytest.mark.usefixtures("no_patience")
def test_a_frozen_process_keeps_its_page_and_numbers_go_on_in_a_copy(tmp_path: Path) -> None:
    """A camera process that did not die with its daemon kept the next daemon from starting, for ever."""
    with process(NUMBERING + IN_THE_MAIN_THREAD, tmp_path / "top") as (holder, _):
        with frozen.frozen(holder.pid) as group:
            at_its_end = last_of(tmp_path / "top")
            with opened(tmp_path, "top", "side") as (found, survivors):
                assert survivors == {"top": (holder.pid,)}
                assert frozen.is_condemned(holder.pid)
                assert (found["top"].last, found["top"].simulated) == (at_its_end, True)
                assert found["top"].take() == at_its_end + 1
                assert not found["side"].valid
                [old_page] = set_aside(tmp_path)
                frozen.thaw(group)
                holder.wait(10)
                assert last_of(old_page) == at_its_end, "a killed process gives no further number when it is let go"
                assert last_of(tmp_path / "top") == at_its_end + 1
        with opened(tmp_path, "top") as (found, survivors):
            assert survivors == {}
            assert found["top"].last == at_its_end + 1
            assert set_aside(tmp_path) == []


@needs_root
@pytest.mark.usefixtures("no_patience")
def test_it_is_still_known_to_the_daemon_after_the_next(tmp_path: Path) -> None:
    """Its memory is not given back as long as it lives: the alarm must not go away with a restart."""
    with process(NUMBERING + IN_THE_MAIN_THREAD, tmp_path / "top") as (holder, _), frozen.frozen(holder.pid):
        with opened(tmp_path, "top") as (found, _):
            number = found["top"].take()
        with opened(tmp_path, "top") as (found, survivors):
            assert survivors == {"top": (holder.pid,)}
            assert found["top"].last == number
            assert camera_names(tmp_path) == ["top"]


@needs_root
@pytest.mark.usefixtures("no_patience")
def test_one_stuck_thread_is_enough_to_be_found(tmp_path: Path) -> None:
    """The first thread of a killed process is gone, and what /proc says of the process with it; the lock is not."""
    with (
        process(NUMBERING + IN_A_SECOND_THREAD, tmp_path / "top") as (holder, thread_id),
        frozen.frozen_thread(thread_id),
    ):
        holder.kill()
        frozen.wait_until(lambda: Path(f"/proc/{holder.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        with opened(tmp_path, "top") as (_, survivors):
            assert survivors == {"top": (holder.pid,)}


@needs_root
@pytest.mark.usefixtures("no_patience")
def test_the_second_of_two_stuck_processes_is_told_too(tmp_path: Path) -> None:
    """A driver that hangs takes one process after the other."""
    code, path = NUMBERING + IN_THE_MAIN_THREAD, tmp_path / "top"
    with process(code, path) as (one, _), frozen.frozen(one.pid):
        with opened(tmp_path, "top") as (found, _):
            found["top"].take()
        with (
            process(code, path) as (other, _),
            frozen.frozen(other.pid),
            opened(tmp_path, "top") as (_, survivors),
        ):
            assert {*survivors["top"]} == {one.pid, other.pid}


@pytest.mark.usefixtures("patience")
def test_a_process_that_nobody_killed_is_killed(tmp_path: Path) -> None:
    """A helper that a camera's library started lives on when its camera process is killed, and holds what that held."""
    with process(NUMBERING + IN_THE_MAIN_THREAD, tmp_path / "top") as (holder, _):
        with opened(tmp_path, "top") as (found, survivors):
            assert survivors == {}
            assert found["top"].last > 41
            assert set_aside(tmp_path) == []
        assert holder.wait(10) == -9


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("elsewhere", [True, False], ids=["another station's", "only read"])
def test_nobody_else_is_touched(tmp_path: Path, *, elsewhere: bool) -> None:
    """Another station has a camera of the same name, and a backup reads our files."""
    path, code = (
        (tmp_path / "other" / "top", NUMBERING + IN_THE_MAIN_THREAD) if elsewhere else (tmp_path / "top", READING)
    )
    (tmp_path / "top").write_bytes(bytes(4096))
    with (
        process(code, path) as (bystander, _),
        process(NUMBERING + IN_THE_MAIN_THREAD, tmp_path / "top") as (holder, _),
        opened(tmp_path, "top"),
    ):
        assert holder.wait(10) == -9
        assert bystander.poll() is None


def test_a_daemon_that_was_killed_while_it_copied_changes_nothing(tmp_path: Path) -> None:
    """The page had its second name already, and its copy was half made."""
    with opened(tmp_path, "top") as (found, _):
        found["top"].begin(7, simulated=False)
    os.link(tmp_path / "top", tmp_path / ".top.held-1")
    (tmp_path / ".top.new").write_bytes(b"half")
    assert camera_names(tmp_path) == ["top"]
    with opened(tmp_path, "top") as (found, survivors):
        assert (found["top"].last, survivors, set_aside(tmp_path)) == (7, {}, [])


@pytest.mark.parametrize(("number", "told"), [(errno.ENOSPC, DiskFull), (errno.EROFS, OutsideError)])
def test_a_ledger_that_cannot_be_made_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, told: type[Exception]
) -> None:
    """On a full disk what is kept for the journal is given up, and it is tried again."""

    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(told, match="top: "):
        open_ledgers(tmp_path, ["top"])
