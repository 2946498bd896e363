"""Does the commands that passed the door: a few workers, a bounded queue. Full: the request is answered with busy."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from inspectd.errors import UsageError
from inspectd.publish.audit import Audit, Write
from inspectd.publish.commands import Address, Admitted, Answer, Caller, Commands, Refusal, Repeat, Request, Topic
from inspectd.publish.effects import Incoming, Message
from inspectd.publish.reports import ErrorNumber

WORKERS = 4
"""One may replay for minutes while others answer at once."""
WAITING = 8
ANSWER_EXPIRES_S = 60.0
COMPLAINT_S = 10.0
"""Anyone may send nonsense, as often as they like: the log says so at most this often, the counter always."""
AUDIT_S = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Called:
    """What a caller on this PC heard within the time."""

    payload: bytes | None
    """The newest answer."""
    is_last: bool


class Desk:
    """Takes requests in, and sends answers out.

    `audit` hears (requester, command, result) once of each request that changes something or is refused; 10 a second
    at most, then one that says how many more. An empty requester: a name that is none, or several requests.
    """

    def __init__(
        self,
        commands: Commands,
        publish: Callable[[Message], None],
        encode_answer: Callable[[Answer], bytes],
        clock: Callable[[], float],
        *,
        wall: Callable[[], float] = time.time,
        is_clock_right: Callable[[], bool] = lambda: False,
        audit: Write = lambda *_: None,
    ) -> None:
        self.commands = commands
        self.unanswerable = 0
        """Requests that named no proper place for an answer."""
        self._publish = publish
        self._encode_answer = encode_answer
        self._clock = clock
        self._wall = wall
        self._is_clock_right = is_clock_right
        self._audit = Audit(audit)
        self._waiting: asyncio.Queue[Request] = asyncio.Queue(WAITING)
        self._complained_s: float | None = None

    def receive(self, incoming: Incoming) -> None:
        """Take a message from the broker. Raises nothing, whatever is in it."""
        self._take(self.commands.admit(incoming, self._clock(), self._believed_wall_s()))

    async def call(self, command: str, payload: bytes, limit_s: float) -> Called:
        """Do a request of somebody on this PC and wait for its last answer.

        Raises UsageError if it is no JSON object.
        """
        last: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heard = Called(None, is_last=False)

        def hear(answer: bytes, is_last: bool) -> None:
            nonlocal heard
            heard = Called(answer, is_last)
            if is_last and not last.done():
                last.set_result(None)

        request_id = str(uuid.uuid4())
        admitted = self.commands.admit_call(
            command, payload, Caller(hear), request_id, self._clock(), self._believed_wall_s()
        )
        if not isinstance(admitted, Request | Refusal | Repeat):
            raise UsageError(admitted.reason)
        self._take(admitted)
        await asyncio.wait((last,), timeout=limit_s)
        last.cancel()
        return heard

    async def run(self) -> None:
        """Do requests for ever."""
        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                group.create_task(self._work(), name=f"mqtt commands {number}")
            group.create_task(self._tick(), name="mqtt audit")

    def _take(self, admitted: Admitted) -> None:
        if isinstance(admitted, Refusal):
            self._audit.answered(admitted.request.requester, admitted.answer, self._clock())
            self._send((admitted.request.address,), self._encode_answer(admitted.answer), is_last=True)
        elif isinstance(admitted, Repeat):
            if admitted.payload is not None:
                self._send((admitted.address,), admitted.payload, is_last=admitted.is_last)
        elif not isinstance(admitted, Request):
            if admitted.requester is not None:
                self._audit.unanswerable(admitted.requester, admitted.command, self._clock())
            self._complain(admitted.reason)
        elif self._waiting.full():
            busy = admitted.rejected(ErrorNumber.BUSY, f"{WAITING} requests are waiting; try again")
            self._answer(admitted, busy, is_first=True)
        else:
            self._waiting.put_nowait(admitted)

    async def _work(self) -> None:
        while True:
            await self._do(await self._waiting.get())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(AUDIT_S)
            self._audit.tick(self._clock())

    async def _do(self, request: Request) -> None:
        given: Answer | None = None

        def respond(answer: Answer) -> None:
            nonlocal given
            is_first, given = given is None, answer
            self._answer(request, answer, is_first=is_first)

        now = self._clock()
        if request.expires_s is not None and now >= request.expires_s:
            text = f"it has waited {now - request.received_s:.1f} s, longer than it is valid; ask again"
            respond(request.rejected(ErrorNumber.STALE_OR_RETAINED, text))
            return
        try:
            await self.commands.handlers[request.command](request, respond)
        except Exception:  # top of a command: the fault is this one's, the next is taken on purpose
            log.exception("mqtt: command %s of %s failed", request.command, request.requester)
            respond(request.failed(ErrorNumber.INTERNAL, "a fault of inspectd's own; its log has it"))
        self._end(request, given)

    def _end(self, request: Request, given: Answer | None) -> None:
        """Tell callers on this PC, who may wait for more than `accepted`, that nothing follows."""
        if given is None:
            self._answer(request, request.failed(ErrorNumber.INTERNAL, "it ended without an answer"), is_first=True)
        elif not given.is_last:
            payload = self._encode_answer(given)
            for address in self.commands.ended(request):
                if isinstance(address, Caller):
                    address.hear(payload, True)

    def _answer(self, request: Request, answer: Answer, *, is_first: bool) -> None:
        if is_first:
            self._audit.answered(request.requester, answer, self._clock())
        payload = self._encode_answer(answer)
        self._send(self.commands.answered(request, answer, payload), payload, is_last=answer.is_last)

    def _send(self, addresses: Iterable[Address], payload: bytes, *, is_last: bool) -> None:
        expires_s = self._clock() + ANSWER_EXPIRES_S
        for address in addresses:
            if isinstance(address, Topic):
                self._publish(Message(address.name, payload, expires_s=expires_s, correlation=address.correlation))
            else:
                address.hear(payload, is_last)

    def _believed_wall_s(self) -> float | None:
        return self._wall() if self._is_clock_right() else None

    def _complain(self, reason: str) -> None:
        self.unanswerable += 1
        now = self._clock()
        if self._complained_s is None or now - self._complained_s >= COMPLAINT_S:
            self._complained_s = now
            log.warning("mqtt: a request gets no answer: %s (%d so far)", reason, self.unanswerable)
