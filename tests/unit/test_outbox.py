from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from inspectd.publish.effects import Ack, DeadLetter, Denied, Effect, Message, Read, Row, Send, Settled
from inspectd.publish.flight import MAX_IN_FLIGHT
from inspectd.publish.hold import REFUSED_RETRY_S
from inspectd.publish.outbox import HEADER_BYTES, Outbox
from inspectd.publish.queues import QUEUE_MESSAGES, REPLAY_MESSAGES
from inspectd.publish.retained import DENIED_RETRY_S
from inspectd.publish.stream import READY_BYTES, READY_ROWS, UNSPECIFIC_TRIES
from inspectd.publish.suspects import DEADLY_BREAKS, FORGIVEN_S

RESULT = "base/result"
RESULT_PLACES = MAX_IN_FLIGHT - 2


@dataclass(frozen=True, slots=True)
class Stored:
    seq: int
    payload: bytes


def rows(first: int, last: int, size: int = 10) -> list[Stored]:
    return [Stored(seq, b"%d" % seq + b" " * size) for seq in range(first, last + 1)]


def outbox(acked_seq: int = 0, last_seq: int = 0) -> Outbox:
    return Outbox(RESULT, acked_seq=acked_seq, last_seq=last_seq)


def sent(effects: Iterable[Effect]) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send)]


def seqs(effects: Iterable[Effect]) -> list[int]:
    return [int(send.payload.split()[0]) for send in sent(effects) if send.topic == RESULT]


def acks(effects: Iterable[Effect]) -> list[int]:
    return [effect.seq for effect in effects if isinstance(effect, Ack)]


def letters(effects: Iterable[Effect]) -> list[int]:
    return [effect.seq for effect in effects if isinstance(effect, DeadLetter)]


def denied(box: Outbox) -> tuple[str, ...]:
    return box.denied


def verdict(expires_s: float, text: bytes = b"verdict") -> Message:
    return Message("base/verdict", text, expires_s=expires_s)


def test_nothing_is_sent_without_a_connection() -> None:
    box = outbox()
    assert box.committed(rows(1, 3), 0.0) == []
    assert seqs(box.connected(1.0)) == [1, 2, 3]


def test_results_leave_in_seq_order_and_never_take_the_last_two_places() -> None:
    """At most ten messages in flight in all, and two places that results never take."""
    box = outbox()
    box.connected(0.0)
    effects = box.committed(rows(1, 20), 0.0)
    assert seqs(effects) == list(range(1, RESULT_PLACES + 1))
    assert len(sent(box.verdict(verdict(9.0), 0.0))) == 1
    assert len(sent(box.verdict(verdict(9.0), 0.0))) == 1
    assert sent(box.verdict(verdict(9.0), 0.0)) == []
    assert box.stats().in_flight == MAX_IN_FLIGHT


def test_states_leave_a_place_for_a_verdict() -> None:
    box = outbox()
    box.connected(0.0)
    for number in range(20):
        box.direct(Message("base/event", b"%d" % number), 0.0)
    assert box.stats().in_flight == MAX_IN_FLIGHT - 1
    assert len(sent(box.verdict(verdict(9.0), 0.0))) == 1


def test_the_broker_may_ask_for_a_smaller_window() -> None:
    """CONNACK's Receive Maximum."""
    box = outbox()
    box.committed(rows(1, 20), 0.0)
    assert seqs(box.connected(0.0, window=1)) == [1]


def test_the_high_water_mark_is_the_contiguous_one() -> None:
    """Acknowledgements may come out of order."""
    box = outbox()
    box.connected(0.0)
    first, second, third = sent(box.committed(rows(1, 3), 0.0))
    assert acks(box.puback(third.token, 0, 0.0)) == []
    assert acks(box.puback(first.token, 0, 0.0)) == [1]
    assert acks(box.puback(second.token, 0, 0.0)) == [3]


def test_after_a_break_everything_unacknowledged_goes_again_with_the_same_bytes() -> None:
    box = outbox()
    box.connected(0.0)
    before = sent(box.committed(rows(1, 4), 0.0))
    box.puback(before[0].token, 0, 0.0)
    box.puback(before[2].token, 0, 0.0)
    box.disconnected()
    after = sent(box.connected(1.0))
    assert [send.payload for send in after] == [before[1].payload, before[3].payload]
    assert not {send.token for send in after} & {send.token for send in before}


def test_an_acknowledgement_from_an_old_connection_means_nothing() -> None:
    box = outbox()
    box.connected(0.0)
    (old,) = sent(box.committed(rows(1, 1), 0.0))
    box.disconnected()
    box.connected(1.0)
    assert box.puback(old.token, 0, 1.0) == []
    assert box.stats().unsent == 1


def test_no_subscriber_counts_as_delivered_and_is_counted() -> None:
    """Reason 16."""
    box = outbox()
    box.connected(0.0)
    (send,) = sent(box.committed(rows(1, 1), 0.0))
    assert acks(box.puback(send.token, 0x10, 0.0)) == [1]
    assert box.stats().no_subscribers == 1


