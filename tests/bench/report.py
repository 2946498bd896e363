"""The bench's table: figure, what was measured, DESIGN's budget, and whether it is kept."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

Verdict = Literal["ok", "over", ""]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    name: str
    value: float
    unit: str
    budget: float | None = None
    """None: printed for information."""
    at_least: bool = False
    """The budget is a lower bound."""
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        if self.budget is None:
            return ""
        kept = self.value >= self.budget if self.at_least else self.value <= self.budget
        return "ok" if kept else "over"  # a figure that could not be had (nan) is over

    @property
    def measured_text(self) -> str:
        return f"{_number(self.value)} {self.unit}".rstrip()

    @property
    def budget_text(self) -> str:
        if self.budget is None:
            return "–"
        return f"{'≥' if self.at_least else '≤'} {_number(self.budget)} {self.unit}".rstrip()


def machine() -> dict[str, str]:
    """What the figures depend on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory_kb = int(Path("/proc/meminfo").read_text().split()[1])
    load_1min = os.getloadavg()[0]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": f"{model}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{memory_kb / 2**20:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "load before": f"{load_1min:.1f}",
    }


def table(figures: Sequence[Figure], facts: dict[str, str]) -> str:
    """Word it for a terminal; it is a Markdown table as well."""
    rows = [("figure", "measured", "budget", "")]
    rows += [(figure.name, figure.measured_text, figure.budget_text, figure.verdict) for figure in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [f"{name}: {value}" for name, value in facts.items()] + [""]
    for place, row in enumerate(rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"| {' | '.join(cells)} |")
        if place == 0:
            lines.append(f"|{'|'.join('-' * (width + 2) for width in widths)}|")
    notes = [f"- {figure.name}: {figure.note}" for figure in figures if figure.note]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def document(figures: Sequence[Figure], facts: dict[str, str]) -> str:
    """Word it for a program."""
    return json.dumps(
        {"machine": facts, "figures": [{**asdict(figure), "verdict": figure.verdict} for figure in figures]},
        ensure_ascii=False,
        indent=2,
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")
