"""Faults of the host: no memory, no descriptors, no threads, a clock that jumps, a process that cannot be killed."""

from __future__ import annotations

import math
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from tests import frozen
from tests.faults import leftovers
from tests.faults.fault import Fault, Setup
from tests.faults.stand import MODELS, TOP, Stand, camera
from tests.integration.mosquitto import free_port
from tests.plant import Plant

DEFECTS = MODELS[TOP]
HOUR_S = 3600
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
FAKETIME_SITE = Path(__file__).with_name("clock")
NOBODY = 65534
NOBODY_WORDS = (
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *("--inh-caps=+dac_override", "--ambient-caps=+dac_override"),
)
MANY_SLOTS = 1024
LARGEST_PX = 8192
MEMFDS_WITHOUT_POOL = 2
"""A progress page for the camera child and one for the model child."""
REFUSALS = 2
"""So many starts of a child are refused before there is room again."""
REAP_S = 2.0
STALL_S = 10.0
START_S = 3.0
OUTSIDE = 69


# Stands


def _fake_clock(stand: Stand) -> dict[str, str]:
    """The wall clock is what a file says; the monotonic one is left alone."""
    clock(stand).write_text("+0")
    folders = (str(FAKETIME_SITE), os.environ.get("PYTHONPATH", ""))
    return {
        "LD_PRELOAD": FAKETIME,
        "FAKETIME_TIMESTAMP_FILE": str(clock(stand)),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, folders)),
    }


def clock(stand: Stand) -> Path:
    """By how much the daemon's wall clock is off."""
    return stand.folder / "clock"


