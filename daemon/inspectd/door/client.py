"""Asks a running daemon through its local door. The standard library's HTTP: aiohttp would take longer to load."""

from __future__ import annotations

import grp
import http.client
import json
import socket
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspectd.door.place import fits
from inspectd.errors import OutsideError, UsageError

CONNECT_S = 5.0
ANSWER_S = 5.0
"""Beyond what the daemon itself may wait: after that it hangs."""


class NotRunning(OutsideError):
    """Nobody answers: wait for a daemon, or start one."""


class NotAllowed(OutsideError):
    """The socket is not ours to use: trying again does not help."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A command's newest answer."""

    document: dict[str, Any]
    is_last: bool
    """False: the end did not come in time."""


@dataclass(frozen=True, slots=True)
class Door:
    """The door of the daemon whose socket this is."""

    path: Path

    def status(self) -> dict[str, Any]:
        """Give the status document. Raises OutsideError."""
        code, document = self._ask("GET", "/status", None, ANSWER_S)
        if code != http.client.OK:
            raise OutsideError(f"{self.path}: {document.get('error', code)}")
        return document

    def call(self, command: str, body: bytes, limit_s: float) -> Answered:
        """Have a command done. Raises UsageError for one that is no request, and OutsideError without an answer."""
        target = f"/call/{urllib.parse.quote(command, safe='')}?timeout={limit_s:g}"
        code, document = self._ask("POST", target, body, limit_s + ANSWER_S)
        if code in {http.client.OK, http.client.ACCEPTED}:
            return Answered(document, code == http.client.OK)
        fault = str(document.get("error", code))
        if http.client.BAD_REQUEST <= code < http.client.INTERNAL_SERVER_ERROR:
            raise UsageError(f"{command}: {fault}")
        raise OutsideError(f"{command}: {fault}")

    def _ask(self, method: str, target: str, body: bytes | None, limit_s: float) -> tuple[int, dict[str, Any]]:
        connection = _Connection(self.path, limit_s)
        try:
            connection.request(method, target, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            document = json.loads(response.read() or b"{}")
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise NotRunning(f"{self.path}: nobody answers; is inspectd running? systemctl status inspectd") from error
        except PermissionError as error:
            raise NotAllowed(f"{self.path}: permission denied{_cure(self.path)}") from error
        except (TimeoutError, BlockingIOError) as error:
            raise NotRunning(f"{self.path}: no answer within {limit_s:.0f} s; inspectd hangs, see its log") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            text = f"{self.path}: no answer: inspectd is ending, or too many others are asking it ({error})"
            raise NotRunning(text) from error
        finally:
            connection.close()
        if response.status == http.client.SERVICE_UNAVAILABLE:
            raise NotRunning(f"{self.path}: too many others are asking inspectd; try again")
        if not isinstance(document, dict):
            raise OutsideError(f"{self.path}: this is not inspectd; it answers {str(document)[:80]}")
        return response.status, document


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, answer_s: float) -> None:
        super().__init__("inspectd")
        self._path, self._answer_s = path, answer_s

    def connect(self) -> None:
        if not fits(self._path):
            raise OutsideError(f"{self._path}: too long for a socket; the daemon has no door there, its log says so")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(CONNECT_S)
        self.sock.connect(str(self._path))
        self.sock.settimeout(self._answer_s)


def _cure(path: Path) -> str:
    """Say whose the socket is, where that can be seen."""
    for place in (path, path.parent):
        try:
            group_id = place.stat().st_gid
        except OSError:
            continue
        try:
            name = grp.getgrgid(group_id).gr_name
        except KeyError:
            name = str(group_id)
        return f"; it is open to the group {name}: sudo usermod -aG {name} $USER, and log in again; or use sudo"
    return "; use sudo"
