"""The camera child's loop: grab, number, write into a free slot, announce. Waits for nobody but its camera.

Order matters: a number is on the ledger before anything can be said about it, and main alone tells which slots are
free. A finite source under `pace: lossless` is the only one that waits for a slot.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from inspectd.camera import Ended, Nothing, Picture, Source, Unreadable
from inspectd.camera.sources import create_source
from inspectd.health.progress import ProgressPage, Word
from inspectd.ledger import Ledger
from inspectd.records import Code
from inspectd.worker.channel import Channel
from inspectd.worker.frames import PoolSpec, slot_bytes
from inspectd.worker.pool import Pool

TURN_S = 0.1
"""Longest wait at one place, so that messages are read in time."""
GROW_S = 3.0
"""Main answers with a larger pool within this time, or the picture is recorded as too large."""


def run_camera(name: str, channel: Channel, progress: ProgressPage) -> None:
    """Serve one camera until told to stop. Raises SourceError (the host restarts us) and ChannelClosed."""
    channel.send({"t": "hello"})
    message, descriptors = channel.expect("open", TURN_S)
    ledger = Ledger(descriptors[0])
    source = create_source(name, message["source"])
    try:
        facts = source.open(message["first"], ledger.last + 1)
        channel.send({"t": "opened", "facts": asdict(facts), "bytes": slot_bytes(facts.width_px, facts.height_px)})
        loop = _Loop(channel, progress, ledger, source, lossless=message["lossless"])
        if message["skip"]:
            loop.give_up_next("the camera process died twice of it")
        loop.run()
    finally:
        source.close()


class _Loop:
    def __init__(
        self, channel: Channel, progress: ProgressPage, ledger: Ledger, source: Source, *, lossless: bool
    ) -> None:
        self._channel, self._progress, self._ledger, self._source = channel, progress, ledger, source
        self._lossless = lossless
        self._pool: Pool | None = None
        self._free: list[int] = []
        self._generation = 0
        self._stop = self._ended = self._refused = False

    def give_up_next(self, reason: str) -> None:
        """Give the next picture its number and no look: a file that crashes the decoder must not be met for ever."""
        wall_s = time.time()
        self._announce(
            _lost(self._ledger.take(), Code.PICTURE_UNREADABLE, reason, Unreadable(reason, time.monotonic(), wall_s))
        )

    def run(self) -> None:
        while not self._stop:
            if self._pool is None or self._ended or (self._lossless and not self._free):
                self._channel.wait(TURN_S)
            else:
                self._turn(self._source.grab(self._ledger.last + 1, TURN_S))
            self._progress.count(Word.TURNS)
            self._read_messages()

    def _turn(self, grab: Picture | Unreadable | Nothing | Ended) -> None:
        if isinstance(grab, Picture):
            self._picture(self._ledger.take(), grab)
        elif isinstance(grab, Unreadable):
            number = self._ledger.take()
            self._announce(_lost(number, Code.PICTURE_UNREADABLE, grab.reason, grab))
        elif isinstance(grab, Ended):
            self._ended = True
            self._channel.send_patiently({"t": "ended"}, TURN_S)

    def _picture(self, number: int, picture: Picture) -> None:
        pool = self._pool
        if pool is not None and not pool.fits(picture.pixels):
            pool = self._grow(picture)
        height, width = picture.pixels.shape[:2]
        if pool is None:
            reason = f"{picture.name or 'picture'} of {width} × {height} px: no frame pool for that size"
            self._announce(_lost(number, Code.PICTURE_FORMAT, reason, picture))
            return
        if not self._free:
            self._announce(_lost(number, Code.NO_FREE_SLOT, "no free frame slot", picture))
            return
        slot = self._free.pop()
        self._generation += 1
        pool.write(slot, number, self._generation, picture.pixels)
        message = {"t": "frame", "n": number, "p": pool.spec.pool, "s": slot, "g": self._generation, "w": width}
        message |= {"h": height, "at": picture.captured_s, "wall": picture.captured_wall_s}
        message |= {"acq": picture.acquisition_s, "name": picture.name}
        if not self._announce(message):
            self._free.append(slot)

    def _announce(self, message: dict[str, Any]) -> bool:
        """Tell main. A main that does not read loses the announcement, never the number: it finds the gap."""
        if self._lossless:
            self._channel.send_patiently(message, TURN_S)
            return True
        return self._channel.send(message)

    def _grow(self, picture: Picture) -> Pool | None:
        """Ask for a pool with larger slots; None if main has none for us in time."""
        height, width = picture.pixels.shape[:2]
        self._channel.send_patiently({"t": "grow", "bytes": slot_bytes(width, height)}, TURN_S)
        deadline_s = time.monotonic() + GROW_S
        self._refused = False
        while not self._stop and not self._refused and time.monotonic() < deadline_s:
            self._read_messages()
            if self._pool is not None and self._pool.fits(picture.pixels):
                return self._pool
            self._channel.wait(TURN_S)
        return None

    def _read_messages(self) -> None:
        while (received := self._channel.receive()) is not None:
            message, descriptors = received
            if message["t"] == "free" and self._pool is not None and message["p"] == self._pool.spec.pool:
                self._free += message["slots"]
            elif message["t"] == "pool":
                self._pool = Pool(PoolSpec(**message["spec"]), descriptors[0])
                self._free = list(message["free"])
            elif message["t"] == "full":
                self._refused = True
            elif message["t"] == "stop":
                self._stop = True


def _lost(number: int, code: Code, reason: str, grab: Picture | Unreadable) -> dict[str, Any]:
    return {
        "t": "lost",
        "n": number,
        "code": int(code),
        "reason": reason,
        "at": grab.captured_s,
        "wall": grab.captured_wall_s,
        "name": grab.name,
    }
