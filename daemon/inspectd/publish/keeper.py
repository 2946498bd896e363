"""Keeps a connection to the broker: connects, serves it until it ends, pauses, and connects again, for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from inspectd.errors import OutsideError
from inspectd.publish.broker import BrokerSettings, Ending, Listener, Welcome
from inspectd.publish.mqtt import Connection
from inspectd.publish.standing import Standing

if TYPE_CHECKING:
    from inspectd.publish.validity import Validity


class Owner(Listener, Protocol):
    """Who is told what the broker says, and of each connection."""

    def began(self, welcome: Welcome) -> None:
        """There is a connection."""

    def ended(self, ending: Ending) -> None:
        """There is none any more; what it did not acknowledge is to be given to the next."""


class Keeper:
    """The connection of the moment, if there is one, and everything that outlives it."""

    def __init__(
        self,
        settings: BrokerSettings,
        owner: Owner,
        on_change: Callable[[], None],
        clock: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        """`on_change` hears that how we stand with the broker has another value."""
        self.standing = Standing(settings, draw)
        self.connection: Connection | None = None
        self._settings, self._owner, self._on_change, self._clock = settings, owner, on_change, clock
        self._validity: Validity | None = None
        if settings.tls is not None:
            from inspectd.publish.validity import Validity  # 8 MB, for those who use it

            self._validity = Validity(settings.tls)
        self._server_certificate: bytes | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def certificate_days_left(self, wall_s: float) -> float | None:
        """Give the days until a certificate of the connection ends; None: not known."""
        return None if self._validity is None else self._validity.days_left(self._server_certificate, wall_s)

    async def run(self) -> None:
        """Keep a connection until `close`."""
        async with asyncio.TaskGroup() as group:
            while not self._closing.is_set():
                self.standing.trying(self._clock())
                self._attempt = group.create_task(self._one_connection(), name="mqtt connection")
                await asyncio.wait((self._attempt,))
                await self._pause(self.standing.pause_s(self._clock()))

    async def close(self, deadline_s: float) -> None:
        """Say goodbye; `run` then returns."""
        self._closing.set()
        if self.connection is not None:
            await self.connection.disconnect(max(0.1, deadline_s - self._clock()))
        elif self._attempt is not None:
            self._attempt.cancel()

    async def _one_connection(self) -> None:
        try:
            connection = Connection(self._settings, self.standing.version, self._owner, self._clock)
            welcome = await connection.open()
        except OutsideError as fault:
            self.standing.not_connected(fault, self._clock())
            self._on_change()
            return
        ending = Ending("the publisher ended")
        try:
            self.connection, self._server_certificate = connection, connection.server_certificate
            self.standing.connected(self._clock())
            self._owner.began(welcome)
            ending = await connection.ended()
        finally:
            self.connection = None
            connection.drop(ending.reason)
            self._owner.ended(ending)
        if not self._closing.is_set():
            self.standing.ended(ending, self._clock())
            self._on_change()

    async def _pause(self, delay_s: float) -> None:
        try:
            async with asyncio.timeout(delay_s):
                await self._closing.wait()
        except TimeoutError:
            return
