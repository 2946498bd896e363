"""Keeps the alarms in step with the station: publishes what changes, writes its events, keeps the book on the disk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from inspectd.health.alarms import Alarm, AlarmBook, Change, Condition
from inspectd.publish.events import Event, EventName
from inspectd.publish.memo import Memo

log = logging.getLogger(__name__)


class Wire(Protocol):
    """The publisher, as alarms need it."""

    def retain(self, leaf: str, payload: bytes, qos: int) -> None:
        """Publish retained; an empty payload takes the topic away."""


ENTRY = "alarms"
"""Of the memo."""


class AlarmDesk:
    """All methods belong to the event loop's thread."""

    def __init__(
        self,
        memo: Memo,
        wire: Callable[[], Wire],
        event: Callable[[Event], None],
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        """`event` writes a durable event."""
        self._book = _read_book(memo.get(ENTRY))
        self._memo, self._wire, self._event, self._clock, self._wall = memo, wire, event, clock, wall

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """What stands."""
        return self._book.alarms

    def observe(self, conditions: Iterable[Condition]) -> None:
        """Take everything that is wrong now."""
        self._tell(self._book.observe(conditions, self._clock(), self._wall()))

    def pulse(self, condition: Condition) -> None:
        """Take something that has happened."""
        self._tell(self._book.pulse(condition, self._wall()))
        self._keep()

    def acknowledge(self, code: str | None, source: str | None) -> int:
        """Somebody has seen these; gives how many there are."""
        found = len(self._book.matching(code, source))
        self._tell(self._book.acknowledge(code, source))
        return found

    def confirm_all(self) -> int:
        """Somebody has dealt with everything; gives how many there were."""
        found = len(self._book.matching())
        self._tell(self._book.confirm_all())
        return found

    def publish_all(self, cameras: Iterable[str], models: Iterable[str]) -> None:
        """Tell a broker everything, whatever it still keeps of an earlier start."""
        for change in self._book.everything(cameras, models):
            self._wire().retain(change.leaf, change.payload, 1)

    def _keep(self) -> None:
        self._memo.put(ENTRY, self._book.to_json())

    def _tell(self, changes: Iterable[Change]) -> None:
        told = list(changes)
        if told:
            self._keep()  # before the events: after a crash between the two it clears
        for change in told:
            self._wire().retain(change.leaf, change.payload, 1)
            if change.event is not None:
                self._event(change.event)
                _log(change.event)


def _read_book(text: str) -> AlarmBook:
    """Read the kept book; one that cannot be read is a new one: what stands is raised again within seconds."""
    try:
        return AlarmBook.from_json(text)
    except ValueError as fault:
        log.warning("%s; the alarms begin anew", fault)
        return AlarmBook()


def _log(event: Event) -> None:
    what = f"{event.detail['code']} {event.source}"
    if event.name is EventName.ALARM_RAISED:
        log.warning("alarm %s: %s", what, event.detail["text"])
    else:
        log.info("alarm %s is over", what)
