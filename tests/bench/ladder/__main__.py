"""`python -m tests.bench.ladder`: what articles recommend beside our pool and the whole daemon, in one run.

All rungs have the same model, pictures, threads and precision, and take turns. Always ends with 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.bench.__main__ import SHARED_MODEL
from tests.bench.ladder.alone import requests, stand_in
from tests.bench.ladder.climb import Means, climb
from tests.bench.ladder.plot import plot
from tests.bench.ladder.rows import Row, budgets, table
from tests.bench.ladder.together import cameras, pair
from tests.bench.measure import NotMeasured
from tests.bench.report import Figure, machine
from tests.bench.report import table as figures_table

from inspectd.errors import OutsideError
from inspectd.resources import model_path

RUNGS = "rungs"
GROUPS: dict[str, Callable[[Means, Mapping[str, Path]], Iterator[Figure]]] = {
    "requests": requests,
    "pair": pair,
    "cameras": cameras,
    "stand-in": stand_in,
}
SHIPPED = ("pcb-demo-int8.xml", "pcb-demo.xml")
"""The first that is there."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = parser().parse_args(arguments)
    facts, ladders, figures = machine(), dict[str, list[Row]](), list[Figure]()
    models = {model.stem: model.resolve() for model in options.models or default_models()}
    with tempfile.TemporaryDirectory(prefix="inspectd-ladder-", dir=options.folder) as folder:
        means = Means(Path(folder), options.seconds, options.rounds)
        wanted = options.only or (RUNGS, *GROUPS)
        for name, model in models.items() if RUNGS in wanted else ():
            try:
                ladders[name] = list(climb(means, model))
            except NotMeasured as fault:
                print(f"{name}: not measured: {fault}", file=sys.stderr)
            else:
                print(f"{name}\n{table(ladders[name])}", file=sys.stderr)
                figures += budgets(name, ladders[name], is_large=model == SHARED_MODEL.resolve())
        for group, measure in GROUPS.items():
            try:
                for figure in measure(means, models) if group in wanted else ():
                    figures.append(figure)
                    print(f"{figure.name}: {figure.measured_text}", file=sys.stderr)
            except NotMeasured as fault:
                print(f"{group}: not measured: {fault}", file=sys.stderr)
    if options.plot is not None and ladders:
        plot(ladders, options.plot)
    print(document(ladders, figures, facts) if options.json else text(ladders, figures, facts))


def default_models() -> list[Path]:
    """The shipped model, and the shared 640 × 640 detector where it is."""
    for name in SHIPPED:
        try:
            shipped = model_path(name)
        except OutsideError:
            continue
        return [shipped, *([SHARED_MODEL] if SHARED_MODEL.exists() else [])]
    raise SystemExit(f"ladder: no shipped model ({' or '.join(SHIPPED)}); give one with --models")


def text(ladders: Mapping[str, Sequence[Row]], figures: Sequence[Figure], facts: dict[str, str]) -> str:
    """Word it for a terminal: facts, a ladder for each model, the figures with their budgets."""
    parts = [f"{name}\n\n{table(rows)}" for name, rows in ladders.items()]
    return "\n\n".join([*parts, figures_table(figures, facts)])


def document(ladders: Mapping[str, Sequence[Row]], figures: Sequence[Figure], facts: dict[str, str]) -> str:
    """Word it for a program."""
    rows = {name: [asdict(row) for row in found] for name, found in ladders.items()}
    found = [{**asdict(figure), "verdict": figure.verdict} for figure in figures]
    return json.dumps({"machine": facts, "ladders": rows, "figures": found}, ensure_ascii=False, indent=2)


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    made = argparse.ArgumentParser(prog="python -m tests.bench.ladder", description=__doc__)
    made.add_argument("--seconds", type=float, default=4.0, help="one round (default 4)")
    made.add_argument("--rounds", type=int, default=3, help="in turns (default 3)")
    made.add_argument("--only", nargs="+", choices=(RUNGS, *GROUPS), help="these alone")
    made.add_argument("--models", nargs="+", type=Path, help="layout yolo; default the shipped and the shared one")
    made.add_argument("--folder", type=Path, help="for the daemon's state; default the temporary folder")
    made.add_argument("--plot", type=_png, metavar="FILE.png", help="draw the ladder")
    made.add_argument("--json", action="store_true", help="for a program")
    return made


def _png(text: str) -> Path:
    """Look at the name before minutes are measured for it."""
    path = Path(text)
    if path.suffix != ".png" or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path}: the plot is a .png in a folder that exists")
    return path


if __name__ == "__main__":
    main()
