"""`python -m tests.bench`: the running daemon beside DESIGN's budgets, on this host, in one table. Always ends with 0.

Rounds of `benchmark_app` and of the daemon take turns, because absolute times on a shared host mean little.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench.figures import FIGURES, Bench
from tests.bench.measure import NotMeasured
from tests.bench.report import Figure, document, machine, table
from tests.shared import FOLDER

from inspectd.resources import model_path

SHARED_MODEL = FOLDER / "models/tinydet-pcb/tinydet_640x640.xml"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = parser().parse_args(arguments)
    facts, figures = machine(), list[Figure]()
    with tempfile.TemporaryDirectory(prefix="inspectd-bench-", dir=options.folder) as folder:
        bench = Bench(Path(folder), options.model, model_path("pcb-demo-int8.xml"), options.seconds, options.rounds)
        for name in options.only or FIGURES:
            try:
                for figure in FIGURES[name](bench):
                    figures.append(figure)
                    print(f"{figure.name}: {figure.measured_text}", file=sys.stderr)
            except NotMeasured as fault:
                print(f"{name}: not measured: {fault}", file=sys.stderr)
    print(document(figures, facts) if options.json else table(figures, facts))


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    made = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    made.add_argument("--seconds", type=float, default=15.0, help="one round (default 15)")
    made.add_argument("--rounds", type=int, default=3, help="of benchmark_app and the daemon (default 3)")
    made.add_argument("--only", nargs="+", choices=FIGURES, help="these alone")
    made.add_argument("--json", action="store_true", help="for a program")
    add_places(made, SHARED_MODEL if SHARED_MODEL.exists() else model_path("pcb-demo.xml"))
    return made


def add_places(made: argparse.ArgumentParser, model: Path) -> None:
    """Options that every bench has; `model` is the default."""
    made.add_argument("--model", type=Path, default=model, help="of the runs at full load")
    made.add_argument("--folder", type=Path, help="on the disk to be measured; default the temporary folder")


if __name__ == "__main__":
    main()
