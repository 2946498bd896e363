"""A camera's ledger: the last number that was given to a frame, in a one-page file that survives every kill.

The camera child writes the number here before it announces the frame, so that main (or the next main) can always
tell how many frames there were. The page is `MAP_SHARED`: a killed process loses nothing that it wrote.
The lock on the file belongs to the open file description that main shares with its camera child: as long as either
lives, no other daemon can read a number that may still change.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from pathlib import Path

from inspectd.errors import OutsideError

PAGE_BYTES = 4096
MAGIC = 0x0001_4745_4C44_534E
"""'NSDLEG' and layout version 1, little endian."""
_MAGIC_WORD, _LAST_WORD, _SIMULATED_WORD = 0, 1, 2


class LedgerHeld(OutsideError):
    """A process of an earlier daemon still holds the ledger: wait until it has ended, or `succeed` it."""


class Ledger:
    """The page of one camera. One writer (the camera child), any number of readers."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._page = mmap.mmap(descriptor, PAGE_BYTES)
        self._words = memoryview(self._page).cast("Q")

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """Open or make the file and lock it. Raises LedgerHeld and OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(descriptor, 0, PAGE_BYTES)
            return cls(descriptor)
        except BlockingIOError as error:
            os.close(descriptor)
            raise LedgerHeld(f"{path}: a camera process of an earlier inspectd still holds the ledger") from error
        except OSError:
            os.close(descriptor)
            raise

    @classmethod
    def succeed(cls, path: Path, unfinished: Path, set_aside: Path) -> Ledger:
        """Go on with a copy of a page that others hold, in a file of its own under the same name.

        They must have been killed: a killed process runs no instruction of its own any more, so their page does not
        change. Whatever they did to it afterwards, it would reach nobody. Their file stays as `set_aside`, so that the
        next daemon can still find them by its lock. Killed at any point, this leaves a page with the right number.
        Raises OSError.
        """
        unfinished.unlink(missing_ok=True)
        page = cls.open(unfinished)
        try:
            with path.open("rb") as theirs:
                page._page[:] = theirs.read(PAGE_BYTES)  # noqa: SLF001 - our own class
            set_aside.unlink(missing_ok=True)
            set_aside.hardlink_to(path)
            unfinished.replace(path)
        except OSError:
            page.close()
            raise
        return page

    @property
    def valid(self) -> bool:
        """False for a new file, and for one that holds something else."""
        return bool(self._words[_MAGIC_WORD] == MAGIC)

    @property
    def last(self) -> int:
        """Last number that was given; 0 before the first."""
        return int(self._words[_LAST_WORD])

    @property
    def simulated(self) -> bool:
        """Whether the numbers are of pictures that are not of a real line: so also those that are found lost later."""
        return self.valid and bool(self._words[_SIMULATED_WORD])

    def begin(self, last: int, *, simulated: bool) -> None:
        """Go on after `last` (main, before a camera child has the page)."""
        self._words[_LAST_WORD] = last
        self._words[_SIMULATED_WORD] = simulated
        self._words[_MAGIC_WORD] = MAGIC

    def take(self) -> int:
        """Give the next number: it is on the page before it is returned. An aligned word is written in one piece."""
        number = self._words[_LAST_WORD] + 1
        self._words[_LAST_WORD] = number
        return int(number)

    def close(self) -> None:
        """Unmap and unlock (the lock goes when the last holder is gone)."""
        self._words.release()
        self._page.close()
        os.close(self.descriptor)
