"""Gets the text of a configuration: a regular file, of sensible size, in UTF-8, without tabs and control characters."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from inspectd.config.faults import Fault

BYTES_MAX = 1024 * 1024
_TABS_TOLD = 3
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_TAB_INDENT = re.compile(r"^[ ]*\t[ \t]*[^\s#]", re.MULTILINE)


def read_text(path: Path) -> str | list[Fault]:
    """Give the text, or why there is none."""
    try:
        # non-blocking: opening a FIFO that nobody writes to would wait for ever
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return [Fault((), "there is no such file; give the configuration with -c FILE")]
    except PermissionError:
        return [Fault((), _not_allowed(path))]
    except (OSError, ValueError) as error:
        return [Fault((), f"cannot be opened: {getattr(error, 'strerror', None) or error}")]
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            return [Fault((), f"is a folder; name the file in it, such as {path / 'inspectd.yaml'}")]
        if not stat.S_ISREG(mode):
            return [Fault((), "is not a regular file; write the configuration to one")]
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        return [Fault((), f"cannot be read: {error.strerror}")]
    finally:
        os.close(descriptor)
    return decoded(data)


def decoded(data: bytes) -> str | list[Fault]:
    """Give the bytes as text, or the faults that they have as text."""
    if len(data) > BYTES_MAX:
        return [Fault((), "is larger than 1 MiB; that is no configuration of inspectd (is it the right file?)")]
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return [Fault((), "is UTF-16; save it as UTF-8")]
    if b"\0" in data:
        return [
            Fault((), "has a NUL byte here: it is not text (is it the right file?)", _line(data, data.index(b"\0")))
        ]
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = data[error.start]
        return [
            Fault((), f"has byte 0x{byte:02x}, which is not UTF-8; save the file as UTF-8", _line(data, error.start))
        ]
    if match := _CONTROL.search(text):
        line = text.count("\n", 0, match.start()) + 1
        return [Fault((), f"has the control character U+{ord(match[0]):04X} here; remove it", line)]
    if not text.strip():
        return [Fault((), "is empty; begin with `version: 1` (config/inspectd.yaml is a commented example)")]
    return _tabs(text) or text


def _tabs(text: str) -> list[Fault]:
    lines = [
        text.count("\n", 0, match.start()) + 1
        for _, match in zip(range(_TABS_TOLD), _TAB_INDENT.finditer(text), strict=False)
    ]
    return [Fault((), "a tab indents this line; YAML wants spaces", line) for line in lines]


def _line(data: bytes, offset: int) -> int:
    return data.count(b"\n", 0, offset) + 1


def _not_allowed(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return f"user id {os.geteuid()} may not look into its folder {path.parent}; give that user the right to"
    mode = stat.S_IMODE(status.st_mode)
    return (
        f"user id {os.geteuid()} may not read it (mode {mode:04o}, owner {status.st_uid}, group {status.st_gid}); "
        "change owner or mode"
    )
