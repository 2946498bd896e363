"""The watchdog: fed by finished work alone, told before it bites, with time enough for what is none too slow."""

from __future__ import annotations

import os
import threading
from configparser import RawConfigParser
from pathlib import Path

import pytest

from inspectd.drain import LONGEST_S
from inspectd.health import lastend
from inspectd.health.assess import SLACK_S, Assessor, Patience, Reading, Stage
from inspectd.health.budget import too_short
from inspectd.health.loading import Loading, cpu_s
from inspectd.health.notify import Notifier
from inspectd.health.sentinel import LAST_WORDS_S, LoopLimits, Sentinel
from inspectd.lifecycle import END_SLACK_S

UNIT = Path(__file__).parents[2] / "systemd" / "inspectd.service"


class Played:
    """A stage whose state the test sets."""

    def __init__(self, name: str, longest_s: float = 1.0) -> None:
        self.reading = Reading(0, has_work=False)
        self.stage = Stage(name, longest_s, lambda _now: self.reading)


@pytest.fixture
def stages() -> tuple[Played, Played]:
    return Played("model defects"), Played("journal")


@pytest.fixture
def assessor(stages: tuple[Played, Played]) -> Assessor:
    return Assessor([played.stage for played in stages], 0.0)


def test_a_stage_with_work_that_finishes_none_gets_no_feed(assessor: Assessor, stages: tuple[Played, Played]) -> None:
    """However well the others do: a timer that still runs hid a dead model for a night."""
    model, journal = stages
    assert assessor.assess(1.0).feed
    model.reading = Reading(0, has_work=True)
    for second in range(2, 5):
        journal.reading = Reading(second, has_work=True)
        assert not assessor.assess(float(second)).feed
    model.reading = Reading(1, has_work=True)
    journal.reading = Reading(9, has_work=True)
    assert assessor.assess(5.0).feed


def test_each_stage_may_finish_at_another_moment_since_the_last_feed(
    assessor: Assessor, stages: tuple[Played, Played]
) -> None:
    model, journal = stages
    assert assessor.assess(1.0).feed
    model.reading, journal.reading = Reading(1, has_work=True), Reading(0, has_work=True)
    assert not assessor.assess(2.0).feed
    journal.reading = Reading(1, has_work=True)
    assert assessor.assess(3.0).feed
    assert not assessor.assess(4.0).feed, "both finished before the last feed"


def test_what_stands_longer_than_its_slowest_piece_of_work_is_told_with_the_numbers(
    assessor: Assessor, stages: tuple[Played, Played]
) -> None:
    model, _ = stages
    assessor.assess(1.0)
    model.reading = Reading(0, has_work=True)
    assert not assessor.assess(1.0 + 1.0 + SLACK_S).stalled
    text = assessor.assess(4.5).stalled["model defects"]
    assert text == "model defects: has work and has finished none for 3.5 s (a piece of it takes 1.0 s at most)"


def test_a_reported_state_is_an_excuse_for_as_long_as_it_is_reported(
    assessor: Assessor, stages: tuple[Played, Played]
) -> None:
    model, _ = stages
    model.reading = Reading(0, has_work=True, excuse="the broker is away")
    assert all(assessor.assess(float(second)).feed for second in range(1, 100))
    model.reading = Reading(0, has_work=True)
    assert not assessor.assess(100.0).feed


def test_patience_ends_and_begins_anew_with_each_answer() -> None:
    patience = Patience(60.0)
    assert patience.lasts(1, 0.0, waits=True)
    assert patience.lasts(1, 60.0, waits=True)
    assert not patience.lasts(1, 61.0, waits=True)
    assert patience.lasts(2, 61.0, waits=True)
    assert patience.lasts(2, 200.0, waits=False)
    assert patience.lasts(2, 260.0, waits=True)


def test_a_watchdog_that_is_too_short_for_a_camera_is_told_with_the_arithmetic() -> None:
    """WatchdogSec=10 with a deadline of 20 s killed a daemon that worked, every 10 s."""
    stages = [Played("journal", 2.0).stage, Played("model defects", 20.0).stage]
    assert too_short(25.0, stages, 1.0) is None
    found = too_short(10.0, stages, 1.0)
    assert found is not None
    assert found.needed_s == 25.0
    assert "10 s are too short: model defects may take 20 s" in found.text
    assert "+ 2 × 2 s for a busy host + 1 s between two looks = 25 s" in found.text


def test_only_cpu_time_is_progress_of_a_compile() -> None:
    """A compile that hangs must not lengthen the start for ever; neither does a process that only now begins."""
    loading = Loading()
    assert not loading.works({7: 0.4}, 0.0)
    assert loading.works({7: 0.5}, 1.0)
    assert not loading.works({7: 0.52}, 2.0), "it wakes up now and then"
    assert not loading.works({8: 3.0}, 3.0)
    assert loading.works({7: 0.5, 8: 4.0}, 4.0)
    assert not loading.works({}, 5.0)


def test_the_cpu_time_of_a_process_is_what_the_kernel_says() -> None:
    used_s = cpu_s(os.getpid())
    assert used_s is not None
    assert abs(used_s - sum(os.times()[:2])) < 0.5
    assert cpu_s(2**22 + 1) is None


class PlayedSystemd:
    def __init__(self) -> None:
        self.triggers = 0

    def trigger_watchdog(self) -> None:
        self.triggers += 1


