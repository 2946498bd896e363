"""What the processes of one model and their user need of each other, and the values that cross between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from inspectd.worker.channel import Message
from inspectd.worker.frames import available_bytes
from inspectd.worker.modelchild import ModelChild


def anonymous_bytes(pid: int) -> int | None:
    """Give the memory that is a process's own (files and frame pools apart); None if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    kilobytes = next((line.split()[1] for line in lines if line.startswith("RssAnon:")), None)
    return None if kilobytes is None else int(kilobytes) * 1024


@dataclass(frozen=True, slots=True)
class Memory:
    """How memory is measured: a process's own, and the host's that can be taken."""

    of: Callable[[int], int | None] = anonymous_bytes
    available: Callable[[], int] = available_bytes


@dataclass(frozen=True, slots=True)
class RepairPolicy:
    """One model's knobs."""

    devices: tuple[str, ...] = ("CPU",)
    retry_primary_s: float = 600.0
    rss_limit_bytes: int | None = None
    """None: worked out from a fresh child."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where and what a model runs."""

    device: str
    hash: str
    """Of the model file."""
    requests_most: int | None = None
    """None: no limit for want of memory."""


@dataclass(frozen=True, slots=True)
class Move:
    """A model serves otherwise than before, or than it is meant to."""

    model: str
    before: Place
    after: Place
    reason: str


class CrewUser(Protocol):
    """Whoever gives the frames. A child that serves gets a number, which `serves` gives."""

    def serves(self, child: ModelChild) -> int:
        """A child was admitted and gets every new frame from now on."""

    def heard(self, child: ModelChild, message: Message) -> None:
        """A child says something about its frames. May raise WorkerError: the child is replaced."""

    def ending(self) -> None:
        """The child that serves is dead, or to be ended: begin nothing more on it."""

    def gone(self, child: ModelChild, reason: str, life: int, *, reaped: bool) -> None:
        """A child that has served is gone."""

    def reaped(self, child: ModelChild, life: int) -> None:
        """A child that was gone with `reaped=False` has ended after all."""

    def unavailable(self, reason: str) -> None:
        """No device works: nobody should wait for the next child."""

    def changed(self) -> None:
        """A child was admitted, lost or given up."""

    def is_idle(self) -> bool:
        """Whether no frame waits or is at work."""

    def held_by(self, number: int) -> int:
        """How many frames a child still has."""
