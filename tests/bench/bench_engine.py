"""Our pool beside `benchmark_app`: frames/s, CPU ms per frame and decoding time, in one run.

Usage: bench_engine.py MODEL [SECONDS]. Both get 2 requests, the threads of this process's cores and no pinning; they
take turns, because absolute times on a shared machine mean little.
"""

from __future__ import annotations

import os
import re
import resource
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

from inspectd.decode import DECODERS, Reading
from inspectd.engine import ModelSpec
from inspectd.engine.admission import warmup_picture
from inspectd.engine.openvino import OpenVinoEngine

ROUNDS = 3
REQUESTS = 2
CONFIDENCE = 0.25
"""The warm-up picture then gives about as many candidates as a real board."""
THREADS = len(os.sched_getaffinity(0))


def ours(model: Path, seconds: float) -> tuple[float, float, float]:
    """(frames/s, CPU ms per frame, of which in our own threads: letterbox, waiting, decoding)."""
    engine = OpenVinoEngine(ModelSpec("bench", model, threads=THREADS, requests=REQUESTS, confidence=CONFIDENCE))
    facts = engine.open()
    picture = warmup_picture(facts.input_width_px, facts.input_height_px)
    counts, own_s = [0] * REQUESTS, [0.0] * REQUESTS
    begin_s, cpu_s = time.perf_counter(), time.process_time()

    def serve(request: int) -> None:
        while time.perf_counter() - begin_s < seconds:
            engine.infer(request, picture, lambda: None)
            counts[request] += 1
        own_s[request] = time.thread_time()

    workers = [threading.Thread(target=serve, args=(request,)) for request in range(REQUESTS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    frames = sum(counts)
    took_s, used_s = time.perf_counter() - begin_s, time.process_time() - cpu_s
    engine.close()
    return frames / took_s, used_s / frames * 1000, sum(own_s) / frames * 1000


def theirs(model: Path, seconds: float) -> tuple[float, float]:
    """(frames/s, CPU ms per frame) of benchmark_app; start and compilation are measured apart and taken off."""
    idle_s, _, _ = _benchmark_app(model, ["-niter", str(REQUESTS)])
    used_s, frames, rate = _benchmark_app(model, ["-t", f"{seconds:.0f}"])
    return rate, (used_s - idle_s) / (frames - REQUESTS) * 1000


def _benchmark_app(model: Path, arguments: list[str]) -> tuple[float, int, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(Path(sys.executable).with_name("benchmark_app")), "-m", str(model), "-d", "CPU", "-hint", "none"]
    command += ["-nireq", str(REQUESTS), "-nstreams", str(min(REQUESTS, THREADS)), "-nthreads", str(THREADS)]
    text = subprocess.run([*command, "-pin", "NO", *arguments], capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    count, rate = re.search(r"Count:\s+(\d+)", text), re.search(r"Throughput:\s+([\d.]+)", text)
    if count is None or rate is None:
        raise SystemExit(f"benchmark_app printed no count:\n{text}")
    return used_s, int(count[1]), float(rate[1])


def decode_us() -> float:
    """Median µs to decode [1, 10, 8400] with some 60 candidates."""
    rng = np.random.default_rng(0)
    raw = rng.random((1, 10, 8400), dtype=np.float32) * np.float32(0.04)
    raw[0, :4] *= 16000
    raw[0, 4:, ::140] += np.float32(0.5)
    reading = Reading(0.25, 0.5, 6, 640, 640)
    times = []
    for _ in range(300):
        begin_s = time.perf_counter()
        DECODERS["yolo"].decode([raw], reading)
        times.append(time.perf_counter() - begin_s)
    return statistics.median(times) * 1e6


def main(model: Path, seconds: float) -> None:
    rounds = [(ours(model, seconds), theirs(model, seconds)) for _ in range(ROUNDS)]
    (our_rate, our_cpu, own_cpu), (their_rate, their_cpu) = (
        tuple(statistics.median(values) for values in zip(*side, strict=True)) for side in zip(*rounds, strict=True)
    )
    ratio = statistics.median(a[0] / b[0] for a, b in rounds)
    print(f"{'':14}{'frames/s':>10}{'CPU ms/frame':>14}")
    print(f"{'our pool':14}{our_rate:10.1f}{our_cpu:14.2f}")
    print(f"{'benchmark_app':14}{their_rate:10.1f}{their_cpu:14.2f}")
    print(f"ratio {ratio:.3f}, CPU beyond benchmark_app {our_cpu - their_cpu:+.2f} ms per frame")
    print(f"in our own threads {own_cpu:.2f} ms per frame; decoding {decode_us():.0f} us")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 10.0)