def test_not_authorised_stops_sending_and_loses_nothing() -> None:
    """Reason 135: results wait until the next connection, or 30 s, and one of them finds out for all."""
    box = outbox()
    box.connected(0.0)
    before = sent(box.committed(rows(1, 20), 0.0))
    for send in before:
        assert box.puback(send.token, 0x87, 0.0) == []
    assert box.stats().refused
    assert box.stats().unsent == 20
    assert box.tick(REFUSED_RETRY_S - 1) == []
    (probe,) = sent(box.tick(REFUSED_RETRY_S))
    assert probe.payload == before[0].payload
    rest = box.puback(probe.token, 0, REFUSED_RETRY_S)
    assert seqs(rest) == list(range(2, 2 + RESULT_PLACES))
    assert not box.stats().refused


def test_verdicts_go_on_while_results_are_refused() -> None:
    box = outbox()
    box.connected(0.0)
    (send,) = sent(box.committed(rows(1, 1), 0.0))
    box.puback(send.token, 0x87, 0.0)
    assert len(sent(box.verdict(verdict(9.0), 0.0))) == 1


def test_a_new_connection_tries_refused_results_at_once() -> None:
    box = outbox()
    box.connected(0.0)
    (send,) = sent(box.committed(rows(1, 1), 0.0))
    box.puback(send.token, 0x87, 0.0)
    box.disconnected()
    assert seqs(box.connected(1.0)) == [1]


def test_a_used_up_quota_is_waited_out_longer_each_time() -> None:
    """Reason 151: the same row again, after 1, 2, 4 s."""
    box, now = outbox(), 0.0
    box.connected(now)
    (send,) = sent(box.committed(rows(1, 1), now))
    for pause_s in (1.0, 2.0, 4.0):
        assert box.puback(send.token, 0x97, now) == []
        assert box.tick(now + pause_s - 0.1) == []
        now += pause_s
        (send,) = sent(box.tick(now))
    assert box.stats().dead_letters == 0


def test_a_refused_payload_is_put_aside_and_its_substitute_goes_first() -> None:
    """Reason 153: dead letter, and a small result in its place, of the same seq."""
    box = outbox()
    box.connected(0.0)
    effects = sent(box.committed(rows(1, 20), 0.0))
    refused = box.puback(effects[0].token, 0x99, 0.0)
    assert letters(refused) == [1]
    assert sent(refused) == []
    assert seqs(box.substituted(1, b"1 small", 0.0)) == [1]


def test_a_row_without_a_substitute_counts_as_done() -> None:
    box = outbox()
    box.connected(0.0)
    (first, _) = sent(box.committed(rows(1, 2), 0.0))
    box.puback(first.token, 0x99, 0.0)
    assert acks(box.substituted(1, None, 0.0)) == [1]


def test_a_refused_substitute_is_dropped_and_the_rest_goes_on() -> None:
    box = outbox()
    box.connected(0.0)
    (first,) = sent(box.committed(rows(1, 1), 0.0))
    box.puback(first.token, 0x99, 0.0)
    (substitute,) = sent(box.substituted(1, b"1 small", 0.0))
    assert acks(box.puback(substitute.token, 0x99, 0.0)) == [1]
    assert box.stats().dead_letters == 1


def test_a_row_refused_without_a_reason_is_put_aside_in_the_end() -> None:
    """Reason 128 again and again: one poisonous row must not stop the line's results for ever."""
    box, now = outbox(), 0.0
    box.connected(now)
    (send,) = sent(box.committed(rows(1, 1), now))
    for _ in range(UNSPECIFIC_TRIES - 1):
        assert letters(box.puback(send.token, 0x80, now)) == []
        now += 60.0
        (send,) = sent(box.tick(now))
    assert letters(box.puback(send.token, 0x80, now)) == [1]


def test_an_oversize_row_never_reaches_the_client_and_the_rest_goes_on() -> None:
    """One message over the broker's packet limit makes the client reconnect for ever."""
    box = outbox()
    box.connected(0.0, packet_limit_bytes=HEADER_BYTES + len(RESULT) + 100)
    effects = box.committed([*rows(1, 1), *rows(2, 2, size=200), *rows(3, 3)], 0.0)
    assert seqs(effects) == [1]
    assert letters(effects) == [2]
    assert seqs(box.substituted(2, b"2 small", 0.0)) == [2, 3]


def test_an_oversize_substitute_is_dropped() -> None:
    box = outbox()
    box.connected(0.0, packet_limit_bytes=HEADER_BYTES + len(RESULT) + 20)
    assert letters(box.committed(rows(1, 1, size=200), 0.0)) == [1]
    assert acks(box.substituted(1, b" " * 30, 0.0)) == [1]


