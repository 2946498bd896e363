"""The command `inspectd call`: has the running daemon do a command, and prints its answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TextIO

from inspectd.door.client import Answered
from inspectd.errors import OutsideError, UsageError

EXIT_DONE, EXIT_REFUSED = 0, 1

Call = Callable[[str, bytes, float], Answered]
"""(command, body, limit in s)."""


def call_daemon(call: Call, command: str, arguments: str | None, limit_s: float, out: TextIO) -> int:
    """Do it.

    Returns 0 if the command was done (or accepted, where it has no other end), 1 if it was refused or failed. Raises
    UsageError for arguments that are no JSON object, OutsideError without an answer in time.
    """
    answered = call(command, _body(arguments), limit_s)
    document = answered.document
    out.write(f"{json.dumps(document, indent=2, ensure_ascii=False)}\n")
    if not answered.is_last:
        raise OutsideError(f"{command}: {document.get('status')}, and not at its end within {limit_s:g} s; it goes on")
    return EXIT_DONE if document.get("status") in {"accepted", "completed"} else EXIT_REFUSED


def _body(arguments: str | None) -> bytes:
    if arguments is None:
        return b"{}"
    try:
        document: Any = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise UsageError(f'the arguments are not JSON: {error}; for example \'{{"jobId": "…"}}\'') from error
    if not isinstance(document, dict):
        raise UsageError('the arguments must be one JSON object, such as \'{"jobId": "…"}\'')
    return json.dumps(document).encode()
