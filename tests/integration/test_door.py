"""The local door: a real desk, the server in its loop, and the command line as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from inspectd.door import listener, server
from inspectd.door.client import Door, NotRunning
from inspectd.door.place import PATH_MAX_BYTES
from inspectd.errors import OutsideError, UsageError
from inspectd.publish.commands import Commands, Handler, Request, Respond
from inspectd.publish.desk import Desk
from inspectd.publish.handlers import GetState
from inspectd.publish.reports import ErrorNumber, Vision, response
from inspectd.publish.requests import REQUEST_LIMIT_BYTES

LIMIT_S = 30.0
DAEMON = Path(__file__).resolve().parents[2] / "daemon"
STATE: Mapping[str, Any] = {"vision": "Operational", "ready": True, "degraded": False, "jobsInFlight": 0}


async def never(request: Request, respond: Respond) -> None:
    """Begin, and come to no end."""
    respond(request.accepted())
    await asyncio.Event().wait()


async def broken(request: Request, respond: Respond) -> None:
    """Refuse."""
    respond(request.rejected(ErrorNumber.NOT_FOUND, "there is none"))


HANDLERS: dict[str, Handler] = {"get-state": GetState(lambda: STATE), "replay": never, "get-result": broken}


def a_desk() -> Desk:
    def encode(answer: Any) -> bytes:
        return response(answer, Vision.OPERATIONAL, 1_796_000_000.0)

    return Desk(Commands("base", HANDLERS), lambda _: None, encode, asyncio.get_running_loop().time)


@asynccontextmanager
async def opened(path: Path, status: Callable[[], Mapping[str, Any]] | None = None) -> AsyncIterator[Path]:
    """Have a door and its desk for one test."""
    desk = a_desk()

    def document() -> Mapping[str, Any]:
        return {"stationId": "aoi-01", "state": STATE, "outbox": {"unsent": 0}}

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(desk.run()),
            group.create_task(server.serve(path, status or document, desk.call)),
        ]
        await until(lambda: is_open(path))
        yield path
        for task in tasks:
            task.cancel()


def is_open(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def hung_up(client: socket.socket) -> bool:
    """Whether the other end is closed, without reading anything."""
    poll = select.poll()
    poll.register(client, 0)
    return bool(poll.poll(0))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110  a socket says nothing when it is there
            await asyncio.sleep(0.01)


async def command_line(*arguments: str) -> tuple[int, str, str]:
    """Run `inspectd` as a user would; give exit code and both outputs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "inspectd", *arguments),
        env={**os.environ, "PYTHONPATH": str(DAEMON), "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(LIMIT_S):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def raw(path: Path, text: bytes) -> bytes:
    """Say something to the door; give all that it says."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(text)
    async with asyncio.timeout(LIMIT_S):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_the_command_line_asks_a_running_daemon(tmp_path: Path) -> None:
    async with opened(tmp_path / "s") as path:
        code, out, err = await command_line("status", "--socket", str(path))
        assert (code, err) == (0, "")
        assert "aoi-01   READY " in out
        assert "\x1b" not in out
        code, out, _ = await command_line("status", "--socket", str(path), "--json", "--wait", "healthy")
        assert (code, json.loads(out)["state"]) == (0, dict(STATE))
        code, out, _ = await command_line("call", "get-state", "--socket", str(path))
        assert (code, json.loads(out)["detail"]) == (0, dict(STATE))


async def test_the_command_line_tells_refusals_faults_of_use_and_late_ends_apart(tmp_path: Path) -> None:
    async with opened(tmp_path / "s") as path:
        code, out, _ = await command_line("call", "get-result", '{"jobId": "x"}', "--socket", str(path))
        assert (code, json.loads(out)["error"]) == (1, ErrorNumber.NOT_FOUND)
        code, out, _ = await command_line("call", "open-door", "--socket", str(path))
        assert (code, json.loads(out)["error"]) == (1, ErrorNumber.UNKNOWN_COMMAND)
        code, out, err = await command_line("call", "get-result", "{", "--socket", str(path))
        assert (code, out) == (2, "")
        assert "not JSON" in err
        code, out, err = await command_line("call", "replay", "--timeout", "0.2", "--socket", str(path))
        assert (code, json.loads(out)["status"]) == (69, "accepted")
        assert "it goes on" in err


async def test_without_a_daemon_the_command_line_asks_whether_it_runs(tmp_path: Path) -> None:
    for arguments in (["status"], ["call", "get-state"], ["status", "--wait", "healthy", "--timeout", "0"]):
        code, out, err = await command_line(*arguments, "--socket", str(tmp_path / "s"))
        assert (code, out) == (69, "")
        assert "is inspectd running? systemctl status inspectd" in err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a moment")
async def test_who_is_not_in_the_group_is_told_the_group() -> None:
    code = (
        "import os, sys; from pathlib import Path; from inspectd.door.client import Door\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: Door(Path(sys.argv[1])).status()\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # noqa: ASYNC240
        async with opened(folder / "s") as path:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", code, str(path)),
                env={**os.environ, "PYTHONPATH": str(DAEMON)},
                stdout=subprocess.PIPE,
            )
            out, _ = await process.communicate()
    assert out.decode().startswith("NotAllowed")
    assert "open to the group root: sudo usermod -aG root $USER" in out.decode()


@pytest.mark.parametrize("umask", [0o000, 0o027, 0o077])
def test_the_socket_is_for_its_group_whatever_the_umask_and_never_for_others(tmp_path: Path, umask: int) -> None:
    """Between making it and giving it its mode somebody could come in."""
    before, path = os.umask(umask), tmp_path / "s"
    modes: list[int] = []

    class Watched(socket.socket):
        def bind(self, address: Any) -> None:
            super().bind(address)
            modes.append(stat.S_IMODE(path.stat().st_mode))

    patch = pytest.MonkeyPatch()
    patch.setattr(socket, "socket", Watched)
    try:
        listener.listen(path).close()
    finally:
        patch.undo()
        os.umask(before)
    assert modes[0] & ~0o660 == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


async def test_a_dead_daemons_socket_is_replaced_and_a_living_ones_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s"
    listener.listen(path).close()  # as kill -9 leaves it
    async with opened(path):
        await server.serve(path, dict, a_desk().call)
        assert "another daemon answers there" in caplog.text
        assert await asyncio.to_thread(Door(path).status)
    assert not path.exists()


async def test_a_socket_that_somebody_else_has_put_there_meanwhile_is_left(tmp_path: Path) -> None:
    async with opened(tmp_path / "s") as path:
        path.unlink()
        other = listener.listen(path)
    assert is_open(path)
    other.close()


@pytest.mark.parametrize("name", ["x" * PATH_MAX_BYTES, "folder", "missing/s"])
async def test_a_socket_that_cannot_be_made_is_said_and_stops_nothing(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The daemon inspects without its door."""
    (tmp_path / "folder").mkdir()
    await server.serve(tmp_path / name, dict, a_desk().call)
    assert "inspectd status and inspectd call do not work" in caplog.text
    assert (tmp_path / "folder").is_dir()
    with pytest.raises(OutsideError):
        Door(tmp_path / name).status()


async def test_a_client_that_hangs_holds_up_nobody_and_is_thrown_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_LIMIT_S", 0.3)
    async with opened(tmp_path / "s") as path:
        silent = asyncio.ensure_future(raw(path, b""))
        half = asyncio.ensure_future(
            raw(path, b"POST /call/get-state HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        )
        assert await asyncio.to_thread(Door(path).status)
        assert await silent == b""
        assert b" 408 " in await half


async def test_a_client_that_does_not_take_its_answer_is_thrown_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_LIMIT_S", 0.3)
    large = {"x": "x" * 10_000_000}
    async with opened(tmp_path / "s", lambda: large) as path:
        with socket.socket(socket.AF_UNIX) as lazy:
            lazy.connect(str(path))
            lazy.sendall(b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n")
            await until(lambda: hung_up(lazy))
            lazy.settimeout(LIMIT_S)
            assert len(await asyncio.to_thread(read_all, lazy)) < 10_000_000


def read_all(connection: socket.socket) -> bytes:
    data = b""
    try:
        while chunk := connection.recv(65536):
            data += chunk
    except ConnectionResetError:
        pass
    return data


async def test_one_client_too_many_is_told_so(tmp_path: Path) -> None:
    async with opened(tmp_path / "s") as path:
        writers = [(await asyncio.open_unix_connection(str(path)))[1] for _ in range(server.CLIENTS)]
        with pytest.raises(NotRunning, match="too many others"):
            await asyncio.to_thread(Door(path).status)
        for writer in writers:
            writer.close()
            await writer.wait_closed()
        async with asyncio.timeout(LIMIT_S):
            while True:
                try:
                    await asyncio.to_thread(Door(path).status)
                    break
                except OutsideError:
                    continue


async def test_many_clients_are_served_at_once_beside_one_that_waits_long(tmp_path: Path) -> None:
    async with opened(tmp_path / "s") as path:
        door = Door(path)
        slow = asyncio.ensure_future(asyncio.to_thread(door.call, "replay", b"{}", 1.0))
        answers = await asyncio.gather(*(asyncio.to_thread(door.call, "get-state", b"", 5.0) for _ in range(8)))
        assert not slow.done()
        assert all(answer.is_last and answer.document["status"] == "completed" for answer in answers)
        assert not (await slow).is_last


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"GET /call/get-state HTTP/1.1\r\nHost: x\r\n\r\n", b" 405 "),
        (b"GET /etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", b" 404 "),
        (b"POST /call/get-state?timeout=nan HTTP/1.1\r\nHost: x\r\n\r\n", b" 400 "),
        (b"POST /call/get-state?timeout=0 HTTP/1.1\r\nHost: x\r\n\r\n", b" 400 "),
        (b"POST /call/get-state HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nnull", b" 400 "),
        (b"POST /call/%00 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", b" 400 "),
        (b"\xff\xfe\r\n\r\n", b" 400 "),
    ],
)
async def test_a_request_that_is_none_is_answered_and_ends_nothing(tmp_path: Path, text: bytes, code: bytes) -> None:
    async with opened(tmp_path / "s") as path:
        assert code in await raw(path, text)
        assert await asyncio.to_thread(Door(path).status)


async def test_a_body_above_the_bound_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path / "s") as path:
        with pytest.raises(UsageError):
            await asyncio.to_thread(Door(path).call, "get-state", b" " * (REQUEST_LIMIT_BYTES + 1), 5.0)


