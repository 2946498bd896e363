"""The bench's figures, each a run of its own on the simulator: see docs/bench.md for what they mean."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import cv2
from tests.bench.measure import memory, percentile
from tests.bench.probe import commit_probe
from tests.bench.reference import Reference, benchmark_app
from tests.bench.report import Figure
from tests.bench.running import Interval, daemon
from tests.bench.wire import answers_ms, echoes_ms, verdicts_ms

from inspectd.camera.boards.drawing import draw

THREADS = len(os.sched_getaffinity(0))
PRECISION = "f32"
SIZE_PX = 640
DEADLINE_MS = 20_000
"""Where the question is how fast, not whether in time."""
LOAD = 0.7
PROBE_PERIOD_S = 0.05
WRITE_RATE = 120
PARALLEL_CAMERAS, PARALLEL_FPS = 4, 30
MEMORY_FPS, MEMORY_SIZE_PX = 5, (1920, 1080)
SKIP_FACTOR = 10
SKIP_SIZE_PX = (160, 120)
STARTS = 3
VERDICT_FPS, ROUND_TRIPS = 10, 300
IDLE_AFTER = 20
"""Pictures, then the source is used up."""
MB = 1e6


@dataclass
class Bench:
    """What the figures are made with, and what earlier ones found for later ones."""

    disk: Path
    """Folder on the disk to be measured."""
    model: Path
    """For throughput, latency, memory."""
    small_model: Path
    """The shipped one, for rates that the other does not reach."""
    seconds: float
    rounds: int
    requests: int = 2
    fps: float | None = None
    """What the daemon reached without a pace."""
    main_ms: float = 0.0
    """Main's CPU for a frame with a result."""

    def detector(self, path: Path, **changes: Any) -> dict[str, Any]:
        model = {"task": "detect", "path": str(path), "precision": PRECISION, "confidence": 0.25, "timeout_ms": 5000}
        return {"defects": {**model, **changes}}

    def full_load(self) -> dict[str, Any]:
        """Sections of a line that waits for the model."""
        camera = simulator(SIZE_PX, SIZE_PX, pace="lossless")
        return {"cameras": {"top": camera}, "models": self.detector(self.model, requests=self.requests)}

    def reached_fps(self) -> float:
        """Frames/s without a pace; measured now if no figure did it before."""
        if self.fps is None:
            with daemon(self.disk, **self.full_load()) as running:
                running.settle(20)
                interval = running.interval(self.seconds / 2)
                running.stop()
            self.fps, self.main_ms = interval.frames_per_s, interval.cpu_ms_per_result("main")
        return self.fps


def simulator(width_px: int, height_px: int, *, fps: float | None = None, pace: str = "fps") -> dict[str, Any]:
    """One camera's section."""
    source = {"kind": "simulator", "width": width_px, "height": height_px, "pace": pace}
    camera = {"source": source, "deadline_ms": DEADLINE_MS, "models": ["defects"]}
    return camera if fps is None else {**camera, "fps": fps}


