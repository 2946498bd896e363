"""Compiled models on disk, one folder each: sealed by its files' SHA-256 and the first answer. Only ever saves time.

A blob is native code. What was cut short or changed on the disk is thrown away before the runtime sees it, and one
that loads is still believed only if it answers the warm-up picture as the first compile did.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

_log = logging.getLogger(__name__)

ENTRIES_MAX = 12
BYTES_MAX = 2 * 10**9
"""The least recently used entries beyond these go."""
_FOLDER = "compiled-models"
_ANSWER, _SEAL = "answer.npz", "seal.json"
_BLOCK_BYTES = 1 << 20

Answer = list[NDArray[Any]]


def entry_key(parts: Mapping[str, Any]) -> str:
    """Name of an entry: it changes with the model file, the runtime, the device and every option."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


class CacheEntry:
    """One compiled model. Several children may use the same one: what they do to each other costs only time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answer: Answer | None = None
        """The first compile's, if the entry is whole."""

    @classmethod
    def open(cls, model: str, cache_dir: Path, key: str) -> Self | None:
        """Look at what is there, and make the entry empty unless it is whole. None: the folder cannot be used."""
        entry = cls(cache_dir / _FOLDER / key)
        try:
            entry.answer = entry._whole_answer()
            if entry.answer is None:
                entry._empty()
            else:
                os.utime(entry.folder)
        except OSError as error:
            _log.warning("%s: works without the cache %s: %s", model, cache_dir, error.strerror)
            return None
        return entry

    def seal(self, model: str, answer: Answer) -> None:
        """Say that what was compiled gives this answer; then prune the others. What fails is told, no more."""
        try:
            files = _sums(self.folder)
            if not files:  # the device does not cache
                return
            with (self.folder / _ANSWER).open("wb") as stream:
                np.savez_compressed(stream, *answer)
            files |= _sums(self.folder, only=_ANSWER)
            unfinished = self.folder / f"{_SEAL}.{os.getpid()}"
            unfinished.write_text(json.dumps(files), encoding="ascii")
            unfinished.replace(self.folder / _SEAL)
            self._prune()
        except OSError as error:
            _log.warning("%s: the compiled model is not kept in %s: %s", model, self.folder, error.strerror)

    def _empty(self) -> None:
        (self.folder / _SEAL).unlink(missing_ok=True)  # first: without it nobody believes the rest
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)

    def drop(self, model: str) -> None:
        """Forget the answer and empty the entry, since it is not what it was."""
        self.answer = None
        try:
            self._empty()
        except OSError as error:
            _log.warning("%s: %s cannot be emptied: %s", model, self.folder, error.strerror)

    def _whole_answer(self) -> Answer | None:
        try:
            sealed = json.loads((self.folder / _SEAL).read_text(encoding="ascii"))
            if sealed != _sums(self.folder) | _sums(self.folder, only=_ANSWER):
                return None
            with np.load(self.folder / _ANSWER, allow_pickle=False) as stored:
                return [stored[f"arr_{index}"] for index in range(len(stored.files))]
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            return None

    def _prune(self) -> None:
        folders = [path for path in self.folder.parent.iterdir() if path.is_dir()]
        room_bytes = BYTES_MAX
        for place, path in enumerate(sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True)):
            room_bytes -= sum(file.stat().st_size for file in path.iterdir())
            if (place >= ENTRIES_MAX or room_bytes < 0) and path != self.folder:
                shutil.rmtree(path)


def _sums(folder: Path, only: str | None = None) -> dict[str, str]:
    """SHA-256 of each file that the runtime wrote, or of the one that is ours."""
    sums = {}
    for path in sorted(folder.iterdir()):
        is_ours = path.name == _ANSWER or path.name.startswith(_SEAL)
        if path.name == only or (only is None and not is_ours):
            digest = hashlib.sha256()
            with path.open("rb") as stream:
                while block := stream.read(_BLOCK_BYTES):
                    digest.update(block)
            sums[path.name] = digest.hexdigest()
    return sums
