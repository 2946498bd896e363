"""What stands on the alarm topics is what the book says, and every raising has exactly one clearing."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.docs import between_markers

from inspectd.health.alarmkinds import CAMERA, KINDS, MODEL, AlarmCode, kind_of, possible, table
from inspectd.health.alarms import COUNTS_MAX, TEXT_MAX, TEXT_PERIOD_S, AlarmBook, Change, Condition, word
from inspectd.publish.events import EventName

LOST = Condition(AlarmCode.CAMERA_LOST, "top", "gives no frames any more", blocks=True)
LETTER = Condition(AlarmCode.DEAD_LETTER, "mqtt", "result 17: larger than the broker takes (149)")
CLEAR_S = kind_of(LOST.code).clear_after_s
RAISED, CLEARED = EventName.ALARM_RAISED, EventName.ALARM_CLEARED


def told(changes: list[Change]) -> list[tuple[str, bool, EventName | None]]:
    """Topic, whether something stands on it, event."""
    return [(change.leaf, bool(change.payload), change.event.name if change.event else None) for change in changes]


def said(change: Change) -> dict[str, object]:
    document: dict[str, object] = json.loads(change.payload)
    return document


def raised(condition: Condition = LOST) -> AlarmBook:
    book = AlarmBook()
    assert book.observe([condition], 0.0, 1000.0)
    return book


def test_a_condition_raises_its_alarm_once_and_its_end_clears_it() -> None:
    book = AlarmBook()
    assert told(book.observe([LOST], 0.0, 1000.0)) == [("alarm/CameraLost/top", True, RAISED)]
    assert book.observe([LOST], 1.0, 1001.0) == []
    assert book.observe([], 2.0, 1002.0) == []
    assert told(book.observe([], 2.0 + CLEAR_S, 1007.0)) == [("alarm/CameraLost/top", False, CLEARED)]
    assert book.alarms == ()


def test_a_condition_that_comes_and_goes_every_second_is_one_alarm() -> None:
    """A loose cable must not fill the MES with a thousand events."""
    book = AlarmBook()
    changes = [change for s in range(600) for change in book.observe([LOST] if s % 2 else [], float(s), 1000.0 + s)]
    assert told(changes) == [("alarm/CameraLost/top", True, RAISED)]


def test_a_condition_that_must_hold_for_a_while_raises_nothing_before() -> None:
    """The clock is never synchronised in the first seconds."""
    unsynchronised = Condition(AlarmCode.CLOCK_UNSYNCHRONISED, "clock", "not synchronised")
    hold_s = kind_of(unsynchronised.code).raise_after_s
    book = AlarmBook()
    assert book.observe([unsynchronised], 0.0, 0.0) == []
    assert book.observe([], hold_s - 2, 0.0) == []
    assert book.observe([unsynchronised], hold_s - 1, 0.0) == []
    assert book.observe([unsynchronised], hold_s, 0.0) == []
    assert told(book.observe([unsynchronised], 2 * hold_s, 0.0)) == [("alarm/ClockUnsynchronised/clock", True, RAISED)]


def test_the_count_goes_on_over_raisings_and_restarts() -> None:
    book = raised()
    book.observe([], 1.0, 1001.0)
    book.observe([], 10.0, 1010.0)
    again = AlarmBook.from_json(book.to_json())
    [change] = again.observe([LOST], 0.0, 2000.0)
    assert (said(change)["count"], said(change)["since"]) == (2, "1970-01-01T00:33:20.000Z")


def test_a_text_with_a_number_in_it_is_told_now_and_then_and_what_blocks_at_once() -> None:
    book = AlarmBook()
    texts = [Condition(LOST.code, "top", f"no frame for {s} s") for s in range(21)]
    changes = [change for s, condition in enumerate(texts) for change in book.observe([condition], float(s), 0.0)]
    assert [said(change)["text"] for change in changes] == [f"no frame for {s} s" for s in (0, 10, 20)]
    assert TEXT_PERIOD_S == 10
    [change] = book.observe([LOST], 21.0, 0.0)
    assert (said(change)["blocks"], change.event) == ("ready", None)


def test_what_has_happened_stays_until_it_is_confirmed() -> None:
    book = AlarmBook()
    [change] = book.pulse(LETTER, 1000.0)
    assert told([change]) == [("alarm/DeadLetter/mqtt", True, RAISED)]
    assert (said(change)["active"], said(change)["blocks"]) == (False, "none")
    assert book.observe([], 1e6, 1e6) == []
    [seen] = book.acknowledge(code="DeadLetter")
    assert (said(seen)["acknowledged"], said(seen)["confirmed"]) == (True, False)
    assert book.acknowledge() == []
    assert told(book.confirm_all()) == [("alarm/DeadLetter/mqtt", False, CLEARED)]


def test_what_happens_a_thousand_times_a_second_is_one_message_a_second() -> None:
    """And whoever had seen the first has not seen the others."""
    book = AlarmBook()
    book.pulse(LETTER, 1000.0)
    book.acknowledge()
    assert not [change for _ in range(1000) for change in book.pulse(LETTER, 1000.5)]
    [change] = book.observe([], 1.0, 1001.0)
    assert (said(change)["count"], said(change)["acknowledged"], change.event) == (1001, False, None)


def test_only_what_can_be_confirmed_away_may_simply_happen() -> None:
    with pytest.raises(ValueError, match="CameraLost is a condition"):
        AlarmBook().pulse(LOST, 0.0)


def test_confirming_an_active_alarm_marks_it_and_its_end_clears_it() -> None:
    full = Condition(AlarmCode.OUTBOX_FULL, "storage", "results 1 to 9 given up", blocks=True)
    book = raised(full)
    [change] = book.confirm_all()
    assert (said(change)["active"], said(change)["acknowledged"], said(change)["confirmed"]) == (True, True, True)
    assert book.confirm_all() == []
    book.observe([], 1.0, 0.0)
    assert told(book.observe([], 100.0, 0.0)) == [("alarm/OutboxFull/storage", False, CLEARED)]


def test_a_latched_alarm_that_ends_unconfirmed_stays_inactive_and_may_come_again() -> None:
    full = Condition(AlarmCode.OUTBOX_FULL, "storage", "results 1 to 9 given up", blocks=True)
    book = raised(full)
    book.acknowledge()
    book.observe([], 1.0, 0.0)
    [ended] = book.observe([], 100.0, 0.0)
    assert (said(ended)["active"], said(ended)["blocks"], ended.event) == (False, "none", None)
    [again] = book.observe([full], 101.0, 0.0)
    assert (said(again)["active"], said(again)["count"], said(again)["acknowledged"]) == (True, 2, False)
    assert again.event is None


def test_acknowledging_takes_a_code_a_source_both_or_all() -> None:
    conditions = [Condition(AlarmCode.CAMERA_LOST, name, "x") for name in ("top", "side")]
    conditions.append(Condition(AlarmCode.CAMERA_CHANGED, "top", "x"))

    def acknowledged(code: str | None, source: str | None) -> int:
        book = AlarmBook()
        book.observe(conditions, 0.0, 0.0)
        return len(book.acknowledge(code, source))

    asked = [("CameraLost", None), (None, "top"), ("CameraLost", "top"), (None, None), ("CameraLost", "mqtt")]
    assert [acknowledged(*what) for what in asked] == [2, 2, 1, 3, 0]


def test_at_a_start_every_topic_that_can_have_something_old_is_said_again() -> None:
    """Also what the journal does not know, because it was damaged, and cameras that are not there any more."""
    book = raised(Condition(AlarmCode.CAMERA_LOST, "old", "x"))
    book.observe([LOST], 1.0, 0.0)
    book.observe([LOST], 100.0, 0.0)
    changes = book.everything(["top", "side"], ["defects"])
    standing = {change.leaf for change in changes if change.payload}
    empty = {change.leaf for change in changes if not change.payload}
    assert standing == {"alarm/CameraLost/top"}
    assert {
        "alarm/CameraLost/old",
        "alarm/CameraLost/side",
        "alarm/GoldenFailed/defects",
        "alarm/DeadLetter/mqtt",
    } < empty
    assert not [change for change in changes if change.event is not None]
    assert len(changes) == len(possible(["top", "side"], ["defects"])) + 1


def test_what_was_active_before_a_restart_and_is_over_is_cleared_after_it() -> None:
    book = AlarmBook.from_json(raised().to_json())
    assert book.observe([], 5000.0, 2000.0) == []
    assert told(book.observe([], 5000.0 + CLEAR_S, 2005.0)) == [("alarm/CameraLost/top", False, CLEARED)]


def test_an_alarm_of_a_newer_release_is_cleared() -> None:
    text = raised().to_json().replace("CameraLost", "CameraTired")
    [change] = AlarmBook.from_json(text).observe([], 0.0, 0.0)
    assert told([change]) == [("alarm/CameraTired/top", False, CLEARED)]


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"alarms":[[1]],"counts":[]}', '{"alarms":[],"counts":[["a"]]}', "7"]
)
def test_what_is_no_book_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="these are not alarms"):
        AlarmBook.from_json(text)


def test_an_empty_text_is_an_empty_book() -> None:
    assert AlarmBook.from_json("").alarms == ()


def test_neither_texts_nor_counts_grow_without_end() -> None:
    """The journal writes them with every commit."""
    book = AlarmBook()
    for number in range(2 * COUNTS_MAX):
        book.pulse(Condition(AlarmCode.CHALLENGE_FAILED, f"camera-{number}", "x" * 10_000), 0.0)
        book.confirm_all()
    book.pulse(LETTER, 0.0)
    book.observe([Condition(LOST.code, "top", "x" * 10_000)], 0.0, 0.0)
    assert len(book.to_json()) < COUNTS_MAX * 50 + 3 * TEXT_MAX


def test_every_code_has_cause_cure_severity_and_a_source() -> None:
    assert set(KINDS) == set(AlarmCode)
    for code, kind in KINDS.items():
        assert 1 <= kind.severity <= 1000
        assert kind.sources, code
        assert kind.cause.endswith(".")
        assert kind.cure.endswith(".")
        assert kind.clear_after_s >= 1, "one look a second: less would let it flap"
        assert not kind.latched or "onfirm" in kind.cure, "whoever reads the cure must know that it stays until then"


def test_every_pair_of_code_and_source_makes_a_topic() -> None:
    for code, source in possible(["top"], ["defects"]):
        assert re.fullmatch(r"[A-Za-z0-9_-]+", source), code
    assert {source for kind in KINDS.values() for source in kind.sources} == {
        CAMERA, MODEL, "mqtt", "storage", "clock", "station",
    }  # fmt: skip


def test_the_documentation_has_the_table_of_the_alarms() -> None:
    """`alarmkinds.table()` between its markers, to the letter."""
    assert between_markers("alarms") == table()


SOURCES = {CAMERA: ["top", "side"], MODEL: ["defects"]}
CONDITIONS = st.sampled_from(
    [Condition(code, name, text, blocks)
     for code in (AlarmCode.CAMERA_LOST, AlarmCode.CLOCK_UNSYNCHRONISED, AlarmCode.OUTBOX_FULL, AlarmCode.DEAD_LETTER)
     for source in KINDS[code].sources
     for name in SOURCES.get(source, [source])
     for text in ("one", "two")
     for blocks in (True, False)]
)  # fmt: skip
LATCHED = CONDITIONS.filter(lambda condition: KINDS[condition.code].latched)


class Histories(RuleBasedStateMachine):
    """The daemon with its book, a broker that retains, the journal, and whoever reads the events."""

    @initialize()
    def begin(self) -> None:
        self.book, self.journal = AlarmBook(), ""
        self.now = 0.0
        self.broker: dict[str, bytes] = {}
        self.events: list[tuple[str, EventName]] = []
        self.waiting: list[Change] = []

    def happen(self, changes: list[Change], *, told: bool = True) -> None:
        """Events and book are committed together; only then is it published, unless the power goes before."""
        self.journal = self.book.to_json()
        self.events += [(change.leaf, change.event.name) for change in changes if change.event is not None]
        if told:
            self.publish(changes)

    def publish(self, changes: list[Change]) -> None:
        for change in changes:
            self.broker.pop(change.leaf, None)
            if change.payload:
                self.broker[change.leaf] = change.payload

    @rule(conditions=st.lists(CONDITIONS, max_size=4), passed_s=st.sampled_from([0.5, 1.0, 7.0, 100.0]))
    def observe(self, conditions: list[Condition], passed_s: float) -> None:
        self.now += passed_s
        self.happen(self.book.observe(conditions, self.now, self.now))
        assert self.book.matching() == list(self.book.alarms), "nothing waits to be told"

    @rule(condition=LATCHED)
    def pulse(self, condition: Condition) -> None:
        self.happen(self.book.pulse(condition, self.now))

    @rule(code=st.sampled_from([None, "CameraLost", "DeadLetter"]), source=st.sampled_from([None, "top", "mqtt"]))
    def acknowledge(self, code: str | None, source: str | None) -> None:
        self.happen(self.book.acknowledge(code, source))

    @rule()
    def confirm(self) -> None:
        self.happen(self.book.confirm_all())

    @rule(conditions=st.lists(CONDITIONS, max_size=4), is_committed=st.booleans(), is_published=st.booleans())
    def crash_within_a_change(self, conditions: list[Condition], is_committed: bool, is_published: bool) -> None:
        """Whatever of commit and publication was done: after the next start all agree."""
        self.now += 100.0
        changes = self.book.observe(conditions, self.now, self.now)
        if is_committed:
            self.happen(changes, told=is_published)
        elif is_published:
            self.publish(changes)
        self.now = 0.0
        self.book = AlarmBook.from_json(self.journal)
        self.publish(self.book.everything(SOURCES[CAMERA], SOURCES[MODEL]))

    @precondition(lambda self: self.broker)
    @rule()
    def the_broker_loses_everything(self) -> None:
        """The publisher says what stands again at each connect; here as at a start."""
        self.broker = {}
        self.publish(self.book.everything(SOURCES[CAMERA], SOURCES[MODEL]))

    @invariant()
    def a_subscriber_sees_the_book(self) -> None:
        assert self.broker == {f"alarm/{alarm.code}/{alarm.source}": word(alarm) for alarm in self.book.alarms}

    @invariant()
    def raisings_and_clearings_take_turns(self) -> None:
        for leaf in {leaf for leaf, _ in self.events}:
            names = [name for one, name in self.events if one == leaf]
            assert names[0] is RAISED
            assert all(one is not other for one, other in pairwise(names))
            assert (names[-1] is RAISED) == (leaf in self.broker)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
