"""Does the commands that passed the door: a few workers, a bounded queue. Full: the request is answered with busy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from inspectd.publish.commands import Answer, Commands, Reply, Request
from inspectd.publish.effects import Incoming, Message
from inspectd.publish.reports import ErrorNumber

WORKERS = 4
"""One may replay for minutes while others answer at once."""
WAITING = 8
ANSWER_EXPIRES_S = 60.0
COMPLAINT_S = 10.0
"""Anyone may send nonsense, as often as they like: the log says so at most this often, the counter always."""

log = logging.getLogger(__name__)


class Desk:
    """Takes requests in, and sends answers out."""

    def __init__(
        self,
        commands: Commands,
        publish: Callable[[Message], None],
        encode_answer: Callable[[Answer], bytes],
        clock: Callable[[], float],
    ) -> None:
        self.commands = commands
        self.unanswerable = 0
        """Requests that named no proper place for an answer."""
        self._publish = publish
        self._encode_answer = encode_answer
        self._clock = clock
        self._waiting: asyncio.Queue[Request] = asyncio.Queue(WAITING)
        self._complained_s: float | None = None

    def receive(self, incoming: Incoming) -> None:
        """Take a message from the broker. Raises nothing, whatever is in it."""
        admitted = self.commands.admit(incoming, self._clock())
        if isinstance(admitted, Reply):
            self._reply(admitted)
        elif not isinstance(admitted, Request):
            self._complain(admitted.reason)
        elif self._waiting.full():
            busy = admitted.rejected(ErrorNumber.BUSY, f"{WAITING} requests are waiting; try again")
            self._reply(self.commands.answered(admitted, busy))
        else:
            self._waiting.put_nowait(admitted)

    async def run(self) -> None:
        """Do requests for ever."""
        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                group.create_task(self._work(), name=f"mqtt commands {number}")

    async def _work(self) -> None:
        while True:
            await self._do(await self._waiting.get())

    async def _do(self, request: Request) -> None:
        def respond(answer: Answer) -> None:
            self._reply(self.commands.answered(request, answer))

        try:
            await self.commands.handlers[request.command](request, respond)
        except Exception:  # top of a command: the fault is this one's, the next is taken on purpose
            log.exception("mqtt: command %s of %s failed", request.command, request.requester)
            respond(request.failed(ErrorNumber.INTERNAL, "a fault of inspectd's own; its log has it"))

    def _reply(self, reply: Reply) -> None:
        payload = self._encode_answer(reply.answer)
        expires_s = self._clock() + ANSWER_EXPIRES_S
        self._publish(Message(reply.topic, payload, expires_s=expires_s, correlation=reply.correlation))

    def _complain(self, reason: str) -> None:
        self.unanswerable += 1
        now = self._clock()
        if self._complained_s is None or now - self._complained_s >= COMPLAINT_S:
            self._complained_s = now
            log.warning("mqtt: a request gets no answer: %s (%d so far)", reason, self.unanswerable)