def test_a_row_that_makes_the_broker_hang_up_is_found_and_put_aside() -> None:
    """3.1.1 brokers have no other way to refuse one message; without this it would be sent for ever."""
    box, poison, seen = outbox(), 5, set[int]()
    box.committed(rows(1, 20), 0.0)
    put_aside: list[int] = []
    for _ in range(40):
        waiting = sent(box.connected(0.0))
        while waiting:
            send = waiting.pop(0)
            seq = int(send.payload.split()[0])
            if seq == poison:
                put_aside += letters(box.disconnected(by_broker=True))
                break
            seen.add(seq)
            waiting += sent(box.puback(send.token, 0, 0.0))
        if put_aside:
            box.substituted(poison, None, 0.0)
            break
    assert put_aside == [poison]
    for send in sent(box.connected(0.0)):
        seen.add(int(send.payload.split()[0]))
    assert poison not in seen


def test_a_broker_that_dies_often_costs_no_row() -> None:
    """Only a break that the broker made, at the same row, is held against the row."""
    box = outbox()
    box.committed(rows(1, 3), 0.0)
    for _ in range(3 * DEADLY_BREAKS):
        box.connected(0.0)
        assert letters(box.disconnected(by_broker=False)) == []
    for _ in range(3 * DEADLY_BREAKS):
        box.committed(rows(box.stats().last_seq + 1, box.stats().last_seq + 1), 0.0)
        (first, *_) = sent(box.connected(0.0))
        box.puback(first.token, 0, 0.0)
        assert letters(box.disconnected(by_broker=True)) == []


def test_a_verdict_passes_any_backlog() -> None:
    box = outbox()
    box.committed(rows(1, 400), 0.0)
    box.verdict(verdict(9.0), 0.0)
    assert sent(box.connected(1.0))[0].topic == "base/verdict"


def test_a_verdict_goes_with_what_is_left_of_its_expiry() -> None:
    """After a break too: paho alone would give it the full time again."""
    box = outbox()
    box.connected(0.0)
    (first,) = sent(box.verdict(verdict(9.0), 0.0))
    box.disconnected()
    (again,) = sent(box.connected(6.5))
    assert (first.expiry_s, again.expiry_s) == (9, 2)


def test_verdicts_go_again_in_their_order_after_a_break() -> None:
    box = outbox()
    box.connected(0.0)
    for text in (b"1", b"2", b"3"):
        box.verdict(verdict(9.0, text), 0.0)
    box.disconnected()
    box.verdict(verdict(9.0, b"4"), 0.0)
    assert [send.payload for send in sent(box.connected(1.0))] == [b"1", b"2", b"3", b"4"]


def test_a_verdict_whose_time_is_over_is_never_sent_and_is_counted() -> None:
    box = outbox()
    box.verdict(verdict(2.0), 0.0)
    assert sent(box.connected(2.0)) == []
    assert box.stats().verdicts_expired == 1
    box.disconnected()
    box.verdict(verdict(4.0), 2.0)
    box.tick(4.0)
    assert box.stats().verdicts_expired == 2
    assert box.stats().verdicts_waiting == 0


def test_beyond_its_bound_the_oldest_verdict_is_dropped_and_counted() -> None:
    box = outbox()
    for number in range(QUEUE_MESSAGES + 3):
        box.verdict(verdict(9.0, b"%d" % number), 0.0)
    assert sent(box.connected(0.0))[0].payload == b"3"
    assert box.stats().verdicts_overflowed == 3


def test_a_refused_verdict_is_counted_and_not_repeated() -> None:
    box = outbox()
    box.connected(0.0)
    (send,) = sent(box.verdict(verdict(9.0), 0.0))
    assert box.puback(send.token, 0x87, 0.0) == [Denied("base/verdict", 0x87)]
    assert box.stats().verdicts_refused == 1


def test_an_answer_that_would_be_too_large_a_packet_is_not_sent() -> None:
    """Correlation data come from anyone and are echoed: without this they could make the broker hang up."""
    box = outbox()
    box.connected(0.0, packet_limit_bytes=2000)
    message = Message("base/rsp/mes", b"x" * 100, correlation=b"y" * 1900, ref=3)
    assert box.direct(message, 0.0) == [Denied("base/rsp/mes", 0x95), Settled(3, 0x95)]


def test_everything_retained_is_published_again_after_each_connect_and_the_latest_wins() -> None:
    box = outbox()
    box.retain(Message("base/status", b"online", retain=True), 0.0)
    box.retain(Message("base/state", b"1", retain=True), 0.0)
    box.retain(Message("base/state", b"2", retain=True), 0.0)
    assert [send.payload for send in sent(box.connected(0.0))] == [b"online", b"2"]
    box.disconnected()
    assert [send.payload for send in sent(box.connected(1.0))] == [b"online", b"2"]


def test_a_retained_topic_is_taken_away_by_an_empty_payload_once() -> None:
    """An alarm that is gone is cleared after the next connect, and not for ever."""
    box = outbox()
    box.retain(Message("base/alarm/CameraLost/top", b"", retain=True), 0.0)
    (send,) = sent(box.connected(0.0))
    box.disconnected()
    (send,) = sent(box.connected(1.0))
    box.puback(send.token, 0, 1.0)
    box.disconnected()
    assert sent(box.connected(2.0)) == []


