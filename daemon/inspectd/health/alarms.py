"""The alarms that stand, and what to publish when that changes. Pure: conditions and times come in, changes go out.

A condition that is observed raises its alarm once it has held, and clears it once it has been gone, for the times of
its kind: one that comes and goes every second is one alarm. What merely happens (`pulse`) leaves an alarm of a latched
kind behind that stays, inactive, until it is confirmed. Every raising has exactly one clearing, over restarts too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from inspectd.health.alarmkinds import AlarmCode, kind_of, possible
from inspectd.publish.events import Event, EventName
from inspectd.publish.wire import encode, time_text

TEXT_MAX = 300
"""Characters: the journal keeps the alarms in a row that is written with every commit."""
TEXT_PERIOD_S = 10.0
"""A text with a number in it would change every second."""
COUNTS_MAX = 256
"""Topics whose raisings are counted; beyond it the count of the longest unheard one begins anew."""

Key = tuple[str, str]
"""Code and source."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is wrong now, or has just happened."""

    code: AlarmCode
    source: str
    """A camera, a model, `mqtt`, `storage`, `clock` or `station`."""
    text: str
    """What is wrong now, in a short sentence with its numbers."""
    blocks: bool = False
    """The station is not ready because of it."""

    @property
    def key(self) -> Key:
        """What makes it the same alarm."""
        return self.code.value, self.source


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm, as its topic says it."""

    code: str
    """An AlarmCode, or one that only a newer release knows."""
    source: str
    text: str
    active: bool
    blocks: bool
    since_wall_s: float
    count: int
    """How often it was raised, or happened again, so far."""
    acknowledged: bool = False
    """Somebody has seen it."""
    confirmed: bool = False
    """Somebody says that its cause is dealt with."""

    @property
    def key(self) -> Key:
        """Code and source."""
        return self.code, self.source

    @property
    def severity(self) -> int:
        """How grave it is, 1…1000."""
        return kind_of(self.code).severity


@dataclass(frozen=True, slots=True)
class Change:
    """What to publish: retained on `leaf`, QoS 1, and the event, if one goes with it."""

    leaf: str
    payload: bytes
    """Empty: the alarm is gone."""
    event: Event | None = None


class AlarmBook:
    """All alarms of the station. `now` is the monotonic clock, `wall_s` only goes into messages.

    Call `observe` once a second with everything that is wrong; each call gives the changes to publish, in order.
    """

    def __init__(self) -> None:
        self._told: dict[Key, Alarm] = {}
        """As their topics say."""
        self._again: dict[Key, Alarm] = {}
        """Happened again since; told with the next `observe`, so that a thousand a second are one message."""
        self._counts: dict[Key, int] = {}
        """Of every topic that was ever raised."""
        self._held_since_s: dict[Key, float] = {}
        self._gone_since_s: dict[Key, float] = {}
        self._text_s: dict[Key, float] = {}

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """What stands, as it was told last."""
        return tuple(self._told.values())

    def observe(self, conditions: Iterable[Condition], now: float, wall_s: float) -> list[Change]:
        """Take everything that is wrong now; whatever is not among it is over."""
        present: dict[Key, Condition] = {}
        for condition in conditions:
            present.setdefault(condition.key, condition)
        changes = [self._tell(alarm) for alarm in list(self._again.values())]
        self._held_since_s = {key: self._held_since_s.get(key, now) for key in present}
        for key, condition in present.items():
            changes += self._see(self._told.get(key), condition, now, wall_s)
        for alarm in [alarm for alarm in self._told.values() if alarm.active and alarm.key not in present]:
            changes += self._miss(alarm, now)
        return changes

    def pulse(self, condition: Condition, wall_s: float) -> list[Change]:
        """Take something that has happened and is over. Raises ValueError for a kind that nobody could confirm."""
        if not kind_of(condition.code).latched:
            raise ValueError(f"{condition.code} is a condition, not something that happens: observe it")
        standing = self._current(condition.key)
        if standing is None:
            alarm = Alarm(*condition.key, _short(condition.text), False, False, wall_s, self._count(condition.key))
            return [self._tell(alarm, EventName.ALARM_RAISED)]
        self._again[condition.key] = replace(
            standing,
            text=_short(condition.text),
            count=self._count(condition.key),
            acknowledged=False,
            confirmed=False,
        )
        return []

    def matching(self, code: str | None = None, source: str | None = None) -> list[Alarm]:
        """Give what stands of this code and source; None is any."""
        found = [self._again.get(key, alarm) for key, alarm in self._told.items()]
        return [alarm for alarm in found if code in (None, alarm.code) and source in (None, alarm.source)]

    def acknowledge(self, code: str | None = None, source: str | None = None) -> list[Change]:
        """Somebody has seen these; None is any."""
        seen = [alarm for alarm in self.matching(code, source) if not alarm.acknowledged]
        return [self._tell(replace(alarm, acknowledged=True)) for alarm in seen]

    def confirm_all(self) -> list[Change]:
        """Somebody has dealt with everything: what is not active goes, the rest is marked and goes with its cause."""
        changes: list[Change] = []
        for alarm in self.matching():
            if not alarm.active:
                changes.append(self._clear(alarm))
            elif not (alarm.acknowledged and alarm.confirmed):
                changes.append(self._tell(replace(alarm, acknowledged=True, confirmed=True)))
        return changes

    def everything(self, cameras: Iterable[str], models: Iterable[str]) -> list[Change]:
        """Give what a broker has to hear at our start, whatever it still keeps of an earlier one.

        All that stands, and an empty message for every other topic that this station, as it is now or was, can have.
        """
        changes = [self._tell(alarm) for alarm in self.matching()]
        others = sorted((possible(cameras, models) | self._counts.keys()) - self._told.keys())
        return changes + [Change(_leaf(key), b"") for key in others]

    def to_json(self) -> str:
        """Write the book as the journal keeps it, in the commit that has the events of its changes."""
        alarms = [[getattr(alarm, name) for name in _KEPT] for alarm in self.matching()]
        counts = [[*key, count] for key, count in self._counts.items()]
        return json.dumps({"alarms": alarms, "counts": counts}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> AlarmBook:
        """Read it back; an empty text is an empty book. Raises ValueError for anything that is no book.

        What was active stays raised until it was observed to be gone. What a newer release added is passed over.
        """
        book = cls()
        if not text:
            return book
        try:
            document = json.loads(text)
            for values in document["alarms"]:
                alarm = _alarm(dict(zip(_KEPT, values[: len(_KEPT)], strict=True)))
                book._told[alarm.key] = alarm
            book._counts = {(str(code), str(source)): int(count) for code, source, count in document["counts"]}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"these are not alarms: {text[:80]!r}") from error
        return book

    def _see(self, alarm: Alarm | None, condition: Condition, now: float, wall_s: float) -> list[Change]:
        """A condition that holds now, and its alarm, if there is one."""
        key, text = condition.key, _short(condition.text)
        self._gone_since_s.pop(key, None)
        if alarm is None or not alarm.active:
            if now - self._held_since_s[key] < kind_of(condition.code).raise_after_s:
                return []
            raised = Alarm(*key, text, True, condition.blocks, wall_s, self._count(key))
            self._text_s[key] = now
            return [self._tell(raised, EventName.ALARM_RAISED if alarm is None else None)]
        is_new_text = text != alarm.text and now - self._text_s.get(key, -math.inf) >= TEXT_PERIOD_S
        if not is_new_text and condition.blocks == alarm.blocks:
            return []
        self._text_s[key] = now
        return [self._tell(replace(alarm, text=text, blocks=condition.blocks))]

    def _miss(self, alarm: Alarm, now: float) -> list[Change]:
        """An active alarm whose condition does not hold now."""
        kind = kind_of(alarm.code)
        if now - self._gone_since_s.setdefault(alarm.key, now) < kind.clear_after_s:
            return []
        del self._gone_since_s[alarm.key]
        if kind.latched and not alarm.confirmed:
            return [self._tell(replace(alarm, active=False, blocks=False))]
        return [self._clear(alarm)]

    def _current(self, key: Key) -> Alarm | None:
        return self._again.get(key) or self._told.get(key)

    def _count(self, key: Key) -> int:
        """One more raising; the most recently raised topics stand last."""
        count = self._counts.pop(key, 0) + 1
        self._counts[key] = count
        while len(self._counts) > COUNTS_MAX:
            del self._counts[next(iter(self._counts))]
        return count

    def _tell(self, alarm: Alarm, name: EventName | None = None) -> Change:
        self._again.pop(alarm.key, None)
        self._told[alarm.key] = alarm
        return Change(_leaf(alarm.key), word(alarm), None if name is None else _event(name, alarm))

    def _clear(self, alarm: Alarm) -> Change:
        self._again.pop(alarm.key, None)
        self._gone_since_s.pop(alarm.key, None)
        self._text_s.pop(alarm.key, None)
        del self._told[alarm.key]
        return Change(_leaf(alarm.key), b"", _event(EventName.ALARM_CLEARED, alarm))


def word(alarm: Alarm) -> bytes:
    """Word an alarm's message."""
    return encode(
        {
            "schema": "inspectd.alarm/1.0",
            "code": alarm.code,
            "source": alarm.source,
            "severity": alarm.severity,
            "active": alarm.active,
            "acknowledged": alarm.acknowledged,
            "confirmed": alarm.confirmed,
            "since": time_text(alarm.since_wall_s),
            "count": alarm.count,
            "text": alarm.text,
            "cure": kind_of(alarm.code).cure,
            "blocks": "ready" if alarm.blocks else "none",
        }
    )


def _event(name: EventName, alarm: Alarm) -> Event:
    since = time_text(alarm.since_wall_s)
    detail = {"code": alarm.code, "text": alarm.text, "since": since, "count": alarm.count}
    return Event(name, alarm.source, alarm.severity, detail)


_KEPT = tuple(Alarm.__slots__)


def _alarm(values: dict[str, Any]) -> Alarm:
    """Give an alarm as the journal kept it."""
    return Alarm(
        code=str(values["code"]),
        source=str(values["source"]),
        text=str(values["text"]),
        active=bool(values["active"]),
        blocks=bool(values["blocks"]),
        since_wall_s=float(values["since_wall_s"]),
        count=int(values["count"]),
        acknowledged=bool(values["acknowledged"]),
        confirmed=bool(values["confirmed"]),
    )


def _leaf(key: Key) -> str:
    return f"alarm/{key[0]}/{key[1]}"


def _short(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