def throughput(bench: Bench) -> Iterator[Figure]:
    """The daemon beside `benchmark_app`, in turns."""
    pairs: list[tuple[Reference, Interval]] = []
    for _ in range(bench.rounds):
        reference = benchmark_app(bench.model, bench.seconds, THREADS, PRECISION)
        bench.requests = reference.requests
        with daemon(bench.disk, **bench.full_load()) as running:
            running.settle(20)
            pairs.append((reference, running.interval(bench.seconds)))
            running.stop()

    def over_rounds(value: Callable[[Reference, Interval], float]) -> float:
        return median(value(*pair) for pair in pairs)

    bench.fps = over_rounds(lambda _, ours: ours.frames_per_s)
    bench.main_ms = over_rounds(lambda _, ours: ours.cpu_ms_per_result("main"))
    camera_ms = over_rounds(lambda _, ours: ours.cpu_ms_per_result("camera"))
    model_ms = over_rounds(lambda _, ours: ours.cpu_ms_per_result("model"))
    reference_ms = over_rounds(lambda theirs, _: theirs.cpu_ms)
    beyond_ms = over_rounds(
        lambda theirs, ours: ours.cpu_ms_per_result("main") + ours.cpu_ms_per_result("model") - theirs.cpu_ms
    )
    ratio = over_rounds(lambda theirs, ours: ours.frames_per_s / theirs.frames_per_s)
    ratios = ", ".join(f"{ours.frames_per_s / theirs.frames_per_s:.3f}" for theirs, ours in pairs)
    yield Figure("daemon ÷ benchmark_app", ratio, "", 0.93, at_least=True, note=f"{bench.model.name}; rounds {ratios}")
    yield Figure("daemon, lossless", bench.fps, "frames/s")
    yield Figure("benchmark_app", over_rounds(lambda theirs, _: theirs.frames_per_s), "frames/s")
    yield Figure("CPU per frame beyond benchmark_app, without camera", beyond_ms, "ms", 4.0)
    yield Figure("CPU per frame, main", bench.main_ms, "ms", 1.5)
    yield Figure("CPU per frame, model child", model_ms, "ms")
    yield Figure("CPU per frame, benchmark_app", reference_ms, "ms")
    yield Figure("CPU per frame, camera child (draws the picture)", camera_ms, "ms")


def latency(bench: Bench) -> Iterator[Figure]:
    """Capture → received by a subscriber, at 70 % of what the daemon reaches."""
    fps = round(LOAD * bench.reached_fps(), 1)
    camera = simulator(SIZE_PX, SIZE_PX, fps=fps)
    models = bench.detector(bench.model, requests=bench.requests)
    with daemon(bench.disk, cameras={"top": camera}, models=models) as running:
        running.settle(20)
        with commit_probe(bench.disk, PROBE_PERIOD_S) as commits_s:
            interval = running.interval(2 * bench.seconds)
        running.stop()
    beyond_ms = [value for heard in interval.results if (value := heard.beyond_inference_ms()) is not None]
    commits_ms = [took_s * 1000 for took_s in commits_s]
    note = f"{len(beyond_ms)} frames at {fps:g}/s; the budget is 8 ms + the commit p99"
    budget_ms = 8.0 + percentile(commits_ms, 99)
    yield Figure("capture → published beyond inference, p50", percentile(beyond_ms, 50), "ms")
    yield Figure("capture → published beyond inference, p99", percentile(beyond_ms, 99), "ms", budget_ms, note=note)
    yield Figure("commit of one row on this disk meanwhile, p50", percentile(commits_ms, 50), "ms")
    yield Figure("commit of one row on this disk meanwhile, p99", percentile(commits_ms, 99), "ms")


def skipping(bench: Bench) -> Iterator[Figure]:
    """Main's CPU for frames that only end in a run row: ten times the pictures that the model takes."""
    fps = round(SKIP_FACTOR * bench.reached_fps())
    camera = simulator(*SKIP_SIZE_PX, fps=fps)
    models = bench.detector(bench.model, requests=bench.requests)
    with daemon(bench.disk, cameras={"top": camera}, models=models) as running:
        running.settle(20)
        interval = running.interval(bench.seconds)
        running.stop()
    skipped = interval.captured - len(interval.results)
    own_s = interval.cpu_s["main"] - len(interval.results) * bench.main_ms / 1000
    note = f"{skipped} of {interval.captured} frames skipped at {fps}/s; {bench.main_ms:.2f} ms per result taken off"
    yield Figure("CPU per skipped frame, main", own_s / skipped * 1000, "ms", 0.4, note=note)