def test_a_retained_message_whose_time_is_over_is_not_published_again() -> None:
    box = outbox()
    box.retain(Message("base/health", b"1", qos=0, retain=True, expires_s=30.0), 0.0)
    assert [send.expiry_s for send in sent(box.connected(10.0))] == [20]
    box.disconnected()
    assert sent(box.connected(30.0)) == []


def test_a_heartbeat_is_dropped_without_a_connection_and_a_direct_event_waits() -> None:
    box = outbox()
    box.direct(Message("base/heartbeat", b"1", qos=0), 0.0)
    box.direct(Message("base/event", b"2", qos=1), 0.0)
    assert [send.payload for send in sent(box.connected(0.0))] == [b"2"]
    assert box.stats().dropped == 1


def test_heartbeats_end_with_their_connection() -> None:
    """They waited behind a broker that had stopped to answer; an hour later they would say that we are alive."""
    box = outbox()
    box.connected(0.0, window=1)
    assert len(sent(box.direct(Message("base/event", b"1"), 0.0))) == 1
    for number in range(3):
        assert box.direct(Message("base/heartbeat", b"%d" % number, qos=0), 0.0) == []
    box.disconnected()
    assert [send.payload for send in sent(box.connected(7200.0))] == [b"1"]
    assert box.stats().dropped == 3


def test_a_direct_message_that_has_waited_too_long_is_not_sent_and_is_counted() -> None:
    """On a connection that stands, too: a heartbeat behind a broker that has stopped for a while."""
    box = outbox()
    box.connected(0.0, window=1)
    (first,) = sent(box.direct(Message("base/event", b"1"), 0.0))
    box.direct(Message("base/event", b"2", expires_s=5.0), 0.0)
    box.direct(Message("base/heartbeat", b"3", qos=0, expires_s=6.0), 0.0)
    assert [(send.payload, send.expiry_s) for send in sent(box.puback(first.token, 0, 5.0))] == [(b"3", 1)]
    assert box.stats().dropped == 1


def test_heartbeats_that_make_the_broker_hang_up_are_found_though_each_is_another() -> None:
    """No two of them say the same, and none outlives its connection: they are known by their topic."""
    box, now, breaks = outbox(), 0.0, 0
    box.retain(Message("base/status", b"online", retain=True), now)
    for number in range(60):
        now += 1.0
        todo = box.tick(now) if box.connected_now else box.connected(now)
        todo += box.direct(Message("base/heartbeat", b"beat %d" % (100 + number), qos=0), now)
        while todo and box.connected_now:
            effect = todo.pop(0)
            if isinstance(effect, Send) and effect.topic == "base/heartbeat":
                breaks += 1
                box.disconnected(by_broker=True)
            elif isinstance(effect, Send) and effect.token:
                todo += box.puback(effect.token, 0, now)
    assert breaks <= 2 * DEADLY_BREAKS
    assert box.connected_now
    assert denied(box) == ("base/heartbeat",)


def test_a_topic_stays_denied_until_the_broker_takes_something_there() -> None:
    """On whatever connection; all alarms are one topic, and so are all answers."""
    box = outbox()
    box.connected(0.0)
    for topic in ("base/event", "base/alarm/CameraLost/top", "base/alarm/CameraLost/side", "base/rsp/mes"):
        (send,) = sent(box.direct(Message(topic, b""), 0.0))
        box.puback(send.token, 0x87, 0.0)
    assert denied(box) == ("base/event", "base/alarm/#", "base/rsp/#")
    box.disconnected()
    box.connected(1.0)
    assert denied(box) == ("base/event", "base/alarm/#"), "the next answer may never come"
    (event, alarm) = (
        sent(box.direct(Message(topic, b""), 1.0))[0] for topic in ("base/event", "base/alarm/DeadLetter/mqtt")
    )
    box.puback(alarm.token, 0, 1.0)
    assert denied(box) == ("base/event",)
    box.puback(event.token, 0x10, 1.0)
    assert denied(box) == ()


@pytest.mark.parametrize(
    ("topic", "reason"),
    [("base/event", 0x97), ("base/rsp/mes", 0x95), ("base/replay/mes", 0x99), ("mes/answers", 0x87)],
)
def test_what_the_broker_cannot_take_now_and_what_a_requester_makes_of_it_is_no_denial(topic: str, reason: int) -> None:
    """Else anyone could raise our alarm, by asking for an answer that is too large or goes where nothing may go."""
    box = outbox()
    box.connected(0.0)
    (send,) = sent(box.direct(Message(topic, b""), 0.0))
    assert Denied(topic, reason) in box.puback(send.token, reason, 0.0)
    assert denied(box) == ()


def test_on_a_denied_topic_even_qos_0_asks_for_an_answer() -> None:
    """Else nobody would hear that the broker takes it again."""
    box = outbox()
    box.connected(0.0)
    box.retain(Message("base/health", b"x" * 70_000, 0, retain=True), 0.0)
    assert denied(box) == ("base/health",)
    (send,) = sent(box.retain(Message("base/health", b"small", 0, retain=True), 1.0))
    assert send.qos == 1
    box.puback(send.token, 0, 1.0)
    assert denied(box) == ()
    assert [send.qos for send in sent(box.retain(Message("base/health", b"small", 0, retain=True), 2.0))] == [0]


