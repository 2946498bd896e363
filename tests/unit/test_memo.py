"""What the station remembers over a restart."""

from __future__ import annotations

import pytest

from inspectd.publish.memo import Memo


def test_what_was_put_is_there_after_a_restart() -> None:
    kept: list[str] = []
    memo = Memo("", kept.append)
    memo.put("day", "2026-11-30")
    memo.put("alarms", '{"a": 1}')
    again = Memo(kept[-1], kept.append)
    assert (again.get("day"), again.get("alarms"), again.get("nothing")) == ("2026-11-30", '{"a": 1}', "")


def test_the_same_again_writes_nothing() -> None:
    kept: list[str] = []
    memo = Memo("", kept.append)
    memo.put("day", "2026-11-30")
    memo.put("day", "2026-11-30")
    assert len(kept) == 1


@pytest.mark.parametrize("text", ["{", "[]", "7", '{"day": 7}'])
def test_a_memo_that_cannot_be_read_begins_anew(text: str) -> None:
    assert Memo(text, lambda _: None).get("day") == ""
