"""The three ways to watch the demo: a live table, plain lines where there is no terminal, nothing beside `--json`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.live import Live

from inspectd.demo.table import WIDTH, LiveTable

View = Callable[[float, float], None]
"""Called often with how many seconds are over, and of how many; draws when it is time to."""

_TABLE_PERIOD_S = 0.25
_LINE_PERIOD_S = 2.0


def console_for(out: TextIO) -> Console:
    """Build a console for the table's width, or less where the terminal is narrower."""
    console = Console(file=out)
    width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    return Console(file=out, width=width, highlight=False)


@contextmanager
def opened(table: LiveTable, console: Console, *, silent: bool) -> Iterator[View]:
    """Choose the view and give back the terminal as it was."""
    if silent:
        yield lambda _shown_s, _of_s: None
    elif not console.is_terminal:
        yield _every(_LINE_PERIOD_S, lambda now_s, _shown_s, _of_s: console.print(table.line(now_s), soft_wrap=True))
    else:
        with Live(table.render(time.monotonic(), 0, 0), console=console, auto_refresh=False) as live:
            yield _every(
                _TABLE_PERIOD_S,
                lambda now_s, shown_s, of_s: live.update(table.render(now_s, shown_s, of_s), refresh=True),
            )


def _every(period_s: float, draw: Callable[[float, float, float], None]) -> View:
    due_s = time.monotonic()

    def view(shown_s: float, of_s: float) -> None:
        nonlocal due_s
        now_s = time.monotonic()
        if now_s >= due_s:
            due_s = now_s + period_s
            draw(now_s, shown_s, of_s)

    return view
