from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tests.contract.schemas import published_schema

from inspectd.publish.receipts import SUBSCRIBERS, Mark, Receipts

STREAM = "stream-1"


def receipt(**changes: Any) -> bytes:
    return json.dumps({"subscriber": "mes", "streamId": STREAM, "upToSeq": 7, **changes}).encode()


def test_a_receipt_tells_how_far_a_subscriber_is() -> None:
    receipts = Receipts()
    assert receipts.take(receipt(), STREAM, 10)
    assert receipts.marks(STREAM, 12) == {"mes": Mark(7, 5)}


def test_a_mark_never_goes_back() -> None:
    """QoS 1 may bring an older one later; it is no fault."""
    receipts = Receipts()
    receipts.take(receipt(upToSeq=9), STREAM, 10)
    assert receipts.take(receipt(upToSeq=3), STREAM, 10)
    assert receipts.marks(STREAM, 10) == {"mes": Mark(9, 1)}
    assert receipts.ignored == 0


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"\xff",
        receipt(upToSeq=11),
        receipt(upToSeq=-1),
        receipt(upToSeq=True),
        receipt(upToSeq=7.0),
        receipt(upToSeq="7"),
        receipt(upToSeq=None),
        receipt(streamId="another"),
        receipt(streamId=None),
        receipt(subscriber="a/b"),
        receipt(subscriber=""),
        receipt(subscriber=5),
        receipt(subscriber="x" * 65),
    ],
)
def test_a_receipt_that_cannot_be_true_is_counted_and_changes_nothing(payload: bytes) -> None:
    receipts = Receipts()
    assert not receipts.take(payload, STREAM, 10)
    assert (receipts.ignored, dict(receipts.marks(STREAM, 10))) == (1, {})


def test_a_retained_receipt_is_ignored() -> None:
    """It would come again at each connect, for ever."""
    receipts = Receipts()
    assert not receipts.take(receipt(), STREAM, 10, retain=True)
    assert receipts.ignored == 1


def test_a_new_stream_begins_with_nobody() -> None:
    receipts = Receipts()
    receipts.take(receipt(), STREAM, 10)
    assert dict(receipts.marks("stream-2", 3)) == {}
    assert receipts.take(receipt(streamId="stream-2", upToSeq=1), "stream-2", 3)
    assert receipts.marks("stream-2", 3) == {"mes": Mark(1, 2)}


def test_the_table_is_bounded_and_forgets_who_was_not_heard_for_longest() -> None:
    receipts = Receipts()
    for number in range(SUBSCRIBERS):
        receipts.take(receipt(subscriber=f"s{number}"), STREAM, 10)
    receipts.take(receipt(subscriber="s0", upToSeq=8), STREAM, 10)
    receipts.take(receipt(subscriber="new"), STREAM, 10)
    marks = receipts.marks(STREAM, 10)
    assert len(marks) == SUBSCRIBERS
    assert {"s0", "new"} <= marks.keys()
    assert "s1" not in marks


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text(), max_size=2)
KEYS = st.sampled_from(["subscriber", "streamId", "upToSeq"])


@given(
    payload=st.binary(max_size=100)
    | st.dictionaries(KEYS, VALUES | st.just(STREAM) | st.integers(0, 12)).map(
        lambda values: json.dumps(values).encode()
    )
)
def test_no_receipt_whatever_raises_or_is_taken_against_the_schema(payload: bytes) -> None:
    """Anyone may write to the broker."""
    receipts = Receipts()
    if receipts.take(payload, STREAM, 10):
        assert Draft202012Validator(published_schema("ack")).is_valid(json.loads(payload))
    assert all(0 <= mark.up_to_seq <= 10 and mark.behind >= 0 for mark in receipts.marks(STREAM, 10).values())
