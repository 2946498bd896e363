"""One supervisor of a model's processes, and what is known of the living one. Hands everything on with itself."""

from __future__ import annotations

from typing import Protocol

from inspectd.records import ModelFacts
from inspectd.worker.channel import Message
from inspectd.worker.ports import MakeHost, Supervised


class Keeper(Protocol):
    """Whoever decides what becomes of the process."""

    def load(self, child: ModelChild) -> None:
        """The process listens: tell it what to run."""

    def admit(self, child: ModelChild, message: Message) -> None:
        """The process has passed its warm-up."""

    def heard(self, child: ModelChild, message: Message) -> None:
        """The process says something else. May raise WorkerError."""

    def ending(self, child: ModelChild) -> None:
        """The process is dead or given up."""

    def gone(self, child: ModelChild, reason: str, life: int, *, reaped: bool) -> None:
        """The process is gone."""

    def reaped(self, child: ModelChild, life: int) -> None:
        """A process that was given up has ended after all."""


class ModelChild:
    """A supervisor's handler."""

    def __init__(self, keeper: Keeper, device: str, make_host: MakeHost) -> None:
        self.device = device
        """Of the process that lives, or of the next one."""
        self.facts: ModelFacts | None = None
        """None: not admitted."""
        self.number: int | None = None
        """Under which the user of the processes knows it; None: none of them has served."""
        self.is_asked_to_end = False
        """As planned: its end is no failure."""
        self._keeper = keeper
        self.host: Supervised = make_host(self)

    def on_hello(self) -> None:
        """Host: the process listens."""
        self._keeper.load(self)

    def on_message(self, message: Message) -> None:
        """Host: the admission, or a word about a frame."""
        if message.get("t") == "admitted":
            self._keeper.admit(self, message)
        else:
            self._keeper.heard(self, message)

    def on_ending(self) -> None:
        """Host: the process is dead or given up."""
        self._keeper.ending(self)

    def on_gone(self, reason: str, *, life: int, reaped: bool) -> None:
        """Host: the process is gone."""
        self.facts = None
        self._keeper.gone(self, reason, life, reaped=reaped)

    def on_reaped(self, life: int) -> None:
        """Host: a process that was given up has ended after all."""
        self._keeper.reaped(self, life)
