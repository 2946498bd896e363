"""AsyncAPI's own JSON schema for the tests. It is another's text: fetched as an npm package, checked, kept in build/.

One file of the package is read, and nothing of it is run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from functools import cache
from hashlib import sha512
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from jsonschema.exceptions import ValidationError, best_match
from referencing import Registry, Resource

PACKAGE = "@asyncapi/specs"
VERSION = "6.11.1"
SHA512 = (
    "0375812ea00a1a8276fba15616da63065090d6814272ce06c45ef3b081af36aa"
    "7f9251941e3940dda01c67d5cc3292c613cccf7980f3db1f4598ee834ae2ab69"
)
"""Of the package's file: no other is read, wherever it came from."""
MEMBER = "package/schemas/3.0.0.json"
STORE = Path(__file__).resolve().parents[2] / "build" / "asyncapi" / f"specs-{VERSION}.tgz"
FETCH_LIMIT_S = 90.0


def faults(document: Any) -> list[str]:
    """What AsyncAPI 3.0.0 forbids in a document, one sentence each.

    Skips the test where the schema cannot be had (no npm, no network); in CI that is a failure.
    """
    if not STORE.exists() and (reason := _fetch()):
        if os.environ.get("CI") == "true":
            pytest.fail(f"{reason}, and CI=true")
        pytest.skip(reason)
    return [_sentence(fault) for fault in _validator(STORE.read_bytes()).iter_errors(document)]


def _fetch() -> str | None:
    """Put the package's file into the store, whole or not at all; give the reason where that fails."""
    npm = shutil.which("npm")
    if npm is None:
        return "AsyncAPI's JSON schema is not here, and neither is npm to fetch it (apt install npm)"
    STORE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=STORE.parent) as folder:
        command = [
            npm,
            "pack",
            f"{PACKAGE}@{VERSION}",
            "--silent",
            "--no-update-notifier",
            "--pack-destination",
            folder,
        ]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=FETCH_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"npm gave no {PACKAGE}@{VERSION} within {FETCH_LIMIT_S:g} s"
        packages = list(Path(folder).glob("*.tgz"))
        if done.returncode != 0 or len(packages) != 1:
            return f"npm gave no {PACKAGE}@{VERSION} (exit code {done.returncode}): {done.stderr.strip()[-300:]}"
        packages[0].replace(STORE)
    return None


@cache
def _validator(package: bytes) -> Draft7Validator:
    schema = _read(package)
    resource = Resource.from_contents(schema)
    # Each definition has an address of its own; all of them are inside, so nothing is fetched.
    registry: Registry[Any] = Registry().with_resource(str(resource.id()), resource).crawl()
    return Draft7Validator(schema, registry=registry)


def _read(package: bytes) -> dict[str, Any]:
    found = sha512(package).hexdigest()
    if found != SHA512:
        STORE.unlink(missing_ok=True)  # the next run fetches it anew
        pytest.fail(f"{PACKAGE}@{VERSION} is not the file that was looked at: SHA-512 {found}, wanted {SHA512}")
    with tarfile.open(fileobj=BytesIO(package)) as archive:
        member = archive.extractfile(MEMBER)
        assert member is not None, f"{MEMBER} is no file"
        schema: dict[str, Any] = json.load(member)
    return schema


def _sentence(fault: ValidationError) -> str:
    """Name the fault inside an `anyOf`, not the `anyOf`."""
    deepest = best_match([fault])
    return f"{deepest.json_path}: {deepest.message[:300]}"