def writing(bench: Bench) -> Iterator[Figure]:
    """Bytes that main writes per result at 120/s, or as near as this host comes to it."""
    camera = simulator(160, 160, fps=WRITE_RATE)
    with daemon(bench.disk, cameras={"top": camera}, models=bench.detector(bench.small_model)) as running:
        running.settle(WRITE_RATE)
        interval = running.interval(bench.seconds)
        running.stop()
    per_result_kb = interval.written_bytes["main"] / len(interval.results) / 1000
    note = f"at {interval.frames_per_s:.0f} results/s; fewer a second share a commit less often and cost more each"
    yield Figure("written to disk per result", per_result_kb, "kB", 8.0, note=note)


def memory_use(bench: Bench) -> Iterator[Figure]:
    """PSS of all processes with one model and four cameras of 1920 × 1080.

    From a file, as the simulator's own paintings (56 MB a camera at this size) are no part of what the budget is for.
    """
    cameras = {f"c{n}": _files_camera(bench.disk / f"pictures-{n}") for n in range(1, PARALLEL_CAMERAS + 1)}
    used = _memory_mb(bench, cameras, queue_depth=8)
    yield Figure("PSS, 4 × 1920×1080, without pools", sum(used.values()) - used["pools"], "MB", 330.0, note=_text(used))
    used = _memory_mb(bench, cameras, queue_depth=2)
    yield Figure("PSS, 4 × 1920×1080, queue_depth 2, pools too", sum(used.values()), "MB", 450.0, note=_text(used))
    cameras = {name: simulator(*MEMORY_SIZE_PX, fps=MEMORY_FPS) for name in cameras}
    used = _memory_mb(bench, cameras, queue_depth=2)
    yield Figure("PSS, the same with simulators", sum(used.values()), "MB", note=_text(used))


def _files_camera(folder: Path) -> dict[str, Any]:
    """One camera's section: a single picture, again and again."""
    folder.mkdir()
    cv2.imwrite(str(folder / "board.bmp"), draw(1, 1, *MEMORY_SIZE_PX)[0])
    source = {"kind": "files", "path": str(folder), "loop": True}
    return {"source": source, "fps": MEMORY_FPS, "deadline_ms": DEADLINE_MS, "models": ["defects"]}


def _memory_mb(bench: Bench, cameras: dict[str, Any], queue_depth: int) -> dict[str, float]:
    """PSS in MB of each kind of process, and of the pools."""
    with daemon(bench.disk, cameras=cameras, models=bench.detector(bench.model, queue_depth=queue_depth)) as running:
        running.settle(20)
        uses = {name: memory(pid) for name, pid in running.pids.items()}
        running.stop()
    used = dict.fromkeys(("main", "model", "camera", "pools"), 0.0)
    for name, use in uses.items():
        used[name.split()[0]] += (use.pss - use.pss_shared) / MB
        used["pools"] += use.pss_shared / MB
    return used


def _text(used: dict[str, float]) -> str:
    return ", ".join(f"{kind} {used_mb:.0f} MB" for kind, used_mb in used.items())


def four_cameras(bench: Bench) -> Iterator[Figure]:
    """Frames that are not inspected with four cameras at 30/s."""
    cameras = {f"c{n}": simulator(SIZE_PX, SIZE_PX, fps=PARALLEL_FPS) for n in range(1, PARALLEL_CAMERAS + 1)}
    with daemon(bench.disk, cameras=cameras, models=bench.detector(bench.small_model)) as running:
        running.settle(20)
        interval = running.interval(bench.seconds)
        counters = running.stop()
    lost = counters["captured"] - counters["ok"] - counters["notOk"] - counters["notDecidable"]
    wanted = PARALLEL_CAMERAS * PARALLEL_FPS
    rate = interval.captured / interval.seconds
    note = f"{interval.frames_per_s:.1f} of {wanted} results/s; the budget is for the INT8 model"
    yield Figure("4 × 640×640 × 30/s: frames not inspected", lost / counters["captured"] * 100, "%", 0.0, note=note)
    yield Figure("4 × 640×640 × 30/s: captured", rate, "frames/s")
    drawing_ms = sum(used for name, used in interval.cpu_s.items() if name.startswith("camera")) / interval.captured
    yield Figure("camera child per frame of 640×640", drawing_ms * 1000, "ms", note="drawing alone has 2 ms")