class Rig:
    """A sentinel whose thread and clock are the test's."""

    def __init__(self, path: Path) -> None:
        self.now, self.path, self.systemd, self.aborts = 0.0, path, PlayedSystemd(), 0
        self.sentinel = Sentinel(path, LoopLimits(5.0, 30.0, 1.0), self.systemd, lambda: self.now, self._abort)

    def _abort(self) -> None:
        self.aborts += 1

    def pass_s(self, seconds: int, *, beats: bool, stalled: str = "") -> None:
        for _ in range(seconds):
            self.now += 1.0
            if beats:
                self.sentinel.beat(stalled)
            self.sentinel.look(self.now)

    @property
    def told(self) -> str:
        return self.path.read_text("utf-8") if self.path.exists() else ""


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / lastend.STALLED)


def test_a_blocked_loop_is_named_with_its_place_and_forgotten_when_it_turns_again(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """After the kill nobody could say what had blocked it: the loop that would have told was what stood still."""
    rig.pass_s(5, beats=False)
    assert rig.told == ""
    rig.pass_s(20, beats=False)
    assert rig.told.startswith("event loop: no turn for 6.0 s; it is in ")
    assert "look (sentinel.py:" in rig.told
    assert len(caplog.records) == 1, "told once, with the stack"
    assert "pass_s" in caplog.text
    rig.pass_s(1, beats=True)
    assert rig.told == ""
    assert rig.systemd.triggers == 0


def test_a_loop_that_is_blocked_for_the_watchdogs_time_asks_for_its_end(rig: Rig) -> None:
    rig.pass_s(31, beats=False)
    assert (rig.systemd.triggers, rig.aborts) == (1, 0)
    rig.pass_s(int(LAST_WORDS_S) + 1, beats=False)
    assert (rig.systemd.triggers, rig.aborts) == (1, 1), "nobody killed it"


def test_a_stage_that_stands_still_is_on_the_disk_for_the_next_start(rig: Rig) -> None:
    rig.pass_s(3, beats=True, stalled="model defects: has work")
    assert rig.told == "model defects: has work\n"
    rig.pass_s(1, beats=True)
    assert rig.told == ""


def test_a_process_that_was_stopped_as_a_whole_is_not_taken_for_a_blocked_loop(rig: Rig) -> None:
    """A virtual machine that was moved came back after 40 s, and its daemon asked to be killed."""
    rig.pass_s(1, beats=True)
    rig.now += 40.0
    rig.sentinel.look(rig.now)
    assert (rig.told, rig.systemd.triggers) == ("", 0)


def test_an_end_that_does_not_come_is_forced(rig: Rig) -> None:
    rig.sentinel.end_within(10.0)
    rig.pass_s(10, beats=True)
    assert rig.systemd.triggers == 0
    rig.pass_s(1, beats=True)
    assert rig.systemd.triggers == 1
    assert rig.told.startswith("the end has not come within 10 s; it is in ")


def test_a_sentinel_ends_with_the_daemon_and_leaves_nothing(tmp_path: Path) -> None:
    sentinel = Sentinel(tmp_path / "stalled", LoopLimits(5.0, None, 0.01), PlayedSystemd())
    sentinel.start()
    sentinel.close()
    assert "sentinel" not in {thread.name for thread in threading.enumerate()}
    assert list(tmp_path.iterdir()) == []


def test_a_restart_by_the_watchdog_is_told_once_also_over_a_start_that_failed(tmp_path: Path) -> None:
    """The start after the watchdog's found the old ledger still held, failed, and the alarm was lost with it."""
    (tmp_path / "ended.watchdog").write_text("", "utf-8")  # the disk was full
    (tmp_path / "ended.exit-code").write_text("exited 69\n", "utf-8")
    (tmp_path / "stalled").write_text("event loop: no turn for 15.0 s\n", "utf-8")
    end = lastend.take(tmp_path)
    assert end.watchdog_text == "the watchdog ended the last run: event loop: no turn for 15.0 s"
    assert end.results == {"exit-code": "exited 69", "watchdog": ""}
    assert lastend.take(tmp_path).watchdog_text is None
    assert list(tmp_path.iterdir()) == []


def test_what_systemd_hears_is_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    notifier = Notifier({"WATCHDOG_USEC": "2000000"})
    monkeypatch.setattr(notifier, "_send", heard.append)
    notifier.lengthen_watchdog(6.5)
    notifier.extend_timeout(30.0)
    notifier.trigger_watchdog()
    assert heard == ["WATCHDOG_USEC=6500000", "EXTEND_TIMEOUT_USEC=30000000", "WATCHDOG=trigger"]
    assert notifier.watchdog_s == 6.5


def test_the_unit_gives_the_drain_its_time_and_notes_how_a_run_ended() -> None:
    """A planned stop that is cut off leaves open frames, and the broker's last will in place of the goodbye."""
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT, "utf-8")
    service = unit["Service"]
    assert int(service["TimeoutStopSec"]) > LONGEST_S + END_SLACK_S + LAST_WORDS_S
    assert int(service["TimeoutAbortSec"]) == 5
    assert f"$$STATE_DIRECTORY/{lastend.ENDED}$$SERVICE_RESULT" in service["ExecStopPost"]
