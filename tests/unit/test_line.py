"""A line outlives its camera processes: what one of them cannot do is not asked of the next for ever."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from tests.played import NoTimer, PlayedHost, pool_memory

from inspectd.accounts import Span
from inspectd.camera.child import run_camera
from inspectd.errors import WorkerError
from inspectd.health.progress import ProgressPage
from inspectd.ledger import Ledger
from inspectd.line import Line
from inspectd.lineports import Camera, ClosedFrame, LineSpec
from inspectd.records import Code, DecisionPlan, Evaluation
from inspectd.worker.channel import Channel, ChannelClosed
from inspectd.worker.frames import PoolSpec, slot_bytes

FACTS = {"camera": "top", "kind": "files", "simulated": True, "finite": True, "width_px": 64, "height_px": 64}


class PlayedBook:
    def __init__(self) -> None:
        self.frames: list[ClosedFrame] = []
        self.spans: list[tuple[Span, Code]] = []

    def closed(self, line: Camera, closed: ClosedFrame) -> None:
        assert line.name == "top"
        self.frames.append(closed)

    def lost(self, line: Camera, span: Span, code: Code, reason: str) -> None:
        assert line.name == "top"
        assert reason
        self.spans.append((span, code))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger.open(tmp_path / "top")
    opened.begin(0, simulated=True)
    yield opened
    opened.close()


@pytest.fixture
def line(ledger: Ledger) -> Iterator[tuple[Line, PlayedHost, PlayedBook]]:
    host, book = PlayedHost(), PlayedBook()
    plan = DecisionPlan((("defects", True),), (), Evaluation.NOT_OK)
    spec = LineSpec("top", {}, simulated=True, lossless=True, fps=None, deadline_s=1.0, plan=plan)
    built = Line(spec, ledger, 0, {}, book, lambda: 4, lambda _: host, lambda *_: NoTimer(), lambda: 0.0)
    built.start()
    yield built, host, book
    built.close()


def live_and_die(line: Line, life: int) -> None:
    line.on_hello()
    line.on_message({"t": "opened", "facts": FACTS, "bytes": slot_bytes(64, 64)})
    line.on_ending()
    line.on_gone("was ended by SIGSEGV (native code crashed)", life=life, reaped=True)


def test_a_picture_that_kills_the_camera_process_twice_is_given_up(
    line: tuple[Line, PlayedHost, PlayedBook],
) -> None:
    """A folder with one file that crashes the decoder stood still for ever, and no record named it."""
    tested, host, _ = line
    for life in (1, 2):
        live_and_die(tested, life)
    tested.on_hello()
    assert [message["skip"] for message in host.sent if message["t"] == "open"] == [False, False, True]


def test_a_process_that_got_further_is_not_blamed(line: tuple[Line, PlayedHost, PlayedBook]) -> None:
    tested, host, book = line
    for life in (1, 2, 3):
        live_and_die(tested, life)
        tested.ledger.take()
        tested.on_gone("again", life=life, reaped=True)
    assert not any(message["skip"] for message in host.sent if message["t"] == "open")
    assert book.spans == [((number, number), Code.INTERRUPTED) for number in (1, 2, 3)]


@pytest.mark.parametrize("number", [0, 2, -1, "x"])
def test_a_number_that_is_not_on_the_ledger_is_the_childs_fault(
    line: tuple[Line, PlayedHost, PlayedBook], number: object
) -> None:
    tested, _, book = line
    tested.ledger.take()
    message = {"t": "lost", "n": number, "code": 405, "reason": "bad", "at": 0.0, "wall": 0.0, "name": ""}
    with pytest.raises(WorkerError, match="not understood"):
        tested.on_message(message)
    assert book.frames == []


def test_the_camera_child_gives_up_the_picture_that_it_was_told_to(tmp_path: Path, ledger: Ledger) -> None:
    """The picture gets its number and its record (405); the next one is read."""
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for name in ("a.png", "b.png"):
        cv2.imwrite(str(pictures / name), np.zeros((64, 64), np.uint8))
    ours, theirs = Channel.pair()
    page, descriptor = ProgressPage.create("test")
    source = {"kind": "files", "path": str(pictures), "fps": None, "loop": False, "pace": "lossless"}
    its_channel = Channel(theirs)
    child = threading.Thread(target=_run, args=(its_channel, ProgressPage(descriptor)), daemon=True)
    child.start()
    assert ours.expect("hello", 1.0)
    ours.send({"t": "open", "source": source, "first": 1, "lossless": True, "skip": True}, (ledger.descriptor,))
    assert ours.expect("opened", 1.0)
    lost, _ = ours.expect("lost", 1.0)
    assert (lost["n"], lost["code"]) == (1, 405)
    spec = PoolSpec("top", 1, 2, slot_bytes(64, 64))
    ours.send(
        {"t": "pool", "spec": {name: getattr(spec, name) for name in PoolSpec.__slots__}, "free": [0, 1]},
        (pool_memory(spec),),
    )
    frame, _ = ours.expect("frame", 1.0)
    assert (frame["n"], Path(frame["name"]).name) == (2, "b.png")
    ours.send({"t": "stop"})
    child.join(10)
    assert not child.is_alive()
    os.close(descriptor)
    its_channel.close()
    ours.close()
    page.close()


def _run(channel: Channel, progress: ProgressPage) -> None:
    try:
        run_camera("top", channel, progress)
    except ChannelClosed:
        return
