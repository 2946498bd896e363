"""Keeps systemd's watchdog: feeds it by finished work, has its time checked, says what stands still."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, KeysView

from inspectd.health.assess import Assessor, Stage
from inspectd.health.budget import too_short
from inspectd.health.loading import Loading, cpu_s
from inspectd.health.notify import Notifier
from inspectd.health.sentinel import Sentinel

TICK_S = 1.0
LOOKS = 4
"""So many within the watchdog's time."""
EXTENSION_S = 30.0
"""So much longer may a start take while a model's process works on; several looks fit into it."""

log = logging.getLogger(__name__)


class Watchdog:
    """All methods belong to the event loop's thread."""

    def __init__(self, stages: Collection[Stage], notifier: Notifier, sentinel: Sentinel, now: float) -> None:
        self.tick_s = TICK_S if notifier.watchdog_s is None else min(TICK_S, notifier.watchdog_s / LOOKS)
        """Between two calls of `look`."""
        self._stages, self._notifier, self._sentinel = stages, notifier, sentinel
        self._assessor = Assessor(stages, now)
        self._loading = Loading()
        self._stalled: KeysView[str] = {}.keys()

    def check_time(self) -> None:
        """Have systemd wait for the slowest piece of work that is none too slow. Call it after READY."""
        watchdog_s = self._notifier.watchdog_s
        shortage = None if watchdog_s is None else too_short(watchdog_s, self._stages, self.tick_s)
        if shortage is not None:
            log.warning("%s", shortage.text)
            self._notifier.lengthen_watchdog(shortage.needed_s)

    def look(self, now: float) -> None:
        """Feed it, if everything that has work has finished some; tell a stall once."""
        verdict = self._assessor.assess(now)
        if verdict.feed:
            self._notifier.feed_watchdog()
        text = "; ".join(verdict.stalled.values())
        if verdict.stalled.keys() != self._stalled:
            if text:
                log.critical("stalled, the watchdog gets nothing: %s", text)
            else:
                log.warning("nothing stands still any more")
        self._stalled = verdict.stalled.keys()
        self._sentinel.beat(text)

    def extend_start(self, loading: Iterable[int | None], now: float) -> None:
        """Give the start more time if one of these processes has really worked; None: there is none just now."""
        used_s = {pid: cpu_s(pid) for pid in loading if pid is not None}
        if self._loading.works({pid: used for pid, used in used_s.items() if used is not None}, now):
            self._notifier.extend_timeout(EXTENSION_S)
