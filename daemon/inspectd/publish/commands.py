"""Commands: checks each request at the door, remembers what was answered, and holds the table of who does what.

Requests come from anyone who may write to the broker. Whatever is in them, `Commands.admit` gives a value and raises
nothing. Whom to answer is decided before what: a request that names no proper place for the answer gets none.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal, NoReturn

from inspectd.publish.effects import Incoming
from inspectd.publish.reports import ErrorNumber

REQUEST_LIMIT_BYTES = 64 * 1024
REMEMBERED_S = 600.0
REMEMBERED_REQUESTS = 1000
"""Beyond it the oldest is forgotten: a repeat of that one would be done again."""
NAME_LIMIT = 64
REQUEST_ID_LIMIT = 128
TOPIC_LIMIT = 256
_REQUESTER = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command came to. State and time are added where it is encoded."""

    request_id: str
    command: str
    status: Literal["accepted", "completed", "rejected", "failed"]
    error: ErrorNumber = ErrorNumber.OK
    error_text: str = ""
    job_id: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """One request that passed the door."""

    command: str
    request_id: str
    requester: str
    reply_topic: str
    correlation: bytes | None
    arguments: Mapping[str, Any]

    def accepted(self) -> Answer:
        """Answer: it will be done."""
        return Answer(self.request_id, self.command, "accepted")

    def completed(self, detail: Mapping[str, Any] | None = None) -> Answer:
        """Answer: it is done."""
        return Answer(self.request_id, self.command, "completed", detail=detail or {})

    def rejected(self, error: ErrorNumber, text: str) -> Answer:
        """Answer: it will not be done."""
        return Answer(self.request_id, self.command, "rejected", error, text)

    def failed(self, error: ErrorNumber, text: str, detail: Mapping[str, Any] | None = None) -> Answer:
        """Answer: it was begun and did not end well."""
        return Answer(self.request_id, self.command, "failed", error, text, detail=detail or {})


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, and where it goes."""

    topic: str
    answer: Answer
    correlation: bytes | None


@dataclass(frozen=True, slots=True)
class Unanswerable:
    """A message that gets no answer, and why."""

    reason: str


Respond = Callable[[Answer], None]
Handler = Callable[[Request, Respond], Awaitable[None]]
"""Does a command; answers once, or `accepted` first and its end later."""


@dataclass(slots=True)
class _Remembered:
    digest: bytes
    received_s: float
    answer: Answer | None = None


async def get_state(request: Request, respond: Respond) -> None:
    """Answer at once: every answer carries the state."""
    respond(request.completed())


class Commands:
    """The table of commands, and the requests of the last 10 minutes."""

    def __init__(self, base: str, handlers: Mapping[str, Handler], reply_prefixes: tuple[str, ...] = ()) -> None:
        self.handlers = dict(handlers)
        self._base = base
        self._prefixes = reply_prefixes or (f"{base}/rsp/",)
        self._remembered: OrderedDict[tuple[str, str], _Remembered] = OrderedDict()

    @property
    def topic(self) -> str:
        """What to subscribe to."""
        return f"{self._base}/cmd/+"

    def admit(self, incoming: Incoming, now: float) -> Request | Reply | Unanswerable:
        """Check a message: a request to be done, an answer to be given, or a reason why there is none."""
        command = incoming.topic.removeprefix(f"{self._base}/cmd/")
        if command == incoming.topic or not _is_text(command, NAME_LIMIT):
            return Unanswerable("the topic names no command")
        document = _document(incoming.payload)
        if isinstance(document, str):
            return Unanswerable(f"{command}: {document}")
        requester = document.get("requester")
        if not isinstance(requester, str) or not _REQUESTER.fullmatch(requester):
            return Unanswerable(f"{command}: requester is not 1 to 64 letters, digits, _ or -")
        reply_topic = incoming.response_topic or document.get("replyTo") or f"{self._base}/rsp/{requester}"
        if not isinstance(reply_topic, str) or not self._may_answer_on(reply_topic):
            return Unanswerable(f"{command} of {requester}: the reply topic is not below {' or '.join(self._prefixes)}")
        request_id = document.get("requestId")
        if not isinstance(request_id, str) or not _is_text(request_id, REQUEST_ID_LIMIT):
            request_id = ""
        request = Request(command, request_id, requester, reply_topic, incoming.correlation, document)
        if not request_id:
            answer = request.rejected(
                ErrorNumber.BAD_ARGUMENT, f"requestId must be a text of 1 to {REQUEST_ID_LIMIT} printable characters"
            )
            return _reply(request, answer)
        return self._known(request, incoming, now)

    def answered(self, request: Request, answer: Answer) -> Reply:
        """Remember an answer for whoever asks again, and address it. A `busy` is not remembered: asking again helps."""
        key = (request.requester, request.request_id)
        if answer.error is ErrorNumber.BUSY:
            self._remembered.pop(key, None)
        elif remembered := self._remembered.get(key):
            remembered.answer = answer
        return _reply(request, answer)

    def _known(self, request: Request, incoming: Incoming, now: float) -> Request | Reply | Unanswerable:
        if incoming.retain:
            text = "a retained request would be done again at each connect; publish it without the retain flag"
            return _reply(request, request.rejected(ErrorNumber.STALE_OR_RETAINED, text))
        if request.command not in self.handlers:
            text = f"there is no command {request.command}; there are {', '.join(sorted(self.handlers))}"
            return _reply(request, request.rejected(ErrorNumber.UNKNOWN_COMMAND, text))
        self._forget(now)
        key = (request.requester, request.request_id)
        digest = sha256(request.command.encode() + b"\0" + incoming.payload).digest()
        remembered = self._remembered.get(key)
        if remembered is None:
            self._remembered[key] = _Remembered(digest, now)
            return request
        if remembered.digest != digest:
            text = "this requestId was used for another request within 10 minutes"
            return _reply(request, request.rejected(ErrorNumber.BAD_ARGUMENT, text))
        if remembered.answer is None:
            return Unanswerable(f"{request.command} of {request.requester}: a repeat; the answer is on its way")
        return _reply(request, remembered.answer)

    def _forget(self, now: float) -> None:
        while self._remembered:
            key, oldest = next(iter(self._remembered.items()))
            if now - oldest.received_s < REMEMBERED_S and len(self._remembered) < REMEMBERED_REQUESTS:
                return
            del self._remembered[key]

    def _may_answer_on(self, topic: str) -> bool:
        if not _is_text(topic, TOPIC_LIMIT) or "+" in topic or "#" in topic:
            return False
        return any(topic.startswith(prefix) and len(topic) > len(prefix) for prefix in self._prefixes)


def _reply(request: Request, answer: Answer) -> Reply:
    return Reply(request.reply_topic, answer, request.correlation)


def _is_text(value: str, limit: int) -> bool:
    """Whether it can be sent on: neither control characters nor half surrogates."""
    return 0 < len(value) <= limit and value.isprintable()


def _document(payload: bytes) -> dict[str, Any] | str:
    """Read a JSON object, or say what is wrong with it."""
    if len(payload) > REQUEST_LIMIT_BYTES:
        return f"{len(payload)} bytes, the limit is {REQUEST_LIMIT_BYTES}"
    try:
        document = json.loads(payload, parse_constant=_no_constant)
    except (ValueError, RecursionError):  # ValueError: also bytes that are not UTF-8, and integers of 5,000 digits
        return "not JSON"
    return document if isinstance(document, dict) else "not a JSON object"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
