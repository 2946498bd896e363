"""Where the socket lies: for the daemon, and for whoever looks for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from inspectd.errors import ConfigurationError, OutsideError

NAME = "inspectd.sock"
SYSTEM_SOCKET = Path("/run/inspectd") / NAME
"""Where systemd's RuntimeDirectory puts it."""
PATH_MAX_BYTES = 107
"""unix(7): `sun_path` has 108, one of them for the end."""


def socket_path(storage_path: Path, environment: Mapping[str, str]) -> Path:
    """Give the daemon's: in systemd's RuntimeDirectory, else beside its state."""
    if given := environment.get("RUNTIME_DIRECTORY"):
        return Path(given.split(":")[0]) / NAME  # systemd divides several by colons; the first is ours
    return storage_path / NAME


def find_socket(given: Path | None, configuration: Path | None, default: Path, environment: Mapping[str, str]) -> Path:
    """Give the socket to ask: the one that is named, else the first of those that could be meant and is there.

    `configuration`: the file that the user named; `default`: the one to look into where nothing else helps. Raises
    ConfigurationError for a file that was named and cannot be read.
    """
    if given is not None:
        return given
    if configuration is not None:
        own = _of_configuration(configuration, environment)
        return own if not _is_there(SYSTEM_SOCKET) or _is_there(own) else SYSTEM_SOCKET
    candidates = [SYSTEM_SOCKET]
    if "RUNTIME_DIRECTORY" in environment:
        candidates.insert(0, socket_path(Path(), environment))
    for candidate in candidates:
        if _is_there(candidate):
            return candidate
    try:
        return _of_configuration(default, environment)
    except (ConfigurationError, OutsideError):
        return SYSTEM_SOCKET


def fits(path: Path) -> bool:
    """Whether the kernel takes it for a socket's name."""
    return len(os.fsencode(path)) <= PATH_MAX_BYTES


def _of_configuration(path: Path, environment: Mapping[str, str]) -> Path:
    """Read where the state is kept, even if the file has faults elsewhere: somebody may be editing it."""
    from inspectd.config.faults import rendered
    from inspectd.config.paths import storage_path
    from inspectd.config.readfile import read_text
    from inspectd.config.schema import Configuration, Storage
    from inspectd.config.yamltree import parse

    text = read_text(path)
    if not isinstance(text, str):
        raise ConfigurationError(rendered(str(path), [(fault.line or 1, fault) for fault in text]))
    value = parse(text).value
    section = value.get("storage") if isinstance(value, dict) else None
    given = section.get("path") if isinstance(section, dict) else None
    storage = Storage.model_construct(path=Path(given) if isinstance(given, str) else None)
    folder = storage_path(Configuration.model_construct(storage=storage), path.absolute().parent, environment)
    if folder is None:
        raise ConfigurationError([f"{path}: does not tell where the state is kept; name the socket with --socket PATH"])
    return folder / NAME


def _is_there(path: Path) -> bool:
    """Whether it is there, or in a folder that we may not look into."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True