def starting(bench: Bench) -> Iterator[Figure]:
    """Start → READY with the model's cache as a run before has left it."""
    times_s = []
    for _ in range(STARTS + 1):
        with daemon(bench.disk, **bench.full_load()) as running:
            times_s.append(running.ready_s)
            running.stop()
    note = ", ".join(f"{took_s:.2f}" for took_s in times_s[1:])
    yield Figure("start → READY, warm cache", median(times_s[1:]), "s", 3.0, note=note)


def idle(bench: Bench) -> Iterator[Figure]:
    """CPU of a line without pictures, and of one with a picture a second, as a share of one core."""
    used_up = simulator(SIZE_PX, SIZE_PX, pace="lossless")
    used_up["source"]["count"] = IDLE_AFTER
    for text, camera, results in (
        ("no pictures", used_up, IDLE_AFTER),
        ("a picture a second", simulator(SIZE_PX, SIZE_PX, fps=1), 3),
    ):
        with daemon(bench.disk, cameras={"top": camera}, models=bench.detector(bench.small_model)) as running:
            running.settle(results)
            used = running.usage(bench.seconds)
            running.stop()
        shares = {name: used_s / used.seconds * 100 for name, used_s in used.cpu_s.items()}
        note = ", ".join(f"{name} {share:.2f} %" for name, share in shares.items())
        yield Figure(f"idle line, {text}", sum(shares.values()), "% of a core", 2.0, note=note)


def wire(bench: Bench) -> Iterator[Figure]:
    """Request → answer and capture → verdict through a broker that sends at once, and through Debian's as it comes."""
    for name, lines in (("", ()), (", Debian's broker unchanged", ("set_tcp_nodelay false",))):
        camera = simulator(160, 160, fps=VERDICT_FPS)
        sections: dict[str, Any] = {"cameras": {"top": camera}, "mqtt": {"verdict": {"enabled": "always"}}}
        models = bench.detector(bench.small_model)
        with daemon(bench.disk, broker=lines, models=models, **sections) as running:
            running.settle(VERDICT_FPS)
            with commit_probe(bench.disk, PROBE_PERIOD_S) as commits_s:
                echoed_ms = echoes_ms(running.port, ROUND_TRIPS)
                answered_ms = answers_ms(running.port, ROUND_TRIPS)
                whole_ms, beyond_ms = verdicts_ms(running.port, ROUND_TRIPS)
            running.stop()
        commit_ms = percentile([took_s * 1000 for took_s in commits_s], 99)
        yield from _wire_figures(f"bare echo{name}", echoed_ms, None)
        yield from _wire_figures(f"request → answer{name}", answered_ms, None if name else commit_ms)
        yield from _wire_figures(f"capture → verdict beyond inference{name}", beyond_ms, None if name else commit_ms)
        yield from _wire_figures(f"capture → verdict, all of it{name}", whole_ms, None)


def _wire_figures(name: str, took_ms: list[float], commit_ms: float | None) -> Iterator[Figure]:
    """`commit_ms`: the commit p99 of the same run, where there is a budget."""
    budgets = (None, None) if commit_ms is None else (10.0, 25.0 + commit_ms)
    yield Figure(f"{name}, p50", percentile(took_ms, 50), "ms", budgets[0])
    yield Figure(f"{name}, p99", percentile(took_ms, 99), "ms", budgets[1])


FIGURES: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "throughput": throughput,
    "latency": latency,
    "skipping": skipping,
    "writing": writing,
    "memory": memory_use,
    "cameras": four_cameras,
    "starting": starting,
    "idle": idle,
    "wire": wire,
}
