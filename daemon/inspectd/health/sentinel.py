"""A thread that watches the event loop: says what blocks it before systemd ends us, and ends an end that hangs.

It alone writes the file about a stall: the disk may be what the loop would hang on.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

LAST_WORDS_S = 5.0
"""systemd kills at once when it is asked to; who has no systemd, or one that does not answer, ends by itself then."""

log = logging.getLogger(__name__)


class Notifier(Protocol):
    """systemd, as it is needed here."""

    def trigger_watchdog(self) -> None:
        """Ask to be killed and started again."""


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """How long the loop may stand still, in seconds."""

    tell_s: float
    trigger_s: float | None
    """Ask for the end of it then; None: nobody would start us again."""
    turn_s: float = 0.25
    """Between two looks."""


class Sentinel:
    """Call `beat` at every turn of the loop. All public methods are for the loop's thread, and none blocks."""

    def __init__(
        self,
        path: Path,
        limits: LoopLimits,
        notifier: Notifier,
        clock: Callable[[], float] = time.monotonic,
        abort: Callable[[], None] = os.abort,
    ) -> None:
        self._path, self._limits, self._notifier, self._clock, self._abort = path, limits, notifier, clock, abort
        self._loop_thread = threading.get_ident()
        self._beat_s = self._looked_s = clock()
        self._stalled = self._written = ""
        self._is_blocked = False
        self._end: tuple[float, float] | None = None
        """The limit of the end that has begun, and when it is over."""
        self._triggered_s: float | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sentinel", daemon=True)

    def start(self) -> None:
        """Start the thread: a daemon thread, for the disk that it writes to may hang."""
        self._thread.start()

    def beat(self, stalled: str) -> None:
        """The loop turns; `stalled`: what stands still all the same, in words, or nothing."""
        self._beat_s, self._stalled = self._clock(), stalled

    def end_within(self, limit_s: float) -> None:
        """The daemon has begun to end. If it has not ended by then, an orderly end is impossible."""
        self._end = limit_s, self._clock() + limit_s

    def close(self) -> None:
        """The daemon has ended in order: nothing stands still."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join(2 * self._limits.turn_s)
        if self._written:
            self._write("")

    def look(self, now: float) -> None:
        """One turn of the thread."""
        if now - self._looked_s > 4 * self._limits.turn_s:
            self._beat_s = max(self._beat_s, now - self._limits.turn_s)  # we were stopped ourselves, and so was it
        self._looked_s = now
        blocked_s = now - self._beat_s
        text = self._stalled
        if blocked_s > self._limits.tell_s:
            text = self._blocked(blocked_s)
        elif self._is_blocked:
            self._is_blocked = False
            log.warning("event loop: turns again")
        reason = ""
        if self._end is not None and now > self._end[1]:
            reason = text = f"the end has not come within {self._end[0]:g} s; {text or _where(self._loop_thread)}"
        elif self._limits.trigger_s is not None and blocked_s > self._limits.trigger_s:
            reason = text
        if (text != "") != (self._written != "") or (reason and self._triggered_s is None):
            self._write(text)
        if reason:
            self._give_up(reason, now)

    def _run(self) -> None:
        while not self._closed.wait(self._limits.turn_s):
            self.look(self._clock())

    def _blocked(self, blocked_s: float) -> str:
        text = f"event loop: no turn for {blocked_s:.1f} s; {_where(self._loop_thread)}"
        if not self._is_blocked:
            self._is_blocked = True
            self._write(text)  # before the log, whose reader may be what hangs
            frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the documented way
            log.critical("%s\n%s", text, "".join(traceback.format_stack(frame)).rstrip())
        return text

    def _give_up(self, reason: str, now: float) -> None:
        if self._triggered_s is None:
            self._triggered_s = now
            self._notifier.trigger_watchdog()
            log.critical("cannot go on, and cannot end in order: %s", reason)
        elif now - self._triggered_s > LAST_WORDS_S:
            self._abort()

    def _write(self, text: str) -> None:
        self._written = text
        try:
            if text:
                self._path.write_text(f"{text}\n", "utf-8")
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s: %s", self._path, error.strerror)


def _where(thread: int) -> str:
    """Where a thread is, innermost first."""
    frame: FrameType | None = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way
    stack = traceback.extract_stack(frame)[-3:] if frame is not None else []
    places = [f"{entry.name} ({Path(entry.filename).name}:{entry.lineno})" for entry in reversed(stack)]
    return f"it is in {', called by '.join(places)}" if places else "where it is cannot be told"
