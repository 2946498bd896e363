"""What the demo shows while it runs: built up from the daemon's messages, drawn for a terminal of 100 columns. Pure.

It counts results as they arrive. A skipped frame has no result; the daemon's own counters at the end have it too.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from inspectd.camera.boards.scene import BOARD_CLASS
from inspectd.records import Evaluation

WIDTH = 100
"""Columns that it is made for; a wider terminal gets no wider table."""

_RATE_WINDOW_S = 5.0
_LATENCIES_KEPT = 10_000
_DEFECTS_SHOWN = 6
_DEFECTS_OF_A_PART = 3
_BAR_WIDTH = 90
_SHOWN = {
    Evaluation.OK: ("OK", "green"),
    Evaluation.NOT_OK: ("NotOK", "red"),
    Evaluation.NOT_DECIDABLE: ("NotDecidable", "yellow"),
    Evaluation.UNDEFINED: ("Undefined", "magenta"),
}
"""The contract's words, and the colours of a stack light; never by colour alone."""


@dataclass(slots=True)
class CameraRow:
    """What came from one camera."""

    verdicts: Counter[Evaluation] = field(default_factory=Counter)
    latencies_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_LATENCIES_KEPT))
    arrivals_s: deque[float] = field(default_factory=deque)
    """Of the last seconds only."""
    first_s: float = math.inf

    def add(self, evaluation: Evaluation, latency_ms: float, now_s: float) -> None:
        """Count one result."""
        self.verdicts[evaluation] += 1
        self.latencies_ms.append(latency_ms)
        self.arrivals_s.append(now_s)
        self.first_s = min(self.first_s, now_s)

    def rate_per_s(self, now_s: float) -> float:
        """Results per second over the last 5 s, or since the first one; never over less than 1 s."""
        while self.arrivals_s and self.arrivals_s[0] <= now_s - _RATE_WINDOW_S:
            self.arrivals_s.popleft()
        return len(self.arrivals_s) / min(max(now_s - self.first_s, 1.0), _RATE_WINDOW_S)


@dataclass(frozen=True, slots=True)
class DefectivePart:
    """One line of the last defects."""

    camera: str
    frame_id: int
    defects: tuple[tuple[str, float], ...]
    """(class, confidence), best first."""


