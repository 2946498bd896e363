"""A wrong message on the wire fails the test that heard it."""

from __future__ import annotations

import pytest
from tests.contract.examples import examples
from tests.contract.heard import Heard

BASE = "plant/line/aoi-01"


def test_what_the_contract_allows_is_given_as_a_document() -> None:
    heard = Heard(BASE)
    assert heard.take(f"{BASE}/heartbeat", examples()["heartbeat"])["n"] == 86_400
    assert heard.take(f"{BASE}/replay/mes-1", examples()["result-ok"])["seq"] == 4711
    assert heard.take(f"{BASE}/alarm/CameraLost/top", b"") is None
    assert heard.count == 3
    heard.check()


def test_every_wrong_message_is_told_at_the_end() -> None:
    """It does not end the client's thread: the test goes on and says everything at once."""
    heard = Heard(BASE)
    heard.take(f"{BASE}/heartbeat", b'{"n":-1}')
    heard.take(f"{BASE}/weather", b"{}")
    heard.take(f"{BASE}/status", b"")
    with pytest.raises(
        AssertionError, match=r"(?s)3 of 3 messages .*heartbeat: .*no schema for the topic 'weather'.*status"
    ):
        heard.check()


@pytest.mark.parametrize("topic", [f"{BASE}/cmd/replay", f"{BASE}/ack", "another/station/result"])
def test_what_a_client_said_and_what_another_station_says_is_not_judged(topic: str) -> None:
    heard = Heard(BASE)
    assert heard.take(topic, b"\xff") is None
    assert heard.count == 0
    heard.check()
