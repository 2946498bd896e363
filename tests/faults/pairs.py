"""Fault 45: every two of {model hangs, camera dies, broker away, disk full} at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import combinations

from tests.faults.disk import FILLER, STATE_MB, fill, fill_up
from tests.faults.fault import Fault, Setup
from tests.faults.stand import FPS, MODELS, TOP, Stand

MEANWHILE = 3 * FPS
REPAIR_S = 10.0
PAIRS = Setup("pairs", disk_mb=STATE_MB)


@contextmanager
def model_hangs(stand: Stand) -> Iterator[None]:
    """It gives no answer any more, and does not end by itself."""
    os.kill(stand.child(f"model {MODELS[TOP]}"), signal.SIGSTOP)
    yield


@contextmanager
def camera_dies(stand: Stand) -> Iterator[None]:
    """By SIGKILL."""
    os.kill(stand.child("camera top"), signal.SIGKILL)
    yield


@contextmanager
def broker_away(stand: Stand) -> Iterator[None]:
    """Killed for the time of the block."""
    stand.broker.kill()
    try:
        yield
    finally:
        stand.broker.start()


@contextmanager
def disk_full(stand: Stand) -> Iterator[None]:
    """To the last byte, the space that was kept for the journal included."""
    begin = len(stand.line.log)
    reserve = stand.state / "reserve"
    filler = fill(stand.state)
    try:
        if reserve.exists():
            stand.saw("kept for the journal are given up", begin)
        stand.until(lambda: fill_up(filler), f"{FILLER} fills the disk")
        yield
    finally:
        filler.unlink()


KINDS: Mapping[str, Callable[[Stand], AbstractContextManager[None]]] = {
    "model hangs": model_hangs,
    "camera dies": camera_dies,
    "broker away": broker_away,
    "disk full": disk_full,
}


def both(first: str, second: str) -> Callable[[Stand], str]:
    """One after the other, both for a while, and then both are over."""

    def run(stand: Stand) -> str:
        with ExitStack() as together:
            for name in (first, second):
                together.enter_context(KINDS[name](stand))
            taken = stand.line.ledger_last(TOP)
            stand.until(lambda: stand.line.ledger_last(TOP) >= taken + MEANWHILE, f"{MEANWHILE} pictures")
        stand.mark()
        stand.listener.wait_subscribed()
        stand.until_inspecting()
        stand.listener.wait_for("state", lambda states: states[-1]["ready"])
        for alarm in [name for name, document in stand.listener.alarms.items() if document is not None]:
            stand.alarm_over(alarm)
        return "both are told, and both are over"

    return run


FAULTS = tuple(
    Fault(
        45,
        f"{first} and {second}",
        "SIGSTOP of the model child, SIGKILL of the camera child, no mosquitto, tmpfs filled",
        both(first, second),
        budget_s=REPAIR_S,
        setup=PAIRS,
        variant="-" + "".join(word[0] for name in (first, second) for word in name.split()),
        is_slow=True,
        of_host="disk full" in (first, second),
    )
    for first, second in combinations(KINDS, 2)
)
