"""How the last run ended: what systemd noted (ExecStopPost) and what that run itself said stood still.

One file for each of systemd's words, so that a start that fails does not cover up a watchdog before it, and an empty
one on a full disk still says it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ENDED = "ended."
"""And $SERVICE_RESULT; in it $EXIT_CODE and $EXIT_STATUS. Written by ExecStopPost of systemd/inspectd.service."""
STALLED = "stalled"
"""What stands still, while something does."""
WATCHDOG, SUCCESS = "watchdog", "success"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LastEnd:
    """All of it since the last run that began."""

    results: Mapping[str, str]
    """systemd's word → exit code and status; empty without systemd, and after a power cut."""
    stalled: str
    """In words; empty: it said nothing."""

    @property
    def watchdog_text(self) -> str | None:
        """What to tell of a watchdog's restart; None: there was none."""
        if WATCHDOG not in self.results:
            return None
        what = self.stalled or "the process as a whole stood still (stopped, or without CPU), or nothing could be told"
        return f"the watchdog ended the last run: {what}"


def folder(environment: Mapping[str, str], storage_path: Path) -> Path:
    """Where these files lie: systemd's StateDirectory, where the unit writes, else with the storage."""
    return Path(environment["STATE_DIRECTORY"].split(":")[0]) if "STATE_DIRECTORY" in environment else storage_path


def take(place: Path) -> LastEnd:
    """Read and remove what there is."""
    results = {path.name.removeprefix(ENDED): _take(path) for path in sorted(place.glob(f"{ENDED}*"))}
    return LastEnd(results, _take(place / STALLED))


def _take(path: Path) -> str:
    try:
        text = path.read_text("utf-8", "replace")
        path.unlink()
    except FileNotFoundError:
        return ""
    except OSError as error:
        log.warning("%s: %s", path, error.strerror)
        return ""
    return " ".join(text.split())
