"""Run the fault matrix and print it: `python -m tests.faults [--only N…] [--all] [--json FILE] [--markdown [FILE]]`."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path

from tests.bench.report import machine
from tests.faults import report
from tests.faults.fault import Row
from tests.faults.matrix import chosen, faults, run


def main() -> None:
    """Run, print; ends with 1 if a promise was broken."""
    made = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    made.add_argument("--only", nargs="+", default=[], metavar="N", help="these faults: 15, or a variant of one")
    made.add_argument("--all", action="store_true", help="the slow ones and the pairs too")
    made.add_argument("--jobs", type=int, default=2, help="stands at a time (%(default)s)")
    made.add_argument("--list", action="store_true", help="say which there are, and run nothing")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    made.add_argument(
        "--markdown",
        type=Path,
        nargs="?",
        const=Path(),
        metavar="FILE",
        help="print as docs/faults.md has it; FILE: a run's JSON",
    )
    options = made.parse_args()
    if options.markdown is not None and options.markdown != Path():
        print(report.markdown(*report.rows_of(options.markdown.read_text("utf-8"))), end="")
        return
    try:
        wanted = chosen(faults(), options.only, slow=options.all)
    except ValueError as fault:
        made.error(str(fault))
    if options.list:
        print("\n".join(f"{f.name:>8}  {f.setup.name:12} {'slow ' if f.is_slow else '':5} {f.title}" for f in wanted))
        return

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a stopped run leaves no daemon behind

    def tell(row: Row) -> None:
        print(report.line(row), flush=True)

    rows = run(wanted, tell, options.jobs)
    if options.json is not None:
        options.json.write_text(report.document(rows, machine()), "utf-8")
    if options.markdown is not None:
        print(report.markdown(rows, machine()), end="")
    raise SystemExit(any(row.outcome == "FAIL" for row in rows))


if __name__ == "__main__":
    main()
