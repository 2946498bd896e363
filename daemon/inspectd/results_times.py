"""Times as a person gives them, and where hours, shifts and days of the plant begin. Pure; the clock is passed in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Literal
from zoneinfo import ZoneInfo

from inspectd.errors import UsageError

By = Literal["hour", "shift", "day"]
_AGE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(s|min|m|h|d|w)")
_UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}
_DAYS_AGO = {"today": 0, "yesterday": 1}
_HOURS = tuple(f"{hour:02}:00" for hour in range(24))


def zone_of(name: str) -> tzinfo:
    """Give a time zone. UTC needs no time zone files."""
    return UTC if name == "UTC" else ZoneInfo(name)


def moment(option: str, text: str, now_s: float, zone: tzinfo) -> float:
    """Read a time: ISO-8601 (local where it has no offset), an age such as `2h`, `today`, `yesterday`, `now`.

    Raises UsageError, which names the option.
    """
    word = text.strip().lower()
    if word == "now":
        return now_s
    if word in _DAYS_AGO:
        day = datetime.fromtimestamp(now_s, zone).date() - timedelta(days=_DAYS_AGO[word])
        return _instant(day, time(), zone)
    if age := _AGE.fullmatch(word):
        return now_s - float(age[1]) * _UNITS_S[age[2]]
    try:
        given = datetime.fromisoformat(text.strip())
        return (given if given.tzinfo else given.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(
            f"{option} {text}: is no time; give 2026-03-31, 2026-03-31T06:00, an age such as 30min, 2h or 7d, today,"
            " yesterday or now"
        ) from None


def begins(by: By, first_s: float, last_s: float, zone: tzinfo, shifts: Sequence[str]) -> list[float]:
    """Give where hours, shifts or days begin, in order: from the one that `first_s` is in to the end of `last_s`'s.

    An hour that comes twice when the clocks go back is two. A beginning that the clocks leave out is when they jump.
    """
    clock_times = {"hour": _HOURS, "day": ("00:00",), "shift": tuple(shifts)}[by]
    day = datetime.fromtimestamp(first_s, zone).date() - timedelta(days=2)
    last_day = datetime.fromtimestamp(last_s, zone).date() + timedelta(days=2)
    found: set[float] = set()
    while day <= last_day:
        for text in clock_times:
            clock_time = time.fromisoformat(text)
            found.add(_instant(day, clock_time, zone))
            second = datetime.combine(day, clock_time.replace(fold=1), zone)
            if by == "hour" and datetime.fromtimestamp(second.timestamp(), zone) == second:
                found.add(second.timestamp())
        day += timedelta(days=1)
    ordered = sorted(found)
    first = max(place for place, begin_s in enumerate(ordered) if begin_s <= first_s)
    end = min(place for place, begin_s in enumerate(ordered) if begin_s > last_s)
    return ordered[first : end + 1]


def local(wall_s: float, zone: tzinfo) -> datetime:
    """Give the plant's own time."""
    return datetime.fromtimestamp(wall_s, zone)


def _instant(day: date, clock_time: time, zone: tzinfo) -> float:
    return datetime.combine(day, clock_time, zone).timestamp()
