"""Which requests the journal hears of: each that changes something or was refused; in a flood only how many. Pure.

Refusals have fewer places than all together: a flood of nonsense must not hide who changed something.
"""

from __future__ import annotations

from collections.abc import Callable

from inspectd.publish.commands import Answer
from inspectd.publish.reports import ErrorNumber

CHANGE_NOTHING = frozenset({"get-state", "get-result"})
PER_SECOND = 10
REFUSALS_PER_SECOND = 5
WINDOW_S = 1.0

Write = Callable[[str, str, str], None]
"""(requester, command, result)."""


class Audit:
    """Hears of every request once, with its first answer."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._window_s = 0.0
        self._written = 0
        self._refusals = 0
        self._held_back = 0

    def answered(self, requester: str, answer: Answer, now: float) -> None:
        """Take the first answer to a request."""
        if answer.command not in CHANGE_NOTHING:
            result = answer.status if not answer.error else f"{answer.status}: {error_word(answer.error)}"
            self._note(requester, answer.command, result, now, is_refusal=answer.status == "rejected")

    def unanswerable(self, requester: str, command: str, now: float) -> None:
        """Take a request that named no proper place for its answer."""
        result = f"rejected: {error_word(ErrorNumber.BAD_ARGUMENT)}"
        self._note(requester, command, result, now, is_refusal=True)

    def tick(self, now: float) -> None:
        """Tell how many were held back, when their second is over. Called once a second."""
        if now - self._window_s < WINDOW_S:
            return
        if self._held_back:
            self._write("", "", f"{self._held_back} more requests within a second")
        self._window_s, self._written, self._refusals, self._held_back = now, 0, 0, 0

    def _note(self, requester: str, command: str, result: str, now: float, *, is_refusal: bool) -> None:
        self.tick(now)
        if self._written >= PER_SECOND or (is_refusal and self._refusals >= REFUSALS_PER_SECOND):
            self._held_back += 1
            return
        self._written += 1
        self._refusals += is_refusal
        self._write(requester, command, result)


def error_word(error: ErrorNumber) -> str:
    """Write an error as the contract does: `badArgument`."""
    first, *rest = error.name.lower().split("_")
    return first + "".join(word.capitalize() for word in rest)
