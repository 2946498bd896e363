"""What the station wants to know after a restart: a few named texts, kept in the journal's state row."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


class Memo:
    """Each change is kept with the next commit, at once."""

    def __init__(self, text: str, keep: Callable[[str], None]) -> None:
        """`text`: as it was kept last; one that cannot be read is an empty one."""
        self._keep = keep
        self._entries = _entries(text)

    def get(self, name: str) -> str:
        """Give an entry; empty: there is none."""
        return self._entries.get(name, "")

    def put(self, name: str, value: str) -> None:
        """Keep an entry."""
        if self._entries.get(name) != value:
            self._entries[name] = value
            self._keep(json.dumps(self._entries, separators=(",", ":")))


def _entries(text: str) -> dict[str, str]:
    try:
        document = json.loads(text or "{}")
    except ValueError:
        document = None
    if not isinstance(document, dict):
        log.warning("journal: the station's memo cannot be read (%r); it begins anew", text[:80])
        return {}
    return {str(name): value for name, value in document.items() if isinstance(value, str)}
