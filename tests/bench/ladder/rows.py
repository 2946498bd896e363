"""The ladder as a table and as figures beside DESIGN's budgets. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.bench.ladder.tally import Round
from tests.bench.report import Figure

HEADER = (
    "rung",
    "frames/s",
    "CPU ms",
    "p50 ms",
    "p99 ms",
    "RssAnon MB",
    "lost",
    "slowed: interval p99",
    "lost",
    "failing 1 %: lost",
    "told",
)

_TRIED_FRAMES = 30


@dataclass(frozen=True, slots=True)
class Row:
    """One rung."""

    name: str
    plain: Round
    slowed: Round | None = None
    """None: nothing can be put into its graph, or it was stuck before."""
    failing: Round | None = None

    @property
    def lost(self) -> int:
        return sum(one.lost for one in (self.plain, self.slowed, self.failing) if one is not None)

    @property
    def is_tried(self) -> bool:
        """Whether it has shown what it does with faults: the tenth inference fails first, and some follow it."""
        return self.slowed is not None and self.failing is not None and self.failing.given >= _TRIED_FRAMES

    def cells(self) -> tuple[str, ...]:
        """Word it for the table."""
        plain, slowed, failing = self.plain, self.slowed, self.failing
        return (
            self.name,
            _number(plain.frames_per_s),
            _number(plain.cpu_ms),
            _number(plain.p50_ms),
            _number(plain.p99_ms),
            _number(plain.anonymous_mb),
            _lost(plain if plain.given else None),
            "–" if slowed is None else f"{_number(slowed.interval_p99_ms)} ms",
            _lost(slowed),
            _lost(failing),
            "–" if failing is None else str(failing.told),
        )


def table(rows: Sequence[Row]) -> str:
    """Word the ladder of one model; it is a Markdown table as well."""
    cells = [HEADER, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADER))]
    lines = [f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in cells]
    lines.insert(1, f"|{'|'.join('-' * (width + 2) for width in widths)}|")
    return "\n".join(lines)


def budgets(model: str, rows: Sequence[Row], *, is_large: bool) -> Iterator[Figure]:
    """Ratios of the ladder beside DESIGN's budgets. Rows: rungs first, then our pool, the daemon, `benchmark_app`."""
    *articles, pool, daemon, reference = rows
    synchronous = articles[0]
    ratio = daemon.plain.frames_per_s / reference.plain.frames_per_s
    yield Figure(f"{model}: daemon ÷ benchmark_app", ratio, "", 0.93 if is_large else None, at_least=True)
    ratio = pool.plain.frames_per_s / reference.plain.frames_per_s
    yield Figure(f"{model}: our pool ÷ benchmark_app", ratio, "")
    beyond_ms = daemon.plain.cpu_ms - reference.plain.cpu_ms
    yield Figure(f"{model}: CPU per frame beyond benchmark_app, without camera", beyond_ms, "ms", 4.0)
    sound = [row for row in articles if row.is_tried and not row.lost]
    if sound:
        fastest = max(sound, key=lambda row: row.plain.frames_per_s)
        ratio = daemon.plain.frames_per_s / fastest.plain.frames_per_s
        yield Figure(
            f"{model}: daemon ÷ fastest rung that loses nothing", ratio, "", 0.97, at_least=True, note=fastest.name
        )
    if pool.slowed is not None and synchronous.slowed is not None:
        ratio = pool.slowed.interval_p99_ms / synchronous.slowed.interval_p99_ms
        yield Figure(f"{model}: every 50th slowed, interval p99, our pool ÷ synchronous loop", ratio, "", 0.5)
    if pool.is_tried:
        yield Figure(f"{model}: results that our pool lost", pool.lost, "", 0.0)


def _lost(one: Round | None) -> str:
    if one is None:
        return "–"
    return f"{one.lost} of {one.given}{', stuck' if one.is_stuck else ''}"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"
