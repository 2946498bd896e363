"""Commands: checks each request at the door, remembers what was answered, and holds the table of who does what.

Requests come from anyone who may write to the broker. Whatever is in them, `admit` gives a value and raises nothing.
Whom to answer is decided before what: a request that names no proper place for the answer gets none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal

from inspectd.publish.effects import Incoming
from inspectd.publish.memory import Entry, Memory
from inspectd.publish.reports import ErrorNumber
from inspectd.publish.requests import document_of, is_name, is_text, validity

ADDRESSES = 8
"""So many places for the answer to one request, if it is asked again and again from others while it is being done."""
CORRELATION_LIMIT_BYTES = 1024
NAME_LIMIT = 64
REQUEST_ID_LIMIT = 128
TOPIC_LIMIT = 256
LOCAL = "local"
"""Requester of what comes through the local door."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A place for answers at the broker."""

    name: str
    correlation: bytes | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Caller:
    """Somebody on this PC who waits for answers."""

    hear: Callable[[bytes, bool], None]
    """(answer, whether it is the last)."""


Address = Topic | Caller


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

    @property
    def is_last(self) -> bool:
        """Whether no other answer to the request follows."""
        return self.status != "accepted"


@dataclass(frozen=True, slots=True)
class Request:
    """One request that passed the door."""

    command: str
    request_id: str
    requester: str
    address: Address
    arguments: Mapping[str, Any]
    received_s: float = 0.0
    expires_s: float | None = None
    """Both on the monotonic clock. None: it holds for ever."""

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
class Refusal:
    """A request that is not done, and the answer that says why."""

    request: Request
    answer: Answer


@dataclass(frozen=True, slots=True)
class Repeat:
    """A request that was made before: its answer, or None while that is still on its way to this address too."""

    address: Address
    payload: bytes | None
    is_last: bool


@dataclass(frozen=True, slots=True)
class Unanswerable:
    """A message that gets no answer, and why."""

    reason: str
    command: str = ""
    requester: str | None = None
    """Who claims to ask; empty: a name that is none. None: it is no request at all."""


Admitted = Request | Refusal | Repeat | Unanswerable
Respond = Callable[[Answer], None]
Handler = Callable[[Request, Respond], Awaitable[None]]
"""Does a command: answers once, or `accepted` first and its end before it returns."""


async def get_state(request: Request, respond: Respond) -> None:
    """Answer at once: every answer carries the state."""
    respond(request.completed())


