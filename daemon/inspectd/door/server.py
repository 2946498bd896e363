"""Serves the local door: `GET /status`, `POST /call/{command}`. One request a connection; who hangs holds up nobody."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inspectd.door import listener
from inspectd.errors import OutsideError, UsageError
from inspectd.publish.desk import Called
from inspectd.publish.requests import REQUEST_LIMIT_BYTES

if TYPE_CHECKING:
    from aiohttp import web

CLIENTS = 32
"""At once; one more is told 503."""
REQUEST_LIMIT_S = 5.0
"""For a client to send its request, and again to take the answer."""
CALL_S = 30.0
CALL_MAX_S = 600.0
SHUTDOWN_S = 0.5

Status = Callable[[], Mapping[str, Any]]
Call = Callable[[str, bytes, float], Awaitable[Called]]
"""(command, body, limit in s): as `Desk.call`."""
_Handler = Callable[["web.Request"], Awaitable["web.StreamResponse"]]

log = logging.getLogger(__name__)


async def serve(path: Path, status: Status, call: Call) -> None:
    """Serve until cancelled. Whatever stands in the way is logged, and the daemon goes on without the door."""
    try:
        # 0.3 s of CPU: in a thread, and only when the daemon's children are on their way
        await asyncio.to_thread(importlib.import_module, "aiohttp.web")
        await _serve(path, status, call)
    except OutsideError as fault:
        log.error("local door: %s; inspectd status and inspectd call do not work", fault)
    except Exception:  # top of a task: nobody stops a line because it cannot be asked how it is
        log.exception("local door: ended; inspectd status and inspectd call do not work")


async def _serve(path: Path, status: Status, call: Call) -> None:
    door = listener.listen(path)
    inode = listener.identity(path)
    try:
        async with _runner(_Door(status, call)) as make_protocol:
            server = await asyncio.get_running_loop().create_unix_server(make_protocol, sock=door)
            log.info("local door: %s", path)
            try:
                await asyncio.Event().wait()
            finally:
                server.close()
    finally:
        if inode is not None:
            listener.remove(path, door, inode)


@asynccontextmanager
async def _runner(door: _Door) -> AsyncIterator[Callable[[], asyncio.Protocol]]:
    from aiohttp import web

    @web.middleware
    async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
        return await door.guarded(request, handler)

    application = web.Application(client_max_size=REQUEST_LIMIT_BYTES, middlewares=[guard])
    application.add_routes([web.get("/status", door.status), web.post("/call/{command}", door.call)])
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()

    def connected() -> asyncio.Protocol:
        server = runner.server
        if server is None or len(server.connections) >= CLIENTS:
            return _Full()
        client = server()
        door.expect(client)
        return client

    try:
        yield connected
    finally:
        await runner.cleanup()


class _Full(asyncio.Protocol):
    """Turns one client away."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.WriteTransport):
            transport.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        transport.close()


class _Door:
    """What is done for a request."""

    def __init__(self, status: Status, call: Call) -> None:
        from aiohttp import web

        self._web = web
        self._status, self._call = status, call
        self._waiting: dict[asyncio.Protocol, asyncio.TimerHandle] = {}
        """Clients whose request has not come yet."""

    def expect(self, client: web.RequestHandler) -> None:
        """A client has connected: its request must come soon."""
        self._waiting[client] = asyncio.get_running_loop().call_later(REQUEST_LIMIT_S, self._give_up, client)

    async def status(self, _request: web.Request) -> web.Response:
        """Answer with the status document."""
        return self._json(json.dumps(self._status(), separators=(",", ":")).encode(), 200)

    async def call(self, request: web.Request) -> web.Response:
        """Do a command: 200 with its last answer, 202 with `accepted` where the end did not come in time, or 504."""
        limit_s = _limit_s(request.query.get("timeout"))
        if limit_s is None:
            return self._fault(400, f"timeout must be a number of seconds, above 0, at most {CALL_MAX_S:.0f}")
        try:
            async with asyncio.timeout(REQUEST_LIMIT_S):
                body = await request.read()
        except TimeoutError:
            return self._fault(408, f"the body did not come within {REQUEST_LIMIT_S:.0f} s")
        try:
            called = await self._call(request.match_info["command"], body, limit_s)
        except UsageError as fault:
            return self._fault(400, str(fault))
        if called.payload is None:
            return self._fault(504, f"no answer within {limit_s:g} s")
        return self._json(called.payload, 200 if called.is_last else 202)

    async def guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Answer in JSON whatever happens, and end the connection with it."""
        client = request.protocol
        if (timer := self._waiting.pop(client, None)) is not None:
            timer.cancel()
        try:
            response = await handler(request)
        except self._web.HTTPException as fault:
            response = self._fault(fault.status, fault.reason)
        except Exception:  # top of a request: the fault is this one's
            log.exception("local door: %s %s failed", request.method, request.path)
            response = self._fault(500, "a fault of inspectd's own; its log has it")
        response.force_close()
        asyncio.get_running_loop().call_later(REQUEST_LIMIT_S, _throw_out, client)
        return response

    def _give_up(self, client: web.RequestHandler) -> None:
        self._waiting.pop(client, None)
        _throw_out(client)

    def _fault(self, status: int, text: str) -> web.Response:
        return self._json(json.dumps({"error": text}).encode(), status)

    def _json(self, body: bytes, status: int) -> web.Response:
        return self._web.Response(body=body, status=status, content_type="application/json")


def _throw_out(client: web.RequestHandler) -> None:
    """End a connection at once, with whatever the client has not taken yet."""
    if client.transport is not None:
        client.transport.abort()


def _limit_s(text: str | None) -> float | None:
    """Read how long the client waits; None: that is no time."""
    if text is None:
        return CALL_S
    try:
        limit_s = float(text)
    except ValueError:
        return None
    return limit_s if 0 < limit_s <= CALL_MAX_S else None
