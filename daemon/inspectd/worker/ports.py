"""What a child's supervisor and the user of the child need of each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, Self

from inspectd.worker.channel import Message


class FailureKind(StrEnum):
    """What a child says about its own failure, as far as the next one depends on it."""

    OTHER = "other"
    MEMORY = "memory"
    """The device had no memory for it."""
    REFUSED = "refused"
    """Its file cannot be used: neither another try nor another device mends that."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a child said of its own end."""

    reason: str
    kind: FailureKind = FailureKind.OTHER
    requests: int = 0
    """Out of memory: so many requests were tried; 0: not known."""

    @classmethod
    def of(cls, message: Message) -> Self:
        """Read `failed`. Raises KeyError and ValueError."""
        kind = FailureKind(message.get("kind", FailureKind.OTHER))
        return cls(str(message["reason"]), kind, int(message.get("requests", 0)))


class Handler(Protocol):
    """Whoever uses a child. All calls come from the event loop. `life` tells one child from the next."""

    def on_hello(self) -> None:
        """The child listens: send it what it needs."""

    def on_message(self, message: Message) -> None:
        """Any message but hello and failed. May raise WorkerError: the child is replaced."""

    def on_ending(self) -> None:
        """The child is dead or given up: nothing more can be sent to it. What it had sent comes now."""

    def on_gone(self, reason: str, *, life: int, reaped: bool) -> None:
        """The child is gone and everything that it had sent was handed over.

        `reaped` False: it could not be killed and may still touch its memory, until on_reaped.
        """

    def on_reaped(self, life: int) -> None:
        """A child that was given up with `reaped=False` has ended after all."""


class Supervised(Protocol):
    """A supervisor, as the user of its child sees it."""

    trouble: str
    """Why the last child ended; empty while all is well."""
    told: Told | None
    """What the last child said of its own end."""
    replaces: bool
    """Whether a child that ends is followed by another."""

    @property
    def stuck(self) -> tuple[int, ...]:
        """Killed children that the kernel has not let go yet."""

    @property
    def pid(self) -> int | None:
        """Process id of the child; None while there is none."""

    @property
    def in_repair(self) -> bool:
        """Whether several starts failed in a row, or the child itself told why it cannot start."""

    def start(self) -> None:
        """Want a child, from now on."""

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> bool:
        """Send to the child; False if it is gone or being replaced."""

    def offer(self, message: Message) -> bool:
        """Send if the child reads just now."""

    def ready(self) -> None:
        """The user has admitted the child."""

    def kill(self, reason: str) -> None:
        """End the child now; it is replaced."""

    def recycle(self, grace_s: float) -> None:
        """End the child as planned, within `grace_s`; the next one starts at once, and no failure is counted."""

    def dismiss(self, grace_s: float) -> None:
        """Begin to end the child for good, within `grace_s`."""

    async def stop(self, grace_s: float) -> None:
        """End the child for good, and wait until it is gone."""


class Timer(Protocol):
    """What `call_later` gives."""

    def cancel(self) -> None:
        """Do not call."""


Later = Callable[[float, Callable[[], None]], Timer]
"""The event loop's call_later, or a test's."""
MakeHost = Callable[[Handler], Supervised]
