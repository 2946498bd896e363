"""What counts as wrong, and when: the table from the parts' state to alarms; a planned stop is none."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from inspectd.conditions import conditions
from inspectd.health.alarms import Condition
from inspectd.publish.memo import Memo
from inspectd.publish.reporter import Phase
from inspectd.publish.skips import Skips
from inspectd.station import Identity, Station


def parts(*, trouble: str | None = None, waiting_s: float | None = None, **broker: Any) -> Any:
    """A station without cameras, whose journal and broker are as they are told to be."""
    days_left = broker.pop("days_left", None)
    publisher = SimpleNamespace(
        **{"refusal": "", "refused": False, "denied": (), "deaf": (), **broker},
        certificate_days_left=lambda _: days_left,
    )
    return SimpleNamespace(
        lines={},
        lanes={},
        required=frozenset(),
        survivors={},
        writer=SimpleNamespace(pending_since=lambda _: waiting_s),
        announcer=SimpleNamespace(trouble=trouble),
        publisher=lambda: publisher,
        is_clock_right=lambda: True,
    )


def found(station: Any, *, is_clock_right: bool = True) -> list[tuple[str, str, bool]]:
    seen = conditions(station, 0.0, 0.0, is_clock_right=is_clock_right)
    return [(condition.code.value, condition.source, condition.blocks) for condition in seen]


@pytest.mark.parametrize(
    ("station", "expected"),
    [
        (parts(), []),
        (parts(trouble="no space"), [("StorageFull", "storage", True)]),
        (parts(waiting_s=1.9), []),
        (parts(waiting_s=2.1), [("StorageFull", "storage", True)]),
        (parts(refusal="wrong password"), [("BrokerRefused", "mqtt", False)]),
        (parts(refused=True), [("BrokerRefused", "mqtt", False)]),
        (parts(denied=("a/verdict",)), [("BrokerRefused", "mqtt", False)]),
        (parts(deaf=("a/cmd/+",)), [("BrokerRefused", "mqtt", False)]),
        (parts(days_left=30.0), []),
        (parts(days_left=29.9), [("CertificateExpiring", "mqtt", False)]),
        (parts(days_left=-1.0), [("CertificateExpiring", "mqtt", False)]),
    ],
)
def test_each_state_of_journal_and_broker_has_its_alarm(station: Any, expected: list[tuple[str, str, bool]]) -> None:
    assert found(station) == expected


def test_a_clock_that_is_not_synchronised_is_told_and_stops_nothing() -> None:
    assert found(parts(), is_clock_right=False) == [("ClockUnsynchronised", "clock", False)]


def test_everything_that_the_broker_refuses_is_in_one_text() -> None:
    """One refusal hid the next."""
    [condition] = conditions(parts(denied=("a/verdict",), deaf=("a/ack",)), 0.0, 0.0, is_clock_right=True)
    assert "a/verdict" in condition.text
    assert "a/ack" in condition.text


@pytest.mark.parametrize(("phase", "looks"), [(Phase.STARTING, 1), (Phase.SERVING, 1), (Phase.STOPPING, 0)])
def test_a_planned_stop_raises_no_alarm(phase: Phase, looks: int) -> None:
    """The cameras were stopped first, and CameraLost stood on the broker for as long as the station was off."""
    observed: list[list[Condition]] = []

    def observe(seen: Iterable[Condition]) -> None:
        observed.append(list(seen))

    other: Any = SimpleNamespace(observe=observe, phase=phase)
    identity = Identity("aoi-01", "a/b", "boot", "UTC", Path("inspectd.yaml"), 0.0)
    memo = Memo("", lambda _: None)
    station = Station(
        identity, parts(), other, other, other, other, Skips(), memo, lambda: math.inf, lambda: 1_796_000_000.0
    )
    station.each_second(100.0)
    assert len(observed) == looks
