"""What the commands do, each through the smallest port that it needs; `handlers` makes the table."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from inspectd.errors import InspectdError
from inspectd.publish.commands import Handler, Request, Respond
from inspectd.publish.reports import ErrorNumber
from inspectd.publish.requests import is_text
from inspectd.publish.wire import PAYLOAD_MAX_BYTES

FIND_LIMIT_S = 10.0
RESET_LIMIT_S = 30.0
ANSWER_ROOM_BYTES = 2048
"""What an answer needs around the result in it: two ids of 128 characters and a few fields."""
JOB_ID_LIMIT = 128
PART_ID_LIMIT_BYTES = 64
WORD_LIMIT = 64
_KEYS = ("resultId", "partId", "jobId")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


class Found(Protocol):
    """A stored result."""

    @property
    def payload(self) -> bytes:
        """The message, as it was published."""


class Find(Protocol):
    """Looks a result up, by exactly one of the two."""

    def __call__(self, *, result_id: bytes | None = None, job_id: str | None = None) -> Awaitable[Found | None]:
        """Give None if there is none (any more); may raise StorageError."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What the commands reach."""

    state: Callable[[], Mapping[str, Any]]
    """The document of the topic `state`, of this moment."""
    find: Find
    reset: Callable[[], Awaitable[object]]
    """Begin the counters anew; done when that is on the disk. May raise StorageError."""
    confirm_all: Callable[[], int]
    """Confirm every alarm; how many there were."""
    acknowledge: Callable[[str | None, str | None], int]
    """Acknowledge the alarms of a (code, source), None: of any; how many there were."""
    payload_limit_bytes: Callable[[], int] = lambda: PAYLOAD_MAX_BYTES
    """What an answer may have: the contract's cap, or less if the broker takes less."""


def handlers(ports: Ports) -> dict[str, Handler]:
    """Make the table of commands, without `replay`."""
    return {
        "get-state": GetState(ports.state),
        "get-result": GetResult(ports.find, ports.payload_limit_bytes),
        "reset-counters": ResetCounters(ports.reset),
        "confirm-all": ConfirmAll(ports.confirm_all),
        "acknowledge": Acknowledge(ports.acknowledge),
    }


@dataclass(frozen=True, slots=True)
class GetState:
    """Answers with the document of the topic `state`."""

    state: Callable[[], Mapping[str, Any]]

    async def __call__(self, request: Request, respond: Respond) -> None:
        """Do it."""
        respond(request.completed(self.state()))


@dataclass(frozen=True, slots=True)
class GetResult:
    """Answers with one stored result; a large one is named, for `replay` to bring."""

    find: Find
    payload_limit_bytes: Callable[[], int]

    async def __call__(self, request: Request, respond: Respond) -> None:
        """Do it."""
        key, value = _wanted(request.arguments)
        if key is None:
            respond(request.rejected(ErrorNumber.BAD_ARGUMENT, value))
            return
        try:
            async with asyncio.timeout(FIND_LIMIT_S):
                found = await self._look_up(key, value)
        except (InspectdError, TimeoutError) as fault:
            text = str(fault) or f"the journal gave no answer within {FIND_LIMIT_S:.0f} s"
            respond(request.failed(ErrorNumber.INTERNAL, text))
            return
        if found is None:
            text = f"the journal has no result with {key} {value}; it may be too old"
            respond(request.rejected(ErrorNumber.NOT_FOUND, text))
            return
        result = json.loads(found.payload)
        if len(found.payload) + ANSWER_ROOM_BYTES <= self.payload_limit_bytes():
            respond(request.completed({"result": result}))
        else:
            seq = result["seq"]
            respond(request.completed({"replay": {"streamId": result["streamId"], "fromSeq": seq, "toSeq": seq}}))

    async def _look_up(self, key: str, value: str) -> Found | None:
        if key == "resultId":
            return await self.find(result_id=uuid.UUID(value).bytes)
        if key == "jobId":
            return await self.find(job_id=value)
        return None  # no part is announced to this station: every result's partId is null


@dataclass(frozen=True, slots=True)
class ResetCounters:
    """Begins the counters anew."""

    reset: Callable[[], Awaitable[object]]

    async def __call__(self, request: Request, respond: Respond) -> None:
        """Do it."""
        try:
            async with asyncio.timeout(RESET_LIMIT_S):
                await self.reset()
        except (InspectdError, TimeoutError) as fault:
            text = str(fault) or f"the disk did not take it within {RESET_LIMIT_S:.0f} s"
            respond(request.failed(ErrorNumber.INTERNAL, text))
        else:
            respond(request.completed())


@dataclass(frozen=True, slots=True)
class ConfirmAll:
    """Confirms every alarm: what is over goes, what is active stays and is known."""

    confirm_all: Callable[[], int]

    async def __call__(self, request: Request, respond: Respond) -> None:
        """Do it."""
        respond(request.completed({"alarms": self.confirm_all()}))


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Says that somebody has seen an alarm: those of a code, of a source, of both, or all."""

    acknowledge: Callable[[str | None, str | None], int]

    async def __call__(self, request: Request, respond: Respond) -> None:
        """Do it."""
        code, source = request.arguments.get("code"), request.arguments.get("source")
        for name, value in (("code", code), ("source", source)):
            if value is not None and not is_text(value, WORD_LIMIT):
                text = f"{name} must be a text of 1 to {WORD_LIMIT} characters, or be left out"
                respond(request.rejected(ErrorNumber.BAD_ARGUMENT, text))
                return
        count = self.acknowledge(code, source)
        if not count and (code is not None or source is not None):
            named = " of ".join(word for word in (code, source) if word is not None)
            respond(request.rejected(ErrorNumber.NOT_FOUND, f"there is no alarm {named}"))
        else:
            respond(request.completed({"alarms": count}))


def _wanted(arguments: Mapping[str, Any]) -> tuple[str, str] | tuple[None, str]:
    """Read what is looked for: its key and value, or None and what is wrong."""
    given = [key for key in _KEYS if key in arguments]
    if len(given) != 1:
        return None, f"exactly one of {', '.join(_KEYS)} is wanted, not {len(given)}"
    key, value = given[0], arguments[given[0]]
    if key == "resultId" and not (isinstance(value, str) and _UUID.fullmatch(value)):
        return None, "resultId must be a UUID"
    if key == "partId" and not (is_text(value, PART_ID_LIMIT_BYTES) and len(value.encode()) <= PART_ID_LIMIT_BYTES):
        return None, f"partId must be a text of 1 to {PART_ID_LIMIT_BYTES} bytes without control characters"
    if key == "jobId" and not is_text(value, JOB_ID_LIMIT):
        return None, f"jobId must be a text of 1 to {JOB_ID_LIMIT} characters without control characters"
    return key, value
