"""What `GET /status` answers. Parts that have a topic are that topic's document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class Outbox(TypedDict):
    """What is committed, and what of it is not delivered."""

    streamId: str
    lastSeq: int
    unsent: int
    unsentEvents: int


class Subscriber(TypedDict):
    """How far a subscriber says that it has stored the results."""

    upToSeq: int
    behind: int


class ConfigurationFacts(TypedDict):
    """Which configuration runs."""

    path: str
    hash: str


class StatusDocument(TypedDict):
    """Everything that can be asked of a running daemon at once."""

    schema: str
    """`inspectd.localstatus/1.0`"""
    stationId: str
    base: str
    """Topic that all others lie under."""
    version: str
    bootId: str
    pid: int
    uptimeS: float
    time: str
    configuration: ConfigurationFacts
    state: Mapping[str, Any]
    health: Mapping[str, Any] | None
    """None: none was worded yet."""
    counters: Mapping[str, Any]
    alarms: Sequence[Mapping[str, Any]]
    """Each alarm that stands, as its topic has it."""
    outbox: Outbox
    subscribers: Mapping[str, Subscriber]
    children: Mapping[str, int]
    """Process ids by name, such as `camera top`."""


SCHEMA = "inspectd.localstatus/1.0"