def test_a_retained_message_that_was_refused_is_tried_again_while_the_connection_stands() -> None:
    """An access list may be mended at any time; the alarm that tells of it could never be cleared."""
    box = outbox()
    box.connected(0.0)
    (send,) = sent(box.retain(Message("base/state", b"1", retain=True), 0.0))
    box.puback(send.token, 0x87, 0.0)
    assert box.tick(1.0) == []
    assert box.tick(1.0 + DENIED_RETRY_S - 0.1) == []
    (again,) = sent(box.tick(1.0 + DENIED_RETRY_S))
    assert again.payload == b"1"
    box.puback(again.token, 0, 40.0)
    assert denied(box) == ()
    assert box.tick(100.0) == []


def test_a_retained_topic_that_may_not_be_taken_away_is_tried_again() -> None:
    """It lies on the broker until it is: an alarm that is over."""
    box = outbox()
    box.connected(0.0)
    (send,) = sent(box.retain(Message("base/alarm/CameraLost/top", b"", retain=True), 0.0))
    box.puback(send.token, 0x87, 0.0)
    box.disconnected()
    (again,) = sent(box.connected(1.0))
    box.puback(again.token, 0, 1.0)
    box.disconnected()
    assert sent(box.connected(2.0)) == []


def test_the_oldest_direct_message_is_dropped_beyond_the_bound_and_its_sender_hears_of_it() -> None:
    box = outbox()
    box.direct(Message("base/event", b"", ref=7), 0.0)
    for _ in range(QUEUE_MESSAGES - 1):
        box.direct(Message("base/event", b""), 0.0)
    assert box.direct(Message("base/event", b""), 0.0) == [Settled(7, None)]


def test_a_replay_waits_for_live_results() -> None:
    box = outbox()
    box.connected(0.0)
    live = sent(box.committed(rows(1, 20), 0.0))
    assert sent(box.replay(Message("base/replay/mes", b"old", ref=1), 0.0)) == []
    topics = []
    while live:
        effects = box.puback(live.pop(0).token, 0, 0.0)
        topics += [send.topic for send in sent(effects)]
        live += sent(effects)
    assert topics == [RESULT] * (20 - RESULT_PLACES) + ["base/replay/mes"]


def test_a_full_replay_queue_refuses() -> None:
    box = outbox()
    box.connected(0.0, window=1)
    for ref in range(REPLAY_MESSAGES + 1):
        box.replay(Message("base/replay/mes", b"", ref=ref), 0.0)
    assert box.replay(Message("base/replay/mes", b"", ref=999), 0.0) == [Settled(999, None)]


def test_a_replay_ends_with_its_connection() -> None:
    """One that made the broker hang up would be sent for ever; whoever asked hears of it and asks again."""
    box = outbox()
    box.connected(0.0, window=1)
    for ref in (1, 2):
        box.replay(Message("base/replay/mes", b"", ref=ref), 0.0)
    assert box.disconnected(by_broker=True) == [Settled(1, None), Settled(2, None)]
    assert box.connected(1.0) == []
    box.disconnected()
    assert box.replay(Message("base/replay/mes", b"", ref=3), 0.0) == [Settled(3, None)]


def test_no_result_is_put_aside_for_what_another_message_did() -> None:
    """A state too large for a 3.1.1 broker breaks every connection; the results in flight beside it are innocent."""
    box = outbox()
    box.committed(rows(1, 3), 0.0)
    box.retain(Message("base/meta", b"large", retain=True), 0.0)
    put_away: list[Effect] = []
    for _ in range(3 * DEADLY_BREAKS):
        box.connected(0.0)
        put_away += box.disconnected(by_broker=True)
        if put_away:
            break
    assert [effect.topic for effect in put_away if isinstance(effect, Denied)] == ["base/meta"]
    assert len(put_away) == 1


def test_whoever_asks_hears_what_became_of_a_message() -> None:
    box = outbox()
    box.connected(0.0)
    (send,) = sent(box.direct(Message("base/event", b"", ref=5), 0.0))
    assert box.puback(send.token, 0, 0.0) == [Settled(5, 0)]


