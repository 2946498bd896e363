"""Judges the demo model on simulated boards that it has never seen, with the product's engine, rules and score.

    PYTHONPATH=daemon python tools/judge_demo_model.py                # FP16 and INT8 on 500 boards; exit 1 if missed

The rules are those of config/inspectd.yaml and of `inspectd demo`. A board is OK only if both would say so; what they
leave to a person (NotDecidable) is not OK.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import openvino  # type: ignore[import-untyped]  # it has no types

from inspectd.camera import Pixels
from inspectd.camera.boards.drawing import draw
from inspectd.camera.boards.scene import TrueBox
from inspectd.config.load import load
from inspectd.config.rules import decision_plan
from inspectd.config.schema import Configuration
from inspectd.decide import decide
from inspectd.demo import configuration as demo
from inspectd.demo.score import Score
from inspectd.engine import ModelSpec
from inspectd.engine.openvino import OpenVinoEngine
from inspectd.records import Detection, Done, Evaluation, ResultState

FOLDER = Path(__file__).resolve().parents[1] / "config"
MODELS = (FOLDER / "models" / "pcb-demo.xml", FOLDER / "models" / "pcb-demo-int8.xml")
FIRST_SEED = 900_000
"""Training has the seeds from 100000, calibration those from 500000; none of them comes near."""
BOARDS_OF_A_LINE = 5
SIZE_PX = 640
LEAST_RECALL, LEAST_GOOD_OK, MOST_APART, MOST_CPU_MS = 0.97, 0.98, 0.01, 7.0
_MODEL, _CAMERA = "defects", "top"
_ROUNDS, _RUNS = 9, 20


@dataclass(frozen=True, slots=True)
class Figures:
    """How one model file did under one configuration's rules."""

    model: str
    rules: str
    score: Score
    good_ok: int
    defective_not_ok: int
    cpu_ms: float
    """CPU time of one inference on one thread, in the quietest of some rounds: what else runs can only add to it."""

    @property
    def recall(self) -> float:
        """Share of the true defects that were found, with the right class and a confidence that makes a part NotOK."""
        return self.score.defects.recall or 0.0

    @property
    def good_share(self) -> float:
        """Share of the good boards that got OK."""
        return self.good_ok / max(1, self.score.good)

    def row(self) -> str:
        """Give one line of the table."""
        score, defects = self.score, self.score.defects
        return (
            f"| {self.model} | {self.rules} | {defects.found}/{defects.true} = {self.recall:.4f} "
            f"| {self.good_ok}/{score.good} = {self.good_share:.4f} | {self.defective_not_ok}/{score.defective} "
            f"| {score.defective_passed} | {defects.false_alarms} | {score.empty_passed}/{score.empty} "
            f"| {self.cpu_ms:.1f} |"
        )


HEADING = (
    "| model | rules | defects found | good boards OK | defective boards NotOK | defective boards OK | false defects "
    "| empty places OK | CPU ms |\n|---|---|---|---|---|---|---|---|---|"
)


def configurations() -> dict[str, Configuration]:
    """Give the two that are shipped."""
    return {
        "inspectd.yaml": load(FOLDER / "inspectd.yaml", env={"STATE_DIRECTORY": "/state"}).configuration,
        "demo": Configuration.model_validate(demo.packaged()),
    }


def pictures(first_seed: int, boards: int) -> Iterator[tuple[Pixels, tuple[TrueBox, ...]]]:
    """Draw so many boards, five of each line, and the empty places between them."""
    drawn = 0
    while drawn < boards:
        seed, frame_id, of_line = first_seed + drawn // BOARDS_OF_A_LINE, 0, 0
        while of_line < BOARDS_OF_A_LINE and drawn < boards:
            pixels, truth = draw(seed, frame_id, SIZE_PX, SIZE_PX)
            frame_id += 1
            of_line += bool(truth)
            drawn += bool(truth)
            yield pixels, truth


def judge(models: Sequence[Path], first_seed: int, boards: int) -> list[Figures]:
    """Let each model look at each board, and each configuration decide."""
    shipped = configurations()
    engines = {path: _engine(path, shipped["demo"]) for path in models}
    tallies = {(path, rules): _Tally.of(configuration) for path in models for rules, configuration in shipped.items()}
    for pixels, truth in pictures(first_seed, boards):
        for path, engine in engines.items():
            found = engine.infer(0, pixels, _nothing)
            for rules in shipped:
                tallies[path, rules].add(truth, found)
    for engine in engines.values():
        engine.close()
    cpu_ms = {path: inference_cpu_ms(path) for path in models}
    return [
        Figures(path.stem, rules, tally.score, tally.good_ok, tally.defective_not_ok, cpu_ms[path])
        for (path, rules), tally in tallies.items()
    ]


