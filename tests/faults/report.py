"""Words the rows of the matrix: a table for the terminal, JSON, and the Markdown of docs/faults.md."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tests.faults.fault import Leftovers, Row

HEAD = (
    "fault",
    "how injected",
    "what was seen",
    "codes: frames",
    "captured / accounted / OK without inference",
    "again after s (budget × host)",
    "others: lost, slowest s",
    "processes, memfds, descriptors",
    "",
)


def line(row: Row) -> str:
    """One row, for the terminal while the matrix runs."""
    frames = f"{row.captured}/{row.accounted}/{row.ok_without}"
    told = row.complaint or row.seen
    return f"{row.outcome:9} {row.name:>7}  {row.title:44} {frames:>12} {_again(row):>16} {row.took_s:5.1f} s  {told}"


def document(rows: Sequence[Row], machine: dict[str, str]) -> str:
    """JSON of a run."""
    return json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=1) + "\n"


def rows_of(text: str) -> tuple[list[Row], dict[str, str]]:
    """Read `document` again."""
    read: dict[str, Any] = json.loads(text)
    rows = []
    for item in read["rows"]:
        held = {key: Leftovers(**item[key]) if item[key] else None for key in ("before", "after")}
        rows.append(Row(**item | held))
    return rows, read["machine"]


def markdown(rows: Sequence[Row], machine: dict[str, str]) -> str:
    """The page docs/faults.md."""
    table = [HEAD, *(_cells(row) for row in rows)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |" for cells in table]
    lines.insert(1, "|" + "---|" * len(HEAD))
    passed = sum(row.outcome == "pass" for row in rows)
    captured = sum(row.captured for row in rows)
    accounted = sum(row.accounted for row in rows)
    invented = sum(row.ok_without for row in rows)
    others = ", ".join(f"{sum(r.outcome == o for r in rows)} {o}" for o in ("FAIL", "skipped", "elsewhere"))
    summary = (
        f"{passed} of {len(rows)} passed ({others}). {captured} frames captured, {accounted} accounted for, "
        f"{invented} OK without inference."
    )
    facts = "; ".join(f"{name}: {value}" for name, value in machine.items())
    return "\n".join([INTRODUCTION.strip(), "", summary, "", facts, "", *lines, ""])


INTRODUCTION = """
# Faults

What happens when something breaks. Every row was produced by breaking a real part of a running station from outside
(`make faults`, the slow ones and the pairs by `make faults ALL=1`; this page by
`python -m tests.faults --all --json FILE` and `python -m tests.faults --markdown FILE`).

The station has two simulated cameras, each with a model of its own. The fault is that of the camera `top` or of its
model; the camera `side` stands beside it. *Captured* are the numbers that both ledgers gave from before the fault until
all was as before; *accounted* are those with exactly one row in the journal. *Again after* counts from the moment when
the cause was gone, or a part was killed, until the first frame that was captured after it was inspected; budgets are
multiplied by how many times slower than DESIGN's 3 s the station itself had started on this host. *Others*
are the frames of `side` that were not inspected, and the longest that one of the inspected ones took from capture to
decision; where the fault is the whole host's, lost ones are only printed, in brackets.
"""


def _cells(row: Row) -> tuple[str, ...]:
    codes = ", ".join(f"{code}: {count}" for code, count in row.codes.items())
    held = f"{_held(row.before)} → {_held(row.after)}" if row.before and row.after else "-"
    if row.outcome in ("skipped", "elsewhere"):
        return f"{row.name} {row.title}", row.injected, row.complaint or row.seen, "", "", "", "", "", row.outcome
    return (
        f"{row.name} {row.title}",
        row.injected,
        row.complaint.splitlines()[0] if row.complaint else row.seen,
        codes,
        f"{row.captured} / {row.accounted} / {row.ok_without}",
        _again(row),
        f"{f'({row.others_lost})' if row.of_host else row.others_lost}, {row.others_worst_s:.1f}",
        held,
        row.outcome,
    )


def _again(row: Row) -> str:
    return "-" if row.again_s is None else f"{row.again_s:.1f} ({row.budget_s:g} × {row.slowness:.1f})"


def _held(held: Leftovers | None) -> str:
    return "" if held is None else f"{held.processes} {held.memfds} {held.descriptors}"
