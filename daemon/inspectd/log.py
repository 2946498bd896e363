"""Logging: one line per change of state, for the journal when systemd runs us, for a terminal otherwise."""

from __future__ import annotations

import logging
import os
import sys

_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
"""syslog priorities, as sd-daemon(3) reads them at the head of a line."""


class _JournalFormatter(logging.Formatter):
    """`<priority>text`: journald adds time and unit itself. Every line of a traceback keeps the priority."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"<{_PRIORITIES.get(record.levelno, 6)}>"
        return "\n".join(prefix + line for line in super().format(record).splitlines())


def configure(level: int = logging.INFO) -> None:
    """Log to stderr. JOURNAL_STREAM is set by systemd exactly when that is the journal."""
    handler = logging.StreamHandler(sys.stderr)
    if os.environ.get("JOURNAL_STREAM"):
        handler.setFormatter(_JournalFormatter("%(message)s"))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