def as_nobody(stand: Stand) -> tuple[str, ...]:
    """A user of its own, as an installed daemon has, so that the number of its threads can be limited.

    It may read what root may: Python and this repository lie anywhere.
    """
    for path in (stand.folder, *stand.folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    return NOBODY_WORDS


FAKE_CLOCK = Setup("fake clock", environment=_fake_clock, needs=(FAKETIME,))
AS_NOBODY = Setup(
    "own user",
    prefix=as_nobody,
    needs=("setpriv",),
)


# Faults


def no_memory(stand: Stand) -> str:
    """Another station whose pools cannot be had: refused with the arithmetic before any of it is taken."""
    folder = stand.folder / "large"
    folder.mkdir()
    side_px = min(LARGEST_PX, math.isqrt(psutil.virtual_memory().available // (MANY_SLOTS * 3)))
    document = stand.line.document | {
        "cameras": {TOP: camera(DEFECTS, source={"width": side_px, "height": side_px}, slots=MANY_SLOTS)},
        "storage": stand.line.document["storage"] | {"path": str(folder / "state")},
        "mqtt": stand.line.document["mqtt"] | {"port": free_port()},  # nobody is there: it is a station of its own
    }
    large = Plant(folder, document)
    process = large.start(**stand.environment)
    stand.groups.add(process.pid)
    words = f"no memory for the frame pool: {MANY_SLOTS} slots × "
    try:
        stand.until(lambda: words in large.log, f"log: {words}")
        held = leftovers.count([process.pid])
    finally:
        code = large.terminate()
    assert code == 0, large.log[-2000:]
    assert held.memfds <= MEMFDS_WITHOUT_POOL, f"{held} with a pool that cannot be had"
    stand.mark()
    said = next(line for line in large.log.splitlines() if words in line)
    return f"not ready, alarm CameraLost: {said[said.index(words) :].partition(' (process')[0]}"


def clock_step(seconds: int) -> Callable[[Stand], str]:
    """A step of the wall clock of a running daemon."""

    def run(stand: Stand) -> str:
        missed = len(stand.listener.of("result"))
        stand.shift_s = float(clock(stand).read_text()) + seconds
        clock(stand).write_text(f"{stand.shift_s:+.0f}")
        stand.listener.wait_for("heartbeat", lambda beats: abs(beats[-1]["ts"] - stand.wall_s()) < HOUR_S / 60)
        stand.mark()
        stand.listener.wait_for_more(30)
        latencies_ms = [result["latencyMs"] for result in stand.listener.of("result")[missed:]]
        assert min(latencies_ms) >= 0, "a result was decided before it was captured"
        assert max(latencies_ms) < HOUR_S * 1000 / 2, "the hour counted as latency"
        return f"times jump, ages and deadlines do not: latencies of {max(latencies_ms):.0f} ms at most"

    return run


@contextmanager
def limit(pid: int, name: str, soft: int, user: tuple[str, ...] = ()) -> Iterator[None]:
    """Lower a limit of a running process for a while; `user`: the words that make us the user that it belongs to."""

    def prlimit(*words: str) -> str:
        command = [*user, "prlimit", f"--pid={pid}", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout

    before = prlimit(f"--{name}", "--output=SOFT", "--noheadings", "--raw").strip()
    prlimit(f"--{name}={soft}:")
    try:
        yield
    finally:
        prlimit(f"--{name}={before}:")


def no_descriptors(stand: Stand) -> str:
    """A camera's process dies, and main cannot open a single descriptor for the next one."""
    begin = len(stand.line.log)
    used = len(list(Path(f"/proc/{stand.pid}/fd").iterdir()))
    with limit(stand.pid, "nofile", used - 8):
        os.kill(stand.child("camera top"), signal.SIGKILL)
        _refused(stand, begin, "camera top: cannot be started: ")
    stand.mark()
    said = _line(stand, begin, "cannot be started: ")
    stand.alarm_over("CameraLost/top")
    return f"{said}; tried again until it works; alarm CameraLost, raised and cleared"


def no_threads(stand: Stand) -> str:
    """The model's process dies, and its user may have no further process and no further thread."""
    begin = len(stand.line.log)
    with limit(stand.pid, "nproc", 1, NOBODY_WORDS):
        os.kill(stand.child(f"model {DEFECTS}"), signal.SIGKILL)
        _refused(stand, begin, f"model {DEFECTS}: cannot be started: ")
    stand.mark()
    said = _line(stand, begin, "cannot be started: ")
    return f"{said}; tried again until it works"


def _refused(stand: Stand, begin: int, words: str) -> None:
    stand.until(lambda: stand.line.log[begin:].count(words) >= REFUSALS, f"log: {words!r} {REFUSALS} times")


def _line(stand: Stand, begin: int, words: str) -> str:
    found = next(line for line in stand.line.log[begin:].splitlines() if words in line)
    return found.partition("WARNING ")[2] or found


def unkillable(name: str, source: str) -> Callable[[Stand], str]:
    """A child that stands still and does not die when killed, as one that a driver holds."""

    def run(stand: Stand) -> str:
        pid = stand.child(name)
        with frozen.frozen(pid):
            text = stand.alarm(f"WorkerUnkillable/{source}")["text"]
            stand.until_inspecting(STALL_S + REAP_S + START_S)
            assert stand.child(name) != pid
        stand.mark()
        stand.alarm_over(f"WorkerUnkillable/{source}")
        stand.until(lambda: not psutil.pid_exists(pid), f"{pid} is gone")
        return f"replaced while it stands; alarm WorkerUnkillable ({text}), cleared when it dies"

    return run


FAULTS = (
    Fault(
        24,
        "main SIGSTOP under systemd's watchdog",
        "kill -STOP of main in a booted machine",
        lambda _stand: "",
        budget_s=10,
        is_elsewhere="make system",
    ),
    Fault(34, "no memory for the pools", f"{MANY_SLOTS} slots, together more than the PC has", no_memory, budget_s=1),
    Fault(
        36, "wall clock steps + 1 h", "libfaketime, monotonic left alone", clock_step(HOUR_S), 1, FAKE_CLOCK, "-ahead"
    ),
    Fault(
        36, "wall clock steps - 1 h", "libfaketime, monotonic left alone", clock_step(-HOUR_S), 1, FAKE_CLOCK, "-back"
    ),
    Fault(
        40,
        "file descriptors exhausted",
        "prlimit --nofile below what main has open; camera child killed",
        no_descriptors,
        budget_s=10,
    ),
    Fault(
        41,
        "thread creation refused",
        "prlimit --nproc 1 for main, which is not root; model child killed",
        no_threads,
        budget_s=10,
        setup=AS_NOBODY,
    ),
    Fault(
        42,
        "a killed child that does not die: camera",
        "frozen in a cgroup",
        unkillable("camera top", TOP),
        budget_s=START_S,
        variant="-camera",
    ),
    Fault(
        42,
        "a killed child that does not die: model",
        "frozen in a cgroup",
        unkillable(f"model {DEFECTS}", DEFECTS),
        budget_s=START_S,
        variant="-model",
    ),
)
