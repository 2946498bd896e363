"""FramesSkipped: one event a second at most, and no frame of it forgotten."""

from __future__ import annotations

from tests.journaling import inspection, lost

from inspectd.publish.skips import Skips
from inspectd.records import Code, Evaluation


def test_what_was_skipped_in_a_second_is_one_event() -> None:
    skips = Skips()
    skips.note(lost(3, 7, Code.SKIPPED_BY_POLICY))
    skips.note(inspection(8, Evaluation.UNDEFINED, code=Code.QUEUE_FULL))
    skips.note(lost(9, 9, Code.SKIPPED_BY_POLICY))
    event = skips.take()
    assert event is not None
    assert (event.name, event.source) == ("FramesSkipped", "top")
    assert event.detail == {"count": 7, "fromFrameId": 3, "toFrameId": 9, "reason": "test"}
    assert skips.take() is None


def test_what_was_inspected_or_lost_otherwise_is_no_skip() -> None:
    skips = Skips()
    skips.note(inspection(1))
    skips.note(lost(2, 5, Code.INTERRUPTED))
    skips.note(lost(6, 90, Code.NO_FREE_SLOT, upper_bound=True))
    assert skips.take() is None


def test_cameras_take_turns_and_go_on_counting_while_they_wait() -> None:
    """One event a second for the whole station, as the contract says."""
    skips = Skips()
    skips.note(lost(1, 1, camera="top"))
    skips.note(lost(1, 2, camera="side"))
    first = skips.take()
    skips.note(lost(2, 9, camera="top"))
    skips.note(lost(3, 3, camera="side"))
    second, third = skips.take(), skips.take()
    assert [event and (event.source, event.detail["count"]) for event in (first, second, third)] == [
        ("top", 1),
        ("side", 3),
        ("top", 8),
    ]
