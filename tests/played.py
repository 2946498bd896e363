"""Parts that a unit test plays instead of having processes and time."""

from __future__ import annotations

from inspectd.worker.channel import Message
from inspectd.worker.frames import NewMemory, PoolSpec
from inspectd.worker.ports import Told


class PlayedHost:
    """A supervisor that keeps what is sent; nothing dies by itself."""

    def __init__(self) -> None:
        self.trouble = ""
        self.in_repair = False
        self.told: Told | None = None
        self.replaces = True
        self.pid: int | None = None
        self.stuck: tuple[int, ...] = ()
        self.sent: list[Message] = []
        self.killed: list[str] = []
        self.recycled = self.dismissed = 0

    def start(self) -> None:
        """The test plays the child."""

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> bool:
        del descriptors
        self.sent.append(message)
        return True

    def offer(self, message: Message) -> bool:
        return self.send(message)

    def ready(self) -> None:
        """The test plays the child."""

    def kill(self, reason: str) -> None:
        self.killed.append(reason)

    def recycle(self, grace_s: float) -> None:
        del grace_s
        self.recycled += 1

    def dismiss(self, grace_s: float) -> None:
        del grace_s
        self.dismissed += 1

    async def stop(self, grace_s: float) -> None:
        raise AssertionError(grace_s)


class NoTimer:
    """Time stands still."""

    def cancel(self) -> None:
        """Nothing was planned."""


def pool_memory(spec: PoolSpec) -> int:
    """Make a pool's memory at once; gives its descriptor."""
    memory = NewMemory(spec)
    while not memory.step():
        continue
    return memory.descriptor