async def test_a_fault_of_our_own_is_answered_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def status() -> Mapping[str, Any]:
        raise RuntimeError("broken")

    async with opened(tmp_path / "s", status) as path:
        with pytest.raises(OutsideError, match="a fault of inspectd's own"):
            await asyncio.to_thread(Door(path).status)
        assert (await asyncio.to_thread(Door(path).call, "get-state", b"", 5.0)).is_last
    assert "RuntimeError: broken" in caplog.text


async def test_a_stop_while_somebody_waits_is_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = asyncio.Event()

    async def begin(request: Request, respond: Respond) -> None:
        begun.set()
        await never(request, respond)

    monkeypatch.setitem(HANDLERS, "replay", begin)
    async with opened(tmp_path / "s") as path:
        waiting = asyncio.ensure_future(asyncio.to_thread(Door(path).call, "replay", b"{}", 60.0))
        await asyncio.wait_for(begun.wait(), LIMIT_S)
        stopped_s = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - stopped_s < 3 * server.SHUTDOWN_S + 1.0
    with pytest.raises(NotRunning):
        await waiting


def test_a_daemon_that_hangs_is_told_from_one_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inspectd.door.client.ANSWER_S", 0.2)
    hanging = listener.listen(tmp_path / "s")
    with pytest.raises(NotRunning, match="inspectd hangs"):
        Door(tmp_path / "s").status()
    hanging.close()


def test_what_is_not_inspectd_is_told_so(tmp_path: Path) -> None:
    door = listener.listen(tmp_path / "s")
    door.setblocking(True)

    def answer() -> None:
        connection, _ = door.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")

    other = threading.Thread(target=answer)
    other.start()
    with pytest.raises(OutsideError, match="not inspectd"):
        Door(tmp_path / "s").status()
    other.join(LIMIT_S)
    door.close()
