"""Receipts: how far each subscriber says that it has stored our results. To look at; nothing waits for them. Pure.

Anyone may write to the topic. A receipt that cannot be true is counted and changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from inspectd.publish.requests import document_of, is_name

SUBSCRIBERS = 64
"""Beyond it the one that was not heard for longest is forgotten."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far one subscriber is."""

    up_to_seq: int
    behind: int
    """Results after it."""


class Receipts:
    """The highest receipt of each subscriber, in the stream of the moment."""

    def __init__(self) -> None:
        self.ignored = 0
        """Receipts that were none, were of another stream, or were for what does not exist yet."""
        self._stream_id = ""
        self._up_to: OrderedDict[str, int] = OrderedDict()

    def take(self, payload: bytes, stream_id: str, last_seq: int, *, retain: bool = False) -> bool:
        """Take a message of `{base}/ack`; false: it was ignored. `stream_id`, `last_seq`: our own, of this moment."""
        self._begin(stream_id)
        document = document_of(payload)
        if retain or isinstance(document, str):
            self.ignored += 1
            return False
        name, up_to_seq = document.get("subscriber"), document.get("upToSeq")
        is_ours = document.get("streamId") == stream_id and type(up_to_seq) is int and 0 <= up_to_seq <= last_seq
        if not (is_ours and isinstance(name, str) and is_name(name)):
            self.ignored += 1
            return False
        self._up_to[name] = max(up_to_seq or 0, self._up_to.get(name, 0))
        self._up_to.move_to_end(name)
        if len(self._up_to) > SUBSCRIBERS:
            self._up_to.popitem(last=False)
        return True

    def marks(self, stream_id: str, last_seq: int) -> Mapping[str, Mark]:
        """Give how far each subscriber is, by name. After a new stream has begun: those heard since."""
        self._begin(stream_id)
        return MappingProxyType(
            {name: Mark(up_to_seq, max(0, last_seq - up_to_seq)) for name, up_to_seq in sorted(self._up_to.items())}
        )

    def _begin(self, stream_id: str) -> None:
        if stream_id != self._stream_id:
            self._stream_id = stream_id
            self._up_to.clear()
