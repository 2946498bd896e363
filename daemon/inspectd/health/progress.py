"""Counters of finished work: a shared page per child, and one object per stage of main."""

from __future__ import annotations

import mmap
import os
from enum import IntEnum

PAGE_BYTES = 4096


class Word(IntEnum):
    """Which counter of a child's page is which. Each is written by the thread that does the work."""

    TURNS = 0
    """Camera: how often its only thread came round; a source that hangs stops it. Model: inferences that have ended."""


class ProgressPage:
    """A child's counters, shared with main."""

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, PAGE_BYTES)
        self._words = memoryview(self._map).cast("Q")

    @classmethod
    def create(cls, name: str) -> tuple[ProgressPage, int]:
        """Make a page; returns it and the descriptor for the child (the caller closes it)."""
        descriptor = os.memfd_create(f"inspectd-progress-{name}", os.MFD_CLOEXEC)
        os.posix_fallocate(descriptor, 0, PAGE_BYTES)
        return cls(descriptor), descriptor

    def __getitem__(self, word: Word) -> int:
        return int(self._words[word])

    def __setitem__(self, word: Word, value: int) -> None:
        self._words[word] = value

    def count(self, word: Word) -> None:
        """One more piece of work is finished."""
        self._words[word] += 1

    def close(self) -> None:
        """Unmap."""
        self._words.release()
        self._map.close()
