"""The driver believes an answer only under the stamp that it was asked with."""

from __future__ import annotations

from typing import Any

import pytest
from tests.played import NoTimer, PlayedHost

from inspectd.errors import WorkerError
from inspectd.lane.driver import LaneDriver, Reader
from inspectd.lane.inbox import CameraShare, WhenFull
from inspectd.lane.lane import Lane, LanePolicy
from inspectd.records import Done, Failed, Frame, Outcome, OutcomeKind
from inspectd.worker.channel import Message
from inspectd.worker.frames import PoolSpec

FRAME = Frame("top", 7, 1, 2, 5, 64, 64, captured_s=0.0, captured_wall_s=0.0)
FACTS: dict[str, Any] = {
    "model": "defects",
    "task": "detect",
    "device": "CPU",
    "precision": "f32",
    "hash": "00",
    "classes": ["open"],
}
FACTS |= {"requests": 2, "input_width_px": 64, "input_height_px": 64, "layout": "yolo", "warmup_p95_s": 0.01}


class Owner:
    """The camera's line."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.readers: set[Reader] = set()

    def pools(self) -> list[tuple[PoolSpec, int]]:
        return [(PoolSpec("top", 1, 4, 4096), 99)]

    def read(self, frame: Frame, reader: Reader) -> None:
        assert frame is FRAME
        self.readers.add(reader)

    def release(self, frame: Frame, reader: Reader) -> None:
        assert frame is FRAME
        self.readers.remove(reader)

    def model_admitted(self) -> None: ...

    def finished(self, frame: Frame, model: str, outcome: Outcome) -> None:
        assert (frame, model) == (FRAME, "defects")
        self.outcomes.append(outcome)


@pytest.fixture
def rig() -> tuple[LaneDriver, PlayedHost, Owner]:
    host, owner = PlayedHost(), Owner()
    policy = LanePolicy("defects", 0.5, 0.5, 0, WhenFull.DROP_OLDEST, {"top": CameraShare(2)})
    driver = LaneDriver(Lane(policy), "detect", {}, lambda _: host, lambda *_: NoTimer(), lambda: 0.0)
    driver.start({"top": owner})
    driver.on_hello()
    driver.on_message({"t": "admitted", "facts": FACTS})
    driver.offer(FRAME, 1.0)
    return driver, host, owner


def answer(**changes: Any) -> Message:
    return {"t": "answer", "a": 1, "n": 7, "g": 5, "k": "done", "d": [[0, 0.9, 1, 2, 3, 4]], "s": 0.01, **changes}


def test_a_new_child_is_told_of_every_pool_before_the_first_frame(rig: tuple[LaneDriver, PlayedHost, Owner]) -> None:
    _, host, _ = rig
    assert [message["t"] for message in host.sent] == ["load", "pool", "infer"]


def test_an_answer_becomes_detections_with_the_models_class_names(rig: tuple[LaneDriver, PlayedHost, Owner]) -> None:
    driver, _, owner = rig
    assert owner.readers == {("defects", 1)}
    driver.on_message(answer())
    [outcome] = owner.outcomes
    assert isinstance(outcome, Done)
    assert [(found.class_name, found.confidence, found.box.h) for found in outcome.detections] == [("open", 0.9, 4)]
    assert owner.readers == set()


@pytest.mark.parametrize("stamp", [{"n": 8}, {"g": 6}])
def test_an_answer_with_another_stamp_is_a_failure(
    rig: tuple[LaneDriver, PlayedHost, Owner], stamp: dict[str, int]
) -> None:
    """Detections of another picture must never become this part's verdict."""
    driver, _, owner = rig
    driver.on_message(answer(**stamp))
    [outcome] = owner.outcomes
    assert isinstance(outcome, Failed)
    assert outcome.kind is OutcomeKind.FAILED


def test_a_device_error_fails_the_frame_and_poisons_the_child(rig: tuple[LaneDriver, PlayedHost, Owner]) -> None:
    driver, host, owner = rig
    driver.on_message(answer(k="device", why="out of resources"))
    assert isinstance(owner.outcomes[0], Failed)
    assert host.killed == ["device error: out of resources"]


def test_frames_are_answered_at_once_while_the_model_is_in_repair(rig: tuple[LaneDriver, PlayedHost, Owner]) -> None:
    driver, host, owner = rig
    host.in_repair = True
    driver.on_ending()
    driver.on_gone("refused its file", life=1, reaped=True)
    driver.offer(FRAME, 1.0)
    assert driver.is_settled
    driver.on_message({"t": "admitted", "facts": FACTS})
    driver.offer(FRAME, 1.0)
    driver.on_message(answer(a=2))
    assert [outcome.kind for outcome in owner.outcomes[-2:]] == [OutcomeKind.UNAVAILABLE, OutcomeKind.DONE]


def test_an_unknown_message_is_the_childs_fault(rig: tuple[LaneDriver, PlayedHost, Owner]) -> None:
    driver, _, _ = rig
    with pytest.raises(WorkerError, match="unknown message 'greetings'"):
        driver.on_message({"t": "greetings"})