@pytest.mark.parametrize("size", [10, READY_BYTES // 100])
def test_memory_holds_a_bounded_number_of_rows_and_the_journal_is_asked_for_the_rest(size: int) -> None:
    """An outage of a day: the rows are on disk, not in memory."""
    box, stored = outbox(), rows(1, 2000, size)
    box.committed(stored, 0.0)
    assert box.stats().ready_rows <= READY_ROWS
    assert box.stats().ready_bytes <= READY_BYTES + size + 10
    assert seqs(drain(box, stored)) == list(range(1, 2001))
    assert box.stats().unsent == 0


def test_after_a_start_the_unsent_rows_are_read_from_the_journal() -> None:
    box = outbox(acked_seq=3, last_seq=6)
    (read,) = box.connected(0.0)
    assert read == Read(4, 6, 200)
    assert isinstance(read, Read)
    assert seqs(box.loaded(read, rows(4, 6), 0.0)) == [4, 5, 6]


def test_rows_that_the_journal_no_longer_has_are_skipped_and_counted() -> None:
    """A full journal gave up unsent rows: the stream goes on behind them, and the mark passes them."""
    box = outbox(acked_seq=0, last_seq=10)
    (read,) = box.connected(0.0)
    assert isinstance(read, Read)
    effects = box.loaded(read, [*rows(4, 5), *rows(8, 8)], 0.0)
    assert seqs(effects) == [4, 5, 8]
    assert acks(effects) == [3]
    assert box.stats().lost == 7


def test_a_journal_that_cannot_be_read_is_asked_again() -> None:
    box = outbox(last_seq=3)
    (read,) = box.connected(0.0)
    assert isinstance(read, Read)
    assert box.loaded(read, None, 0.0) == []
    assert box.tick(1.0) == [read]


Poison = Callable[[bytes], bool]


def serve(box: Outbox, is_poison: Poison, *, now: float = 0.0, connects: int = 30) -> tuple[list[bytes], list[Effect]]:
    """Be a broker of 3.1.1 that hangs up at some payloads, until a connection stays; gives what it took."""
    taken: list[bytes] = []
    done: list[Effect] = []
    for _ in range(connects):
        todo = box.connected(now)
        while todo:
            effect = todo.pop(0)
            done.append(effect)
            if isinstance(effect, DeadLetter):
                todo += box.substituted(effect.seq, b"%d small" % effect.seq, now)
            elif isinstance(effect, Send):
                if is_poison(effect.payload):
                    break
                taken.append(effect.payload)
                todo += box.puback(effect.token, 0, now) if effect.token else []
        else:
            return taken, done
        for ended in box.disconnected(by_broker=True):
            done.append(ended)
            if isinstance(ended, DeadLetter):
                done += box.substituted(ended.seq, b"%d small" % ended.seq, now)
    pytest.fail(f"the broker still hangs up after {connects} connections")


def large(payload: bytes) -> bool:
    return len(payload) > 1000


@pytest.mark.parametrize("qos", [0, 1])
def test_a_retained_message_that_makes_the_broker_hang_up_is_found_and_left_out(qos: int) -> None:
    """Whatever its quality of service: while there are suspects, each message asks for an acknowledgement."""
    box = outbox()
    box.retain(Message("base/status", b"online", retain=True), 0.0)
    box.retain(Message("base/meta", b"x" * 2000, qos, retain=True), 0.0)
    box.retain(Message("base/health", b"fine", 0, retain=True), 0.0)
    box.committed(rows(1, 30), 0.0)
    taken, effects = serve(box, large)
    (denied,) = [effect for effect in effects if isinstance(effect, Denied) and effect.why]
    assert (denied.topic, denied.why.endswith("(2000 bytes)")) == ("base/meta", True)
    assert letters(effects) == []
    assert {b"online", b"fine", *(row.payload for row in rows(1, 30))} == set(taken)
    assert box.stats().unsent == 0


def test_what_is_as_large_on_the_same_topic_is_not_tried_for_half_an_hour() -> None:
    """Counters come every 10 s: each of them would end the connection again."""
    box = outbox()
    box.retain(Message("base/counters", b"x" * 2000, 0, retain=True), 0.0)
    serve(box, large)
    assert sent(box.retain(Message("base/counters", b"y" * 2000, 0, retain=True), 1.0)) == []
    assert len(sent(box.retain(Message("base/counters", b"small", 0, retain=True), 2.0))) == 1
    box.retain(Message("base/counters", b"z" * 2000, 0, retain=True), 3.0)
    box.disconnected()
    assert [send.payload[:1] for send in sent(box.connected(FORGIVEN_S))] == [b"z"]


def test_a_direct_message_and_a_verdict_that_make_the_broker_hang_up_are_given_up() -> None:
    """Whoever waits for a message hears that it was refused, or asks again and is told the same."""
    box = outbox()
    box.direct(Message("base/event", b"x" * 2000), 0.0)
    box.direct(Message("base/event", b"small"), 0.0)
    box.verdict(verdict(9.0, b"y" * 2000), 0.0)
    taken, effects = serve(box, large)
    assert [effect.topic for effect in effects if isinstance(effect, Denied)] == ["base/verdict", "base/event"]
    assert taken == [b"small"]
    assert box.stats().verdicts_refused == 1


def test_after_a_suspicious_end_messages_go_one_at_a_time_until_all_are_cleared() -> None:
    box = outbox()
    box.connected(0.0)
    box.committed(rows(1, 3), 0.0)
    box.disconnected(by_broker=True)
    under_way = sent(box.connected(0.0))
    for _ in range(3):
        (send,) = under_way
        under_way = sent(box.puback(send.token, 0, 0.0))
    assert len(sent(box.committed(rows(4, 9), 0.0))) == 6


def test_a_stream_of_oversize_results_costs_one_hunt() -> None:
    """Each hunt is four connections; one a second would be no connection at all."""
    box = outbox()
    box.committed([*rows(1, 5), *rows(6, 6, size=2000), *rows(7, 9)], 0.0)
    serve(box, large)
    effects = box.committed([*rows(10, 10, size=3000), *rows(11, 11)], 1.0)
    assert letters(effects) == [10]
    assert seqs(effects) == []
    assert seqs(box.substituted(10, b"10 small", 1.0)) == [10, 11]


def test_a_result_put_aside_by_bad_luck_does_not_cost_those_as_large() -> None:
    """A broker that died at it three times took larger ones before: the size is not to blame."""
    box = outbox()
    box.connected(0.0)
    (larger,) = sent(box.committed(rows(1, 1, size=500), 0.0))
    box.puback(larger.token, 0, 0.0)
    box.disconnected()
    box.committed(rows(2, 2, size=100), 0.0)
    _, effects = serve(box, rows(2, 2, size=100)[0].payload.__eq__)
    assert letters(effects) == [2]
    assert len(sent(box.committed(rows(3, 3, size=200), 0.0))) == 1


def test_a_broker_that_hangs_up_at_any_result_is_a_refusal_and_costs_one_row() -> None:
    """Some brokers of 3.1.1 end the connection at what their access list forbids: everything else waits, complete."""
    box = outbox()
    box.committed(rows(1, 20), 0.0)
    box.retain(Message("base/status", b"online", retain=True), 0.0)
    taken, effects = serve(box, lambda payload: payload != b"online")
    assert box.stats().refused
    assert set(taken) == {b"online"}
    assert letters(effects) == [1]
    assert box.stats().unsent == 20
    box.disconnected()
    assert seqs(box.connected(1.0)) == [], "a new connection changes nothing"
    (probe, *_) = [send for send in sent(ticked(box, 1.0 + REFUSED_RETRY_S)) if send.topic == RESULT]
    assert probe.payload == b"1 small"
    box.puback(probe.token, 0, 40.0)
    assert not box.stats().refused


def ticked(box: Outbox, now: float) -> list[Effect]:
    """Acknowledge what is under way, and let time pass."""
    for token in range(1, 1000):
        box.puback(token, 0, now - 1.0)
    return box.tick(now)


def test_a_message_that_somebody_waits_for_ends_with_its_connection_and_one_not_yet_sent_does_not() -> None:
    """A durable event is sent again by its sender, who must know that the connection ended; and not twice."""
    box = outbox()
    assert box.direct(Message("base/event", b"early", ref=1), 0.0) == []
    assert [send.payload for send in sent(box.connected(0.0))] == [b"early"]
    assert box.disconnected() == [Settled(1, None)]
    assert sent(box.connected(1.0)) == []


class Sorted(NamedTuple):
    """One message of a random lot."""

    kind: str
    qos: int
    is_poison: bool


@given(
    lot=st.lists(
        st.builds(Sorted, st.sampled_from(["result", "retain", "direct"]), st.integers(0, 1), st.booleans()),
        max_size=12,
    )
)
def test_whatever_makes_the_broker_hang_up_is_found_and_everything_else_arrives(lot: list[Sorted]) -> None:
    box, good, seq = outbox(), set[bytes](), 0
    for number, (kind, qos, is_poison) in enumerate(lot):
        text = b"poison" if is_poison else b"good"
        if kind == "result":
            seq += 1
            stored = Stored(seq, b"%d %s" % (seq, text) + b" " * 300 * is_poison)
            box.committed([stored], 0.0)
            good |= {stored.payload} if not is_poison else set()
            continue
        payload = b"%s %d" % (text, number)
        good |= {payload} if not is_poison and (kind == "retain" or qos) else set()
        if kind == "retain":
            box.retain(Message(f"base/{number}", payload, qos, retain=True), 0.0)
        else:
            box.direct(Message("base/event", payload, qos), 0.0)
    taken, _ = serve(box, lambda payload: b"poison" in payload, connects=100)
    assert good <= set(taken)
    assert box.stats().unsent == 0
    assert not box._suspects.careful


def drain(box: Outbox, stored: Sequence[Row]) -> list[Effect]:
    """Connect and acknowledge everything at once; gives all effects in order."""
    todo, done = box.connected(0.0), list[Effect]()
    while todo:
        effect = todo.pop(0)
        done.append(effect)
        if isinstance(effect, Send):
            todo += box.puback(effect.token, 0, 0.0)
        elif isinstance(effect, Read):
            found = [row for row in stored if effect.from_seq <= row.seq <= effect.to_seq][: effect.limit]
            todo += box.loaded(effect, found, 0.0)
    return done


class OutboxMachine(RuleBasedStateMachine):
    """Commits, breaks, refusals, losses in any order: no row is skipped or forgotten, and the mark only rises."""

    @initialize()
    def begin(self) -> None:
        self.box = outbox()
        self.now = 0.0
        self.stored: dict[int, Stored] = {}
        self.flying: dict[int, Send] = {}
        self.reads: list[Read] = []
        self.dead: list[int] = []
        self.gone: set[int] = set()
        self.delivered: set[int] = set()
        self.acked = 0
        self.checked = 0

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.flying |= {effect.token: effect} if effect.token else {}
            elif isinstance(effect, Read):
                self.reads.append(effect)
            elif isinstance(effect, DeadLetter):
                self.dead.append(effect.seq)
            elif isinstance(effect, Ack):
                assert effect.seq > self.acked, "the mark only rises"
                self.acked = effect.seq

    @rule(count=st.integers(1, 700), size=st.sampled_from([10, 10, 10, 90_000]))
    def commit(self, count: int, size: int) -> None:
        last = len(self.stored)
        new = rows(last + 1, last + (count if size == 10 else 1), size)
        self.stored |= {row.seq: row for row in new}
        self.take(self.box.committed(new, self.now))

    @rule()
    def connect(self) -> None:
        if not self.box.connected_now:
            self.take(self.box.connected(self.now))

    @rule(by_broker=st.booleans())
    def lose_connection(self, by_broker: bool) -> None:
        if self.box.connected_now:
            self.flying.clear()
            self.take(self.box.disconnected(by_broker=by_broker))

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), reason=st.sampled_from([0, 0, 0, 0x10, 0x80, 0x87, 0x97, 0x99]))
    def acknowledge(self, data: st.DataObject, reason: int) -> None:
        token = data.draw(st.sampled_from(sorted(self.flying)))
        send = self.flying.pop(token)
        if send.topic == RESULT and reason < 0x80:
            self.delivered.add(int(send.payload.split()[0]))
        self.take(self.box.puback(token, reason, self.now))

    @precondition(lambda self: self.reads)
    @rule(lose=st.booleans(), fail=st.booleans())
    def answer_read(self, lose: bool, fail: bool) -> None:
        read = self.reads.pop(0)
        if fail:
            self.take(self.box.loaded(read, None, self.now))
            return
        found = [
            row for seq, row in self.stored.items() if read.from_seq <= seq <= read.to_seq and seq not in self.gone
        ]
        if lose and found:
            self.gone.add(found[0].seq)
            found.pop(0)
        self.take(self.box.loaded(read, found[: read.limit], self.now))

    @precondition(lambda self: self.dead)
    @rule(substitute=st.booleans())
    def put_aside(self, substitute: bool) -> None:
        seq = self.dead.pop(0)
        self.gone.add(seq)
        self.take(self.box.substituted(seq, b"%d small" % seq if substitute else None, self.now))

    @rule(pass_s=st.sampled_from([0.1, 1.0, 31.0]))
    def wait(self, pass_s: float) -> None:
        self.now += pass_s
        self.take(self.box.tick(self.now))

    @rule(topic=st.sampled_from("abc"), qos=st.integers(0, 1), is_gone=st.booleans())
    def retain(self, topic: str, qos: int, is_gone: bool) -> None:
        payload = b"" if is_gone else b"x"
        self.take(self.box.retain(Message(f"base/{topic}", payload, qos, retain=True), self.now))

    @rule()
    def tell(self) -> None:
        self.take(self.box.direct(Message("base/event", b"%f" % self.now), self.now))

    @rule()
    def judge(self) -> None:
        self.take(self.box.verdict(verdict(self.now + 2.0), self.now))

    @invariant()
    def nothing_below_the_mark_is_missing(self) -> None:
        """Whatever is at or below the mark was delivered, put aside, or lost by the journal."""
        missing = [seq for seq in range(self.checked + 1, self.acked + 1) if seq not in self.delivered | self.gone]
        assert not missing
        self.checked = self.acked

    @invariant()
    def what_waits_is_bounded_and_above_the_mark(self) -> None:
        assert self.box.stats().in_flight <= MAX_IN_FLIGHT
        assert self.box.stats().ready_rows <= READY_ROWS + MAX_IN_FLIGHT
        waiting = list(self.box.stream.waiting())
        assert len(waiting) == len(set(waiting))
        assert all(seq > self.box.stats().acked_seq for seq in waiting)

    def teardown(self) -> None:
        """In the end, with a healthy broker and journal, everything is out."""
        for _ in range(10_000):
            self.connect()
            if self.dead:
                self.put_aside(substitute=False)
            elif self.reads:
                self.answer_read(lose=False, fail=False)
            elif self.flying:
                token, send = self.flying.popitem()
                if send.topic == RESULT:
                    self.delivered.add(int(send.payload.split()[0]))
                self.take(self.box.puback(token, 0, self.now))
            elif self.box.stats().unsent:
                self.wait(31.0)
            else:
                break
        self.wait(31.0)
        while self.flying:
            self.take(self.box.puback(self.flying.popitem()[0], 0, self.now))
        assert self.box.stats().unsent == 0
        assert not self.box._suspects.careful, "a suspicion ends when everything is out"
        self.nothing_below_the_mark_is_missing()


TestOutboxMachine = OutboxMachine.TestCase
TestOutboxMachine.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
