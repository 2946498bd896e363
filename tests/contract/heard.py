"""What a test's client hears of a real station: validated as it comes, told when the test ends."""

from __future__ import annotations

from typing import Any

from tests.contract.schemas import WrongMessage, validate

FROM_CLIENTS = ("cmd", "ack")
"""Topics on which tests speak, and say nonsense on purpose."""
FAULTS_TOLD = 5


class Heard:
    """Takes every message of one base topic. Call `take` from any one thread, `check` at the end."""

    def __init__(self, base: str) -> None:
        self.count = 0
        """Messages that were validated."""
        self.faults: list[str] = []
        self._prefix = f"{base}/"

    def take(self, topic: str, payload: bytes) -> Any:
        """Validate one message and give its document; None: it is wrong, gone (an alarm), or not the station's."""
        leaf = topic.removeprefix(self._prefix)
        if leaf == topic or leaf.split("/", maxsplit=1)[0] in FROM_CLIENTS:
            return None
        self.count += 1
        try:
            return validate(leaf, payload)
        except WrongMessage as fault:
            self.faults.append(str(fault))
            return None

    def check(self) -> None:
        """Fail the test if anything was wrong."""
        told = "\n".join(self.faults[:FAULTS_TOLD])
        assert not self.faults, f"{len(self.faults)} of {self.count} messages are not what the contract says:\n{told}"
