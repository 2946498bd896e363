"""The bench's side of a rung: its process, orders and answers."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.ladder.tally import Round
from tests.bench.measure import NotMeasured

from inspectd.engine.child import NICE

ANSWER_LIMIT_S = 60.0
"""Beyond the round: compiling on a busy host."""
OURS = "our pool"


class Worker:
    """One rung with one model."""

    def __init__(self, rung: str, process: subprocess.Popen[str]) -> None:
        self._rung, self._process = rung, process

    def round(
        self, seconds: float, *, plan: dict[str, Any] | None = None, frames_min: int = 0, seconds_max: float = 0.0
    ) -> Round:
        """Run a round; `plan` are the values of a Disturbance. Raises NotMeasured."""
        order = {"seconds": seconds, "plan": plan, "frames_min": frames_min, "seconds_max": seconds_max}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise NotMeasured(f"{self._rung}: its process has ended") from None
        limit_s = max(seconds, seconds_max) + ANSWER_LIMIT_S
        ready, _, _ = select.select([self._process.stdout], [], [], limit_s)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            why = "its process has ended" if ready else f"no answer in {limit_s:.0f} s"
            raise NotMeasured(f"{self._rung}: {why}")
        return Round.of_plain(json.loads(line))


@contextmanager
def worker(rung: str, model: Path, threads: int, requests: int, boards: Path) -> Iterator[Worker]:
    """Have a process for the rung, as nice as a model child."""
    command = ["nice", "-n", str(NICE), sys.executable, "-m", "tests.bench.ladder.worker"]
    command += [rung, str(model), str(threads), str(requests), str(boards)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Worker(rung, process)
        finally:
            process.kill()
