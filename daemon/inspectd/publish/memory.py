"""Remembers requests and what was answered, so that none is done twice: for 10 minutes, and within bounds. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

REMEMBERED_S = 600.0
REMEMBERED_REQUESTS = 1000
REMEMBERED_BYTES = 4 * 1024 * 1024
"""Of answers. Beyond these the oldest are forgotten: a repeat of one would be done again."""

Key = tuple[str, str]
"""Requester and request id."""
_Address = TypeVar("_Address")


@dataclass(slots=True)
class Entry(Generic[_Address]):
    """One request. Not its arguments: they may be large."""

    received_s: float
    digest: bytes
    """Of the command and all that came with it."""
    addresses: list[_Address]
    """Who is to hear the answer; the first is the one who asked first."""
    payload: bytes | None = None
    """The newest answer."""
    is_last: bool = False
    """Nothing follows it."""


class Memory(Generic[_Address]):
    """Requests by key. One that is still being done is never forgotten: their number is the desk's to bound."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._entries: OrderedDict[Key, Entry[_Address]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Entry[_Address] | None:
        """Give what is remembered."""
        return self._entries.get(key)

    def begin(self, key: Key, digest: bytes, address: _Address, now: float) -> None:
        """Remember a request that is new."""
        self._entries[key] = Entry(now, digest, [address])

    def answered(self, key: Key, address: _Address, payload: bytes, *, is_last: bool) -> tuple[_Address, ...]:
        """Remember an answer, and give who is to hear it."""
        entry = self._of(key, address)
        if entry is None:
            return (address,)
        self.size_bytes += len(payload) - len(entry.payload or b"")
        entry.payload, entry.is_last = payload, is_last
        return tuple(entry.addresses)

    def ended(self, key: Key, address: _Address) -> tuple[_Address, ...]:
        """Note that nothing follows the answer that was given, and give who is to know."""
        entry = self._of(key, address)
        if entry is None:
            return (address,)
        entry.is_last = True
        return tuple(entry.addresses)

    def undo(self, key: Key, address: _Address) -> tuple[_Address, ...]:
        """Forget a request as if it had never come, and give who is to hear so."""
        entry = self._of(key, address)
        if entry is None:
            return (address,)
        self._drop(key)
        return tuple(entry.addresses)

    def forget(self, now: float) -> None:
        """Forget what is old, and the oldest of what is too much. Called before each `begin`."""
        for key, entry in list(self._entries.items()):
            is_too_much = len(self._entries) >= REMEMBERED_REQUESTS or self.size_bytes > REMEMBERED_BYTES
            if now - entry.received_s < REMEMBERED_S and not is_too_much:
                return
            if entry.is_last:
                self._drop(key)

    def _of(self, key: Key, address: _Address) -> Entry[_Address] | None:
        """Give the entry of this very request; another one may have the same key by now."""
        entry = self._entries.get(key)
        return entry if entry is not None and entry.addresses[0] is address else None

    def _drop(self, key: Key) -> None:
        self.size_bytes -= len(self._entries.pop(key).payload or b"")