def misses(figures: Sequence[Figures]) -> list[str]:
    """Say what is not as promised; the figures of the first model are those that the others must keep to."""
    told = []
    first = {entry.rules: entry for entry in reversed(figures)}
    for entry in figures:
        name, reference = f"{entry.model} with {entry.rules}", first[entry.rules]
        if entry.recall < LEAST_RECALL:
            told.append(f"{name}: recall {entry.recall:.4f}, promised {LEAST_RECALL}")
        if entry.defective_not_ok < LEAST_RECALL * entry.score.defective:
            told.append(f"{name}: {entry.defective_not_ok} of {entry.score.defective} defective boards NotOK")
        if entry.good_share < LEAST_GOOD_OK:
            told.append(f"{name}: {entry.good_share:.4f} of good boards OK, promised {LEAST_GOOD_OK}")
        if entry.score.empty_passed:
            told.append(f"{name}: {entry.score.empty_passed} empty places OK, promised none")
        apart = max(abs(entry.recall - reference.recall), abs(entry.good_share - reference.good_share))
        if apart > MOST_APART:
            told.append(f"{name}: {apart:.4f} from {reference.model}, promised {MOST_APART}")
    return told


def inference_cpu_ms(path: Path) -> float:
    """CPU time of one inference of the bare net on one thread."""
    compiled = openvino.compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": 1, "ENABLE_CPU_PINNING": False})
    request = compiled.create_infer_request()
    rounds_s = []
    for _ in range(_ROUNDS):
        begin_s = time.process_time()
        for _ in range(_RUNS):
            request.infer()
        rounds_s.append((time.process_time() - begin_s) / _RUNS)
    return 1000 * min(rounds_s)


def _engine(path: Path, configuration: Configuration) -> OpenVinoEngine:
    model = configuration.models[_MODEL]
    spec = ModelSpec(_MODEL, path, threads=1, requests=1, confidence=model.confidence, iou=model.iou)
    engine = OpenVinoEngine(spec)
    engine.open()
    return engine


@dataclass(slots=True)
class _Tally:
    configuration: Configuration
    score: Score
    good_ok: int = 0
    defective_not_ok: int = 0

    @classmethod
    def of(cls, configuration: Configuration) -> _Tally:
        return cls(configuration, Score(demo.least_confidence(configuration)))

    def add(self, truth: tuple[TrueBox, ...], found: tuple[Detection, ...]) -> None:
        outcomes = {_MODEL: Done(found, duration_s=0.0)}
        decision = decide(decision_plan(self.configuration, _CAMERA), outcomes, late=False, interrupted=None)
        self.good_ok += len(truth) == 1 and decision.evaluation is Evaluation.OK
        self.defective_not_ok += len(truth) > 1 and decision.evaluation is Evaluation.NOT_OK
        self.score.add(truth, _message(decision.evaluation, found))


def _message(evaluation: Evaluation, found: tuple[Detection, ...]) -> Mapping[str, Any]:
    """As much of the result's message as the score reads."""
    detections = [
        {"className": item.class_name, "confidence": item.confidence, "bbox": asdict(item.box)} for item in found
    ]
    content = {"detections": detections}
    return {"resultState": ResultState.COMPLETED, "resultEvaluation": evaluation, "resultContent": content}


def _nothing() -> None:
    """The picture is ours alone: no stamp to check."""


def main() -> None:
    """Print the table; exit 1 if the figures are missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, nargs="+", default=MODELS, help="the first is the reference")
    parser.add_argument("--boards", type=int, default=500)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    options = parser.parse_args()
    figures = judge(options.models, options.first_seed, options.boards)
    print("\n".join([HEADING, *(entry.row() for entry in figures)]))
    told = misses(figures)
    told += [
        f"{entry.model}: {entry.cpu_ms:.1f} ms CPU, promised {MOST_CPU_MS}"
        for entry in figures
        if "int8" in entry.model and entry.cpu_ms > MOST_CPU_MS
    ]
    raise SystemExit("\n".join(told) or 0)


if __name__ == "__main__":
    main()
