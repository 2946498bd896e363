"""Embedded MQTT broker of the demo, in a thread with an event loop of its own. MQTT 3.1.1 only; nothing is kept.

amqtt 0.12 does not answer an MQTT 5 CONNECT at all, so every client of it must be told to speak 3.1.1.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from amqtt.broker import Broker

from inspectd.errors import OutsideError

HOST = "127.0.0.1"
_START_LIMIT_S = 10.0
_STOP_LIMIT_S = 5.0


class EmbeddedBroker:
    """Started by `with`; `port` is free of choice, on loopback only."""

    def __init__(self) -> None:
        self.port = _free_port()
        self._up: Future[asyncio.AbstractEventLoop] = Future()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="demo-broker", daemon=True)

    def __enter__(self) -> Self:
        """Return when it listens. Raises OutsideError."""
        # It logs every packet, and a warning for every client that goes away.
        for name in ("amqtt", "transitions"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._thread.start()
        try:
            self._up.result(_START_LIMIT_S)
        except TimeoutError as error:
            raise OutsideError(f"embedded broker: not up within {_START_LIMIT_S:.0f} s, try again") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close every connection and wait for the thread, 2 × 5 s at most."""
        self._up.result(0).call_soon_threadsafe(self._end.set)
        self._thread.join(2 * _STOP_LIMIT_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            # After the start it has nobody to tell: the clients see their connections go.
            if not self._up.done():
                refusal = OutsideError(f"embedded broker: does not listen on {HOST}:{self.port}: {error}")
                refusal.__cause__ = error
                self._up.set_exception(refusal)

    async def _serve(self) -> None:
        broker = Broker(
            {
                "listeners": {"default": {"type": "tcp", "bind": f"{HOST}:{self.port}"}},
                "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
            }
        )
        await broker.start()
        self._up.set_result(asyncio.get_running_loop())
        await self._end.wait()
        async with asyncio.timeout(_STOP_LIMIT_S):
            await broker.shutdown()


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])
