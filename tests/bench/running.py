"""The daemon under measurement: a process with its children, a real broker, a subscriber; figures of one interval."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.bench.listening import Doorbell, Ears, Heard, listening
from tests.bench.measure import NotMeasured, cpu_s, written_bytes
from tests.integration.mosquitto import mosquitto
from tests.plant import Plant, configuration, plant

READY_LIMIT_S = 180.0
SETTLE_LIMIT_S = 180.0
STEP_S = 1.0
QUIET = ("log_type none", "log_type notice", "log_type information")
"""The broker would log every packet otherwise, and this process would have to read it."""


@dataclass(frozen=True, slots=True)
class Interval:
    """What happened between two moments of a run."""

    seconds: float
    cpu_s: dict[str, float]
    """By process: `main`, `camera top`, `model defects`."""
    written_bytes: dict[str, int]
    captured: int
    """Numbers that the ledgers gave."""
    results: tuple[Heard, ...]

    @property
    def frames_per_s(self) -> float:
        """Of results, from the first to the last of the interval."""
        first, last = self.results[0], self.results[-1]
        frames = last.document["seq"] - first.document["seq"]
        return float(frames / (last.at_s - first.at_s))

    def cpu_ms_per_result(self, kind: str) -> float:
        """CPU of all processes of a kind (`main`, `camera`, `model`) per result."""
        used_s = sum(used for name, used in self.cpu_s.items() if name.split()[0] == kind)
        return used_s / len(self.results) * 1000


class Running:
    """A daemon that is ready."""

    def __init__(self, built: Plant, ears: Ears, bell: Doorbell, ready_s: float) -> None:
        assert built.process is not None
        self.ready_s = ready_s
        """From its start to READY."""
        self.pids = {"main": built.process.pid} | built.children()
        self.ears = ears
        self.port = int(built.document["mqtt"]["port"])
        """Of the broker."""
        self._plant, self._bell = built, bell

    def settle(self, results: int, limit_s: float = SETTLE_LIMIT_S) -> None:
        """Let it run in: until so many more results have come."""
        goal = len(self.ears.results) + results
        until_s = time.monotonic() + limit_s
        while not self.ears.wait_for(goal, STEP_S) and time.monotonic() < until_s:
            self._bell.drain()
        if len(self.ears.results) < goal:
            raise NotMeasured(f"{len(self.ears.results)} of {goal} results in {limit_s:g} s\n{self.log_end()}")

    def interval(self, seconds: float) -> Interval:
        """Watch for so long; there have to be results. Raises Gone if a process ends meanwhile."""
        interval = self.usage(seconds)
        if len(interval.results) < 2:
            raise NotMeasured(f"{len(interval.results)} results in {seconds:g} s\n{self.log_end()}")
        return interval

    def usage(self, seconds: float) -> Interval:
        """Watch for so long, results or none. Raises Gone if a process ends meanwhile."""
        begin = self._reading()
        self.pause(seconds)
        end = self._reading()
        return Interval(
            end.at_s - begin.at_s,
            {name: end.cpu_s[name] - used for name, used in begin.cpu_s.items()},
            {name: end.written[name] - count for name, count in begin.written.items()},
            end.captured - begin.captured,
            tuple(self.ears.results[begin.heard : end.heard]),
        )

    def pause(self, seconds: float) -> None:
        """Let time pass, and keep systemd's side of the socket empty."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, STEP_S))
            self._bell.drain()

    def stop(self) -> dict[str, Any]:
        """Stop as systemd would; gives the final counters."""
        code = self._plant.terminate()
        if code != 0:
            raise NotMeasured(f"the daemon ended with {code}\n{self.log_end()}")
        return self.ears.counters

    def log_end(self) -> str:
        """The end of the daemon's log, for messages."""
        return self._plant.log[-2000:]

    def _reading(self) -> _Reading:
        return _Reading(
            time.monotonic(),
            len(self.ears.results),
            {name: cpu_s(pid) for name, pid in self.pids.items()},
            {name: written_bytes(pid) for name, pid in self.pids.items()},
            sum(self._plant.ledger_last(camera) for camera in self._plant.document["cameras"]),
        )


@dataclass(frozen=True, slots=True)
class _Reading:
    at_s: float
    heard: int
    cpu_s: dict[str, float]
    written: dict[str, int]
    captured: int


@contextmanager
def daemon(disk: Path, *, broker: tuple[str, ...] = (), **sections: Any) -> Iterator[Running]:
    """Run a daemon with its state in a new folder under `disk`; `sections` are those of its configuration.

    `broker` has further lines of the broker's configuration.

    The cache of compiled models is `disk`/cache for all runs. Raises NotMeasured.
    """
    try:
        with _daemon(disk, broker, sections) as running:
            yield running
    except (pytest.fail.Exception, pytest.skip.Exception) as outcome:  # of the tests' own tools
        raise NotMeasured(str(outcome)) from outcome


@contextmanager
def _daemon(disk: Path, lines: tuple[str, ...], sections: dict[str, Any]) -> Iterator[Running]:
    with (
        tempfile.TemporaryDirectory(prefix="run-", dir=disk) as name,
        mosquitto(*QUIET, *lines) as broker,
        listening(broker.port) as ears,
        plant(Path(name), configuration(Path(name), broker.port, **sections)) as built,
    ):
        bell = Doorbell(Path(name) / "notify")
        try:
            yield _started(built, ears, bell, disk / "cache")
        finally:
            bell.close()


def _started(built: Plant, ears: Ears, bell: Doorbell, cache: Path) -> Running:
    os.environ |= {"NOTIFY_SOCKET": str(bell.path), "CACHE_DIRECTORY": str(cache)}
    begun_s = time.monotonic()
    process = built.start()
    while not bell.wait_ready(STEP_S):
        took_s = time.monotonic() - begun_s
        if process.poll() is not None or took_s > READY_LIMIT_S:
            raise NotMeasured(f"the daemon was not ready after {took_s:.0f} s\n{built.log[-2000:]}")
    return Running(built, ears, bell, time.monotonic() - begun_s)
