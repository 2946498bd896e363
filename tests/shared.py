"""Where the shared test material lies: beside the repository, or at INSPECTD_SHARED. Never part of the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("INSPECTD_SHARED") or Path(__file__).resolve().parents[2] / "shared")


def shared(name: str) -> Path:
    """Give a file or folder of the material; skip the test where there is none. In CI a missing file is a failure."""
    path = FOLDER / name
    if not path.exists():
        if FOLDER.exists() and os.environ.get("CI") == "true":
            pytest.fail(f"{path} is missing")
        pytest.skip(f"no shared test material at {path}")
    return path
