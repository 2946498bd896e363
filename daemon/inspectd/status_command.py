"""The command `inspectd status`: shows how the running daemon is, or waits until it is as wanted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from inspectd.door.client import NotRunning
from inspectd.errors import OutsideError
from inspectd.status_table import render
from inspectd.status_text import plain

EXIT_DONE, EXIT_NOT_READY = 0, 1
WATCH_S = 1.0
WAIT_S = 0.25

Wanted = Literal["healthy", "idle"]
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Options:
    """What the user wants to see."""

    watch: bool = False
    as_json: bool = False
    wait: Wanted | None = None
    timeout_s: float = 60.0
    """For `wait`."""


def show_status(
    ask: Callable[[], dict[str, Any]],
    options: Options,
    out: TextIO,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> int:
    """Do it. `ask` gives the status document.

    Returns 0; without `wait` 1 for a station that is not ready. Raises OutsideError where nobody answers, or if it is
    not as wanted in time.
    """
    console = Console(file=out, highlight=False)
    if options.wait is not None:
        document = _wait(ask, options, console, clock, pause)
    elif options.watch:
        return _watch(ask, options, console, pause)
    else:
        document = ask()
    _print(document, options, console)
    is_ready = bool(document.get("state", {}).get("ready"))
    return EXIT_DONE if is_ready or options.wait is not None else EXIT_NOT_READY


def unmet(document: Document, wanted: Wanted) -> list[str]:
    """Say what is not yet as wanted, a short sentence each.

    Healthy: ready, and nothing amiss. Idle: nothing in flight, and everything that is stored is delivered.
    """
    state, outbox = document.get("state", {}), document.get("outbox", {})
    if wanted == "healthy":
        if state.get("ready") and not state.get("degraded"):
            return []
        return list(state.get("reasons") or ()) or ["it is starting or stopping"]
    waiting = (
        (state.get("jobsInFlight"), "frames in flight"),
        (outbox.get("unsent"), "results unsent"),
        (outbox.get("unsentEvents"), "events unsent"),
    )
    return [f"{count} {what}" for count, what in waiting if count]


def _wait(
    ask: Callable[[], dict[str, Any]],
    options: Options,
    console: Console,
    clock: Callable[[], float],
    pause: Callable[[float], None],
) -> dict[str, Any]:
    """Ask until it is as wanted; a daemon that does not answer yet may be starting."""
    until_s = clock() + options.timeout_s
    wanted = options.wait or "healthy"
    with _Screen(console, is_on=options.watch and not options.as_json) as screen:
        while True:
            try:
                document = ask()
                reasons = unmet(document, wanted)
                screen.show(document)
            except NotRunning as fault:
                reasons = [str(fault)]
            if not reasons:
                return document
            if clock() >= until_s:
                raise OutsideError(f"not {wanted} within {options.timeout_s:g} s: {plain('; '.join(reasons))}")
            pause(min(WAIT_S, max(until_s - clock(), 0.0)))


def _watch(
    ask: Callable[[], dict[str, Any]], options: Options, console: Console, pause: Callable[[float], None]
) -> int:
    """Show it again and again until the user stops it."""
    try:
        with _Screen(console, is_on=not options.as_json) as screen:
            while True:
                try:
                    document = ask()
                except NotRunning as fault:
                    if options.as_json:
                        raise
                    screen.say(str(fault))
                else:
                    if options.as_json:
                        _print(document, options, console)
                    screen.show(document)
                pause(WATCH_S)
    except KeyboardInterrupt:
        return EXIT_DONE


def _print(document: Document, options: Options, console: Console) -> None:
    if not options.as_json:
        console.print(render(document, console.width))
        return
    text = json.dumps(document, separators=(",", ":")) if options.watch else json.dumps(document, indent=2)
    console.file.write(f"{text}\n")
    console.file.flush()


class _Screen:
    """A table that is drawn over itself on a terminal, and printed again elsewhere."""

    def __init__(self, console: Console, *, is_on: bool) -> None:
        self._console, self._is_on = console, is_on
        self._live = Live(console=console, auto_refresh=False, screen=True) if is_on and console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, document: Document) -> None:
        """Draw a document."""
        if self._live is not None:
            self._live.update(render(document, self._console.width), refresh=True)
        elif self._is_on:
            self._console.print(render(document, self._console.width))

    def say(self, text: str) -> None:
        """Draw a sentence in its place."""
        if self._live is not None:
            self._live.update(Text(plain(text), "red"), refresh=True)
        elif self._is_on:
            self._console.print(Text(plain(text)))
