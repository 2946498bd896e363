"""How we stand with the broker: when another client with our id is the likely reason for what happens."""

from __future__ import annotations

import pytest

from inspectd.errors import OutsideError
from inspectd.publish.broker import BrokerSettings, Ending
from inspectd.publish.reasons import TAKEN_OVER
from inspectd.publish.standing import ALONE_S, CUT_OFF, Standing

CUT = Ending("the broker closed the connection", by_broker=True)


class Story:
    """A standing with the time in it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.standing = Standing(BrokerSettings("broker", 1883, "a/b", lambda: b""), lambda: 0.5)

    def connection(self, ending: Ending, lasts_s: float = 2.0) -> None:
        self.standing.trying(self.now)
        self.standing.connected(self.now)
        self.now += lasts_s
        self.standing.ended(ending, self.now)
        self.now += self.standing.pause_s(self.now)


def test_a_broker_that_says_so_is_believed_at_once() -> None:
    story = Story()
    story.connection(Ending("another client uses the same client id", by_broker=True, code=TAKEN_OVER))
    assert story.standing.duplicate


def test_connections_cut_off_in_a_row_without_a_reason_are_taken_for_another_client() -> None:
    """Mosquitto 2.0.11 throws the older of two out without a word: two stations fought all night, and no alarm came."""
    story = Story()
    for number in range(1, CUT_OFF + 1):
        assert not story.standing.duplicate, number
        story.connection(CUT)
    assert story.standing.duplicate
    story.standing.connected(story.now)
    assert not story.standing.is_alone_again(story.now + ALONE_S - 1)
    assert story.standing.is_alone_again(story.now + ALONE_S)
    assert not story.standing.duplicate


@pytest.mark.parametrize("between", ["a broker that is away", "a connection that stood long", "an end of our own"])
def test_what_another_client_does_not_do_is_not_taken_for_one(between: str) -> None:
    story = Story()
    for _ in range(CUT_OFF - 1):
        story.connection(CUT)
    if between == "a broker that is away":
        story.standing.trying(story.now)
        story.standing.not_connected(OutsideError("refused"), story.now)
    elif between == "a connection that stood long":
        story.connection(CUT, lasts_s=ALONE_S + 1)
    else:
        story.connection(Ending("the broker is silent"))
    story.connection(CUT)
    assert not story.standing.duplicate