class Commands:
    """The table of commands, and the requests of the last 10 minutes.

    An answer may always go below `{base}/rsp/`, and below each of `reply_prefixes`, but never where the station itself
    publishes.
    """

    def __init__(self, base: str, handlers: Mapping[str, Handler], reply_prefixes: tuple[str, ...] = ()) -> None:
        self.handlers = dict(handlers)
        self._base = base
        self._own_prefix = f"{base}/rsp/"
        self._prefixes = (self._own_prefix, *reply_prefixes)
        self._memory: Memory[Address] = Memory()

    @property
    def topic(self) -> str:
        """What to subscribe to."""
        return f"{self._base}/cmd/+"

    def admit(self, incoming: Incoming, now: float, wall_s: float | None = None) -> Admitted:
        """Check a message of the broker. `wall_s`: the wall clock, None if it cannot be believed."""
        command = incoming.topic.removeprefix(f"{self._base}/cmd/")
        if command == incoming.topic or not is_text(command, NAME_LIMIT):
            return Unanswerable("the topic names no command")
        document = document_of(incoming.payload)
        if isinstance(document, str):
            return Unanswerable(f"{command}: {document}", command)
        requester = document.get("requester")
        if not isinstance(requester, str) or not is_name(requester):
            return Unanswerable(f"{command}: requester is not 1 to 64 letters, digits, _ or -", command, "")
        if requester == LOCAL:
            return Unanswerable(f"{command}: the requester {LOCAL} is whoever is on the station's own PC", command, "")
        reply_topic = incoming.response_topic or document.get("replyTo") or f"{self._own_prefix}{requester}"
        if not isinstance(reply_topic, str) or not self._may_answer_on(reply_topic):
            reason = f"{command} of {requester}: the reply topic is not below {' or '.join(self._prefixes)}"
            return Unanswerable(reason, command, requester)
        if incoming.correlation is not None and len(incoming.correlation) > CORRELATION_LIMIT_BYTES:
            reason = f"{command} of {requester}: correlation data above {CORRELATION_LIMIT_BYTES} bytes"
            return Unanswerable(reason, command, requester)
        address = Topic(reply_topic, incoming.correlation)
        if incoming.retain:
            request = Request(command, _request_id(document), requester, address, document, now)
            text = "a retained request would be done again at each connect; publish it without the retain flag"
            return Refusal(request, request.rejected(ErrorNumber.STALE_OR_RETAINED, text))
        return self._admit(command, requester, address, document, incoming.payload, now, wall_s)

    def admit_call(
        self, command: str, payload: bytes, address: Caller, request_id: str, now: float, wall_s: float | None = None
    ) -> Admitted:
        """Check a request of the local door. `request_id`: for one that has none; `requester` is not asked for."""
        if not is_text(command, NAME_LIMIT):
            return Unanswerable("the path names no command")
        document = document_of(payload or b"{}")
        if isinstance(document, str):
            return Unanswerable(f"{command}: {document}", command)
        named = {"requestId": request_id} | document
        return self._admit(command, LOCAL, address, named, payload, now, wall_s)

    def answered(self, request: Request, answer: Answer, payload: bytes) -> tuple[Address, ...]:
        """Remember an answer for whoever asks again, and give who is to hear it.

        A `busy` is not remembered: asking again helps.
        """
        key = (request.requester, request.request_id)
        if answer.error is ErrorNumber.BUSY:
            return self._memory.undo(key, request.address)
        return self._memory.answered(key, request.address, payload, is_last=answer.is_last)

    def ended(self, request: Request) -> tuple[Address, ...]:
        """Note that nothing follows the answer that was given, and give who is to know."""
        return self._memory.ended((request.requester, request.request_id), request.address)

    def _admit(
        self,
        command: str,
        requester: str,
        address: Address,
        document: Mapping[str, Any],
        payload: bytes,
        now: float,
        wall_s: float | None,
    ) -> Admitted:
        request = Request(command, _request_id(document), requester, address, document, now)
        if not request.request_id:
            text = f"requestId must be a text of 1 to {REQUEST_ID_LIMIT} printable characters"
            return Refusal(request, request.rejected(ErrorNumber.BAD_ARGUMENT, text))
        if command not in self.handlers:
            text = f"there is no command {command}; there are {', '.join(sorted(self.handlers))}"
            return Refusal(request, request.rejected(ErrorNumber.UNKNOWN_COMMAND, text))
        valid = validity(document)
        if isinstance(valid, str):
            return Refusal(request, request.rejected(ErrorNumber.BAD_ARGUMENT, valid))
        self._memory.forget(now)
        digest = sha256(command.encode() + b"\0" + payload).digest()
        entry = self._memory.get((requester, request.request_id))
        if entry is not None:
            return _known(request, entry, digest)
        left_s = valid.left_s(wall_s)
        if left_s is not None and left_s <= 0:
            text = (
                f"it was valid until {-left_s:.1f} s ago; ask again, and if this comes at once compare the clocks "
                "(requestedAt is the sender's, and it is compared with inspectd's)"
            )
            return Refusal(request, request.rejected(ErrorNumber.STALE_OR_RETAINED, text))
        if left_s is not None:
            request = replace(request, expires_s=now + left_s)
        self._memory.begin((requester, request.request_id), digest, address, now)
        return request

    def _may_answer_on(self, topic: str) -> bool:
        if not is_text(topic, TOPIC_LIMIT) or "+" in topic or "#" in topic:
            return False
        if topic.startswith(f"{self._base}/") and not topic.startswith(self._own_prefix):
            return False
        return any(topic.startswith(prefix) and len(topic) > len(prefix) for prefix in self._prefixes)


def _known(request: Request, entry: Entry[Address], digest: bytes) -> Admitted:
    """Answer a request whose id was used before."""
    if entry.digest != digest:
        text = "this requestId was used for another request within 10 minutes"
        return Refusal(request, request.rejected(ErrorNumber.BAD_ARGUMENT, text))
    if not entry.is_last and request.address not in entry.addresses:
        if len(entry.addresses) >= ADDRESSES:
            return Unanswerable(f"{request.command} of {request.requester}: repeated from more than {ADDRESSES} places")
        entry.addresses.append(request.address)
    return Repeat(request.address, entry.payload, entry.is_last)


def _request_id(document: Mapping[str, Any]) -> str:
    """Give the request's id; empty: it has none that could be sent back."""
    request_id = document.get("requestId")
    return request_id if isinstance(request_id, str) and is_text(request_id, REQUEST_ID_LIMIT) else ""