class LiveTable:
    """State of the table. `add` takes messages, `render` and `line` show them."""

    def __init__(self, cameras: Iterable[str], min_confidence: float) -> None:
        self.rows = {camera: CameraRow() for camera in cameras}
        self.counters: Mapping[str, Any] | None = None
        self.is_ending = False
        """The daemon was asked to end: what it says of its state from now on is not how the line was."""
        self.state: Mapping[str, Any] = {}
        self.defective: deque[DefectivePart] = deque(maxlen=_DEFECTS_SHOWN)
        self._min_confidence = min_confidence

    def add(self, leaf: str, document: Mapping[str, Any], now_s: float) -> None:
        """Take one message, by the last level of its topic; others than these three are nothing to show."""
        if leaf == "result":
            self._add_result(document, now_s)
        elif leaf == "counters":
            self.counters = document
        elif leaf == "state" and not self.is_ending:
            self.state = document

    @property
    def results(self) -> int:
        """How many results came."""
        return sum(row.verdicts.total() for row in self.rows.values())

    @property
    def is_up(self) -> bool:
        """Whether the daemon inspects."""
        return self.state.get("vision") == "Operational" or self.results > 0

    def verdicts(self) -> Counter[Evaluation]:
        """All cameras together."""
        return sum((row.verdicts for row in self.rows.values()), Counter())

    def latencies_ms(self) -> list[float]:
        """All cameras together."""
        return [latency for row in self.rows.values() for latency in row.latencies_ms]

    def rate_per_s(self, now_s: float) -> float:
        """All cameras together."""
        return sum(row.rate_per_s(now_s) for row in self.rows.values())

    def line(self, now_s: float) -> str:
        """One plain line, where there is no terminal."""
        verdicts = self.verdicts()
        counts = ", ".join(f"{name} {verdicts[evaluation]}" for evaluation, (name, _) in _SHOWN.items())
        latencies_ms = self.latencies_ms()
        speed = f"{self.rate_per_s(now_s):.1f}/s"
        if latencies_ms:
            speed += f"  p50 {percentile(latencies_ms, 50):.0f} ms  p95 {percentile(latencies_ms, 95):.0f} ms"
        return f"{self.results} inspected  {counts}  {speed}"

    def render(self, now_s: float, shown_s: float, of_s: float) -> RenderableType:
        """Draw it. `shown_s` of `of_s` seconds are over."""
        body = Group(self._cameras(now_s), Text(), self._bar(), Text(), self._last_defects())
        return Panel(
            body,
            title=Text.assemble(("inspectd demo ", "bold"), "· ", self._condition()),
            title_align="left",
            subtitle=f"{min(shown_s, of_s):.0f} of {of_s:.0f} s · Ctrl-C ends",
            subtitle_align="right",
            border_style="blue",
            box=box.ROUNDED,
            padding=(1, 2, 0, 2),
        )

    def _add_result(self, document: Mapping[str, Any], now_s: float) -> None:
        acquisition = document["acquisition"]
        camera, evaluation = str(acquisition["cameraId"]), Evaluation(document["resultEvaluation"])
        self.rows.setdefault(camera, CameraRow()).add(evaluation, float(document["latencyMs"]), now_s)
        if evaluation == Evaluation.NOT_OK:
            found = [
                (str(detection["className"]), float(detection["confidence"]))
                for detection in document["resultContent"]["detections"]
                if detection["className"] != BOARD_CLASS and detection["confidence"] >= self._min_confidence
            ]
            best_first = tuple(sorted(found, key=lambda defect: -defect[1]))
            self.defective.appendleft(DefectivePart(camera, int(acquisition["frameId"]), best_first))

    def _condition(self) -> Text:
        if not self.state:
            return Text("starting", style="yellow")
        ready = self.state.get("ready", False)
        words = [str(self.state.get("vision", "")), "ready" if ready else "not ready"]
        words += ["degraded"] * bool(self.state.get("degraded"))
        reasons = self.state.get("reasons") or []
        text = Text(", ".join(words), style="green" if ready and len(words) == 2 else "yellow")
        if reasons:
            text.append(f" ({reasons[0]})")
        text.truncate(WIDTH - 25, overflow="ellipsis")
        return text

    def _cameras(self, now_s: float) -> Table:
        table = Table(box=box.SIMPLE_HEAD, expand=True, padding=(0, 1), show_edge=False, header_style="bold")
        table.add_column("camera")
        for heading in ("pictures/s", "inspected"):
            table.add_column(heading, justify="right")
        for name, colour in _SHOWN.values():
            table.add_column(name, justify="right", style=colour, header_style=f"bold {colour}")
        for heading in ("p50 ms", "p95 ms"):
            table.add_column(heading, justify="right")
        for camera, row in self.rows.items():
            table.add_row(camera, *_cells(row.rate_per_s(now_s), row.verdicts, row.latencies_ms))
        if len(self.rows) > 1:
            table.add_section()
            cells = _cells(self.rate_per_s(now_s), self.verdicts(), self.latencies_ms())
            table.add_row("all", *cells, style="bold")
        return table

    def _bar(self) -> RenderableType:
        verdicts = self.verdicts()
        total = verdicts.total()
        if not total:
            return Group(Text("  waiting for the first picture …", style="dim"), Text())
        bar, words = Text("  ", no_wrap=True, overflow="crop"), Text("  ")
        for evaluation, share in zip(_SHOWN, _shares([verdicts[e] for e in _SHOWN], _BAR_WIDTH), strict=True):
            name, colour = _SHOWN[evaluation]
            bar.append("█" * share, style=colour)
            if verdicts[evaluation]:
                words.append("■ ", style=colour)
                words.append(f"{name} {100 * verdicts[evaluation] / total:.1f} %    ")
        return Group(bar, words)

    def _last_defects(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, expand=True, padding=(0, 1), show_edge=False, header_style="bold")
        table.add_column("picture", justify="right", width=9)
        table.add_column("camera", width=12)
        table.add_column("last defects", ratio=1, no_wrap=True, overflow="ellipsis")
        for part in self.defective:
            words = Text()
            for class_name, confidence in part.defects[:_DEFECTS_OF_A_PART]:
                words.append(f"{class_name} ", style="red")
                words.append(f"{confidence:.2f}    ")
            if len(part.defects) > _DEFECTS_OF_A_PART:
                words.append(f"and {len(part.defects) - _DEFECTS_OF_A_PART} more", style="dim")
            table.add_row(str(part.frame_id), part.camera, words)
        for _ in range(_DEFECTS_SHOWN - len(self.defective)):  # so that the table does not grow while one looks at it
            table.add_row()
        return table


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank; `values` must not be empty."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _cells(rate_per_s: float, verdicts: Counter[Evaluation], latencies_ms: Sequence[float]) -> list[str]:
    times = [f"{percentile(latencies_ms, percent):.0f}" if latencies_ms else "–" for percent in (50, 95)]
    return [f"{rate_per_s:.1f}", str(verdicts.total()), *(str(verdicts[e]) for e in _SHOWN), *times]


def _shares(counts: Sequence[int], width: int) -> list[int]:
    """Divide `width` in proportion; what was counted at all keeps one column."""
    total = sum(counts)
    shares = [max(round(width * count / total), 1) if count else 0 for count in counts]
    shares[shares.index(max(shares))] -= sum(shares) - width
    return shares
