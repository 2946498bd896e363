"""The watchdog of a real daemon; the test is systemd. Faults are injected by a `sitecustomize` beside the daemon."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.mosquitto import mosquitto
from tests.integration.test_life import DEMO_RULES, NotifySocket, demo_model, notify_socket, simulator
from tests.plant import Audit, Listener, Plant, configuration, plant

BLOCK_ON_SIGNAL = """
import signal, time
def block_the_loop(number, frame):
    time.sleep(60)
signal.signal(signal.SIGUSR1, block_the_loop)
"""
BUSY_MODEL = """
import os, sys
if "inspectd.worker.child" in sys.orig_argv and "model" in sys.orig_argv:
    while not os.path.exists(os.environ["TEST_GO"]):
        sum(range(10000))
"""


@contextmanager
def daemon(folder: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Plant, NotifySocket, int]]:
    """Give a started daemon with a fault in it, systemd's end of its socket, and the broker's port."""
    faults = folder / "faults"
    faults.mkdir()
    (faults / "sitecustomize.py").write_text(fault, "utf-8")
    paths = [str(faults), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
    monkeypatch.setenv("TEST_GO", str(folder / "go"))
    with mosquitto() as broker, notify_socket(folder / "notify", monkeypatch) as systemd:
        document: dict[str, Any] = configuration(
            folder,
            broker.port,
            cameras={"top": simulator()},
            models={"defects": demo_model()},
            decision=DEMO_RULES,
        )
        with plant(folder, document) as line:
            line.start()
            yield line, systemd, broker.port


def looks(systemd: NotifySocket, count: int) -> list[str]:
    """Read on over so many feeds; gives everything that was heard meanwhile."""
    before = len(systemd.heard)
    for _ in range(count):
        systemd.until("WATCHDOG=1")
    return systemd.heard[before:]


def is_silent(systemd: NotifySocket, limit_s: float) -> bool:
    """Whether nothing comes any more; what is on its way is taken first."""
    systemd.limit(limit_s)
    try:
        for _ in range(3):
            systemd.until("WATCHDOG=1")
    except TimeoutError:
        return True
    finally:
        systemd.limit(30.0)
    return False


def children(line: Plant) -> list[int]:
    """Process ids of the children, also of those that show no name yet."""
    assert line.process is not None
    return [child.pid for child in psutil.Process(line.process.pid).children()]


def signalled(line: Plant, number: signal.Signals) -> None:
    assert line.process is not None
    line.process.send_signal(number)


def test_a_stopped_main_feeds_nothing_and_goes_on_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes back as if nothing had been: what was not fed meanwhile is systemd's to judge."""
    with daemon(tmp_path, "", monkeypatch) as (line, systemd, _):
        systemd.until("READY=1")
        assert systemd.until("WATCHDOG_USEC=") == "WATCHDOG_USEC=6500000", "2 s are too short for this station"
        assert "the watchdog's 2 s are too short: journal may take 2 s for one piece of its work" in line.log
        looks(systemd, 3)
        signalled(line, signal.SIGSTOP)
        assert is_silent(systemd, 3.0)
        signalled(line, signal.SIGCONT)
        looks(systemd, 3)
        assert "event loop: no turn" not in line.log
        assert line.terminate() == 0, line.log
        assert not (line.state / "stalled").exists()


def test_a_blocked_loop_is_told_before_its_end_and_an_alarm_names_it_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal has the stack, SIGABRT adds that of every thread, and the next start raises WatchdogRestart."""
    with daemon(tmp_path, BLOCK_ON_SIGNAL, monkeypatch) as (line, systemd, port):
        systemd.until("READY=1")
        looks(systemd, 3)
        signalled(line, signal.SIGUSR1)
        systemd.until("WATCHDOG=trigger")
        signalled(line, signal.SIGABRT)
        assert line.wait() == -signal.SIGABRT
        log = line.log
        assert "event loop: no turn for 1." in log
        assert "it is in block_the_loop (sitecustomize.py:4)" in log
        assert "Fatal Python error: Aborted" in log
        assert "Thread 0x" in log
        (line.state / "ended.watchdog").write_text("dumped ABRT\n", "utf-8")  # as the unit's ExecStopPost does
        listener = Listener(port)
        line.start()
        listener.wait_for_alarm("WatchdogRestart/station", lambda alarm: alarm is not None)
        alarm = listener.alarms["WatchdogRestart/station"]
        assert alarm is not None
        assert alarm["text"].startswith("the watchdog ended the last run: event loop: no turn for ")
        assert "block_the_loop" in alarm["text"]
        assert line.terminate() == 0, line.log
        assert "the last run ended by watchdog (dumped ABRT)" in line.log
        assert [path.name for path in line.state.glob("ended.*")] == []
        Audit.of(line.state).check(line.ledger_last())
        listener.close()


def test_a_start_is_extended_only_while_a_model_process_uses_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compile of minutes lives, one that hangs does not lengthen the start for ever."""
    with daemon(tmp_path, BUSY_MODEL, monkeypatch) as (line, systemd, _):
        systemd.until("EXTEND_TIMEOUT_USEC=30000000")
        [model] = [pid for pid in children(line) if "model" in Path(f"/proc/{pid}/cmdline").read_text("utf-8")]
        os.kill(model, signal.SIGSTOP)
        looks(systemd, 4)
        assert not [text for text in looks(systemd, 6) if text.startswith("EXTEND")]
        os.kill(model, signal.SIGCONT)
        systemd.until("EXTEND_TIMEOUT_USEC=30000000")
        (tmp_path / "go").touch()
        systemd.until("READY=1")
        assert line.terminate() == 0, line.log


def test_a_stop_during_a_compile_does_not_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model process that is being loaded hears nothing: it is killed after a second."""
    with daemon(tmp_path, BUSY_MODEL, monkeypatch) as (line, systemd, _):
        systemd.until("EXTEND_TIMEOUT_USEC=30000000")
        began_s = time.monotonic()
        assert line.terminate() == 0, line.log
        assert time.monotonic() - began_s < 10.0
        assert "READY=1" not in systemd.heard
        assert line.leftovers() == []
        Audit.of(line.state).check(line.ledger_last())
