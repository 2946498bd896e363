"""The reference: `benchmark_app` with the daemon's settings. Frames/s and CPU per inference of its measuring phase."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.bench.measure import NotMeasured, cpu_s

from inspectd.engine.child import NICE

_BEGIN, _END = "First inference took", "[Step 11/11]"
"""Lines between which it measures."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One round."""

    frames_per_s: float
    cpu_ms: float
    """Per inference."""
    requests: int


def benchmark_app(model: Path, seconds: float, threads: int, precision: str) -> Reference:
    """Run it for so long: hint throughput, no pinning, and as nice as a model child. Raises NotMeasured."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as settings:
        # with a hint its command line refuses threads and pinning; its settings file does not
        json.dump({"CPU": {"INFERENCE_NUM_THREADS": str(threads), "ENABLE_CPU_PINNING": "NO"}}, settings)
        settings.flush()
        command = [sys.executable, "-c", "from openvino.tools.benchmark.main import main; main()"]
        command += ["-m", str(model), "-d", "CPU", "-hint", "throughput", "-t", f"{seconds:.0f}"]
        command += ["-load_config", settings.name, "-infer_precision", f"CPU:{precision}"]
        return _read(command)


def _read(command: list[str]) -> Reference:
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    niced = ["nice", "-n", str(NICE), *command]
    used_s, lines = 0.0, []
    with subprocess.Popen(niced, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as app:
        assert app.stdout is not None
        for line in app.stdout:
            lines.append(line)
            if _BEGIN in line:
                used_s -= cpu_s(app.pid)
            elif _END in line:
                used_s += cpu_s(app.pid)
    text = "".join(lines)
    count, rate = re.search(r"Count:\s+(\d+)", text), re.search(r"Throughput:\s+([\d.]+)", text)
    requests = re.search(r"(\d+) inference requests", text)
    if count is None or rate is None or requests is None:
        raise NotMeasured(f"benchmark_app printed no count\n{text[-2000:]}")
    return Reference(float(rate[1]), used_s / int(count[1]) * 1000, int(requests[1]))
