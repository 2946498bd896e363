"""The numbers of the health message are those of the parts: counts of one period, states of the moment."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.played import NoTimer, PlayedHost

from inspectd.accounts import Span
from inspectd.errors import StorageError
from inspectd.health.census import Census, Sources, percentile
from inspectd.health.host import FolderSize, HostWatch, free_bytes, rss_bytes
from inspectd.health.outage import OutageEstimate
from inspectd.lane.driver import LaneDriver
from inspectd.lane.inbox import CameraShare, WhenFull
from inspectd.lane.lane import Lane
from inspectd.lane.policy import LanePolicy
from inspectd.ledger import Ledger
from inspectd.line import Line
from inspectd.lineports import Camera, ClosedFrame, LineSpec
from inspectd.publish.effects import OutboxStats
from inspectd.publish.healthreport import Breaker, ModelState
from inspectd.publish.journalrows import StoredResult
from inspectd.publish.messages import Clock
from inspectd.records import Code, DecisionPlan, Done, Evaluation, Failed, Frame
from inspectd.worker.frames import slot_bytes
from inspectd.worker.ports import FailureKind, Told

WALL_S = 1_796_000_000.0
MODEL: dict[str, Any] = {
    "model": "defects",
    "task": "detect",
    "device": "CPU",
    "precision": "f32",
    "hash": "00",
    "classes": ["open"],
}
MODEL |= {"requests": 2, "input_width_px": 64, "input_height_px": 64, "layout": "yolo", "warmup_p95_s": 0.01}
CAMERA = {"camera": "top", "kind": "files", "simulated": True, "finite": True, "width_px": 64, "height_px": 64}
STATS = OutboxStats(
    acked_seq=0, last_seq=0, in_flight=0, ready_rows=0, ready_bytes=0, verdicts_waiting=0, held_reason=None,
    refused=False, sent=0, no_subscribers=0, refusals=0, dead_letters=0, lost=0, verdicts_expired=0,
    verdicts_overflowed=0, verdicts_refused=0, dropped=0,
)  # fmt: skip


class NoBook:
    def closed(self, line: Camera, closed: ClosedFrame) -> None: ...

    def lost(self, line: Camera, span: Span, code: Code, reason: str) -> None: ...


@dataclass
class PlayedWire:
    connected: bool = True
    connects: int = 1
    counts: dict[str, int] = field(default_factory=dict)

    def stats(self) -> OutboxStats:
        return OutboxStats(**{name: self.counts.get(name, getattr(STATS, name)) for name in OutboxStats.__slots__})


@dataclass
class PlayedJournal:
    asked: list[tuple[int, int, int]] = field(default_factory=list)
    answers: list[asyncio.Future[tuple[StoredResult, ...]]] = field(default_factory=list)

    def read(self, from_seq: int, to_seq: int, limit: int) -> asyncio.Future[tuple[StoredResult, ...]]:
        self.asked.append((from_seq, to_seq, limit))
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]


def stored(seq: int, wall_s: float) -> StoredResult:
    return StoredResult(seq, bytes(16), "top", seq, Evaluation.OK, 1, 0, wall_s, b"{}")


class Rig:
    """A camera and a model without processes; the test plays their children."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self.folder = folder
        (folder / "journal").mkdir()
        self.ledger = Ledger.open(folder / "top")
        self.ledger.begin(0, simulated=True)
        self.model_host, self.camera_host = PlayedHost(), PlayedHost()
        policy = LanePolicy("defects", 0.5, 0.5, 0, WhenFull.DROP_OLDEST, {"top": CameraShare(1)})
        self.driver = LaneDriver(
            Lane(policy), "detect", {}, lambda _: self.model_host, lambda *_: NoTimer(), self.clock
        )
        spec = LineSpec(
            "top", {}, simulated=True, lossless=True, fps=None, deadline_s=1.0,
            plan=DecisionPlan((("defects", True),), (), Evaluation.NOT_OK),
        )  # fmt: skip
        self.line = Line(
            spec, self.ledger, 0, {"defects": self.driver}, NoBook(), lambda: 4, lambda _: self.camera_host,
            lambda *_: NoTimer(), self.clock,
        )  # fmt: skip
        self.wire, self.journal = PlayedWire(), PlayedJournal()
        self.commits_s: deque[float] = deque(maxlen=512)
        sources = Sources(
            lines={"top": self.line},
            lanes={"defects": self.driver},
            wire=lambda: self.wire,
            journal=self.journal,
            storage_path=folder,
            outbox_limit_bytes=10**9,
            commits_s=self.commits_s,
            clock_state=lambda: Clock("ntp", synced=True, max_error_s=0.002),
            certificate_days=lambda: 42.0,
        )
        self.census = Census(sources, HostWatch(folder / "nothing"), self.clock, lambda: WALL_S)

    def clock(self) -> float:
        return self.now

    def open(self) -> None:
        self.driver.start({"top": self.line})
        self.driver.crew.serving.on_hello()
        self.driver.crew.serving.on_message({"t": "admitted", "facts": MODEL})
        self.line.start()
        self.line.enable()
        self.line.on_hello()
        self.line.on_message({"t": "opened", "facts": CAMERA, "bytes": slot_bytes(64, 64)})

    def frame(self) -> int:
        number = self.ledger.take()
        pool = next(message for message in self.camera_host.sent if message["t"] == "pool")
        message: dict[str, Any] = {"t": "frame", "n": number, "p": pool["spec"]["pool"], "s": self.line.received}
        message |= {"g": number, "w": 64, "h": 64, "at": self.now - 0.002, "wall": WALL_S, "acq": 0.0, "name": ""}
        self.line.on_message(message)
        return number

    def answer(self, number: int, attempt: int, duration_s: float) -> None:
        answer = {"t": "answer", "a": attempt, "n": number, "g": number, "k": "done", "d": [], "s": duration_s}
        self.driver.crew.serving.on_message(answer)

    def lose(self, code: Code) -> None:
        number = self.ledger.take()
        message = {"t": "lost", "n": number, "code": int(code), "reason": "x", "at": 0.0, "wall": 0.0, "name": ""}
        self.line.on_message(message)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    built = Rig(tmp_path)
    yield built
    built.line.close()
    built.ledger.close()


def test_before_anything_runs_nothing_is_claimed(rig: Rig) -> None:
    rig.now += 10
    found = rig.census.take()
    camera, model = found.cameras["top"], found.models["defects"]
    assert (camera.connected, camera.last_frame_age_s, camera.fps) == (False, None, 0.0)
    assert (model.state, model.device, model.completion_rate, model.p95_s) == (ModelState.LOADING, None, None, None)
    assert (model.requests, model.utilisation, model.rss_bytes, model.last_done_age_s) == (0, 0.0, None, None)
    assert found.uptime_s == 10.0


def test_counts_are_those_of_the_period_and_ages_those_of_the_moment(rig: Rig) -> None:
    rig.open()
    rig.model_host.pid = os.getpid()
    rig.census.take()
    first = rig.frame()
    second = rig.frame()
    rig.answer(first, 1, 0.5)
    rig.answer(second, 2, 1.5)
    third = rig.frame()
    assert third == 3
    rig.now += 10.0
    model = rig.census.take().models["defects"]
    assert (model.submitted, model.done, model.requests_busy, model.state) == (3, 2, 1, ModelState.RUNNING)
    assert model.completion_rate == pytest.approx(2 / 3)
    assert model.utilisation == pytest.approx(2.0 / (2 * 10.0))
    assert (model.p50_s, model.p95_s) == (0.5, 1.5)
    assert model.wait_p95_s == pytest.approx(0.002)
    assert (model.last_done_age_s, model.device) == (10.0, "CPU")
    assert model.rss_bytes is not None
    rig.now += 10.0
    model = rig.census.take().models["defects"]
    assert (model.submitted, model.done, model.completion_rate, model.p95_s, model.last_done_age_s) == (
        0, 0, None, None, 20.0,
    )  # fmt: skip


def test_a_dropped_and_a_skipped_frame_are_counted_apart(rig: Rig) -> None:
    """Together with the other outcomes they are all that was submitted and is not in flight."""
    rig.open()
    rig.census.take()
    for _ in range(4):
        rig.frame()
    rig.driver.lane.stats.dropped += 2
    rig.driver.lane.stats.skipped += 2
    model = rig.census.take().models["defects"]
    assert (model.submitted, model.dropped, model.skipped, model.requests_busy, model.queue_depth) == (4, 1, 2, 2, 1)


def test_a_lane_counts_what_its_policy_skips_and_how_long_its_requests_worked() -> None:
    """Also the answer that nobody waited for any more: its request was busy all the same."""

    def frame(number: int) -> Frame:
        return Frame("top", number, 1, 0, number, 64, 64, captured_s=0.0, captured_wall_s=0.0)

    lane = Lane(LanePolicy("defects", 6.0, 60.0, 0, WhenFull.DROP_OLDEST, {"top": CameraShare(4)}))
    lane.child_ready(1, 0.0)
    lane.offer(frame(1), 100.0, 0.5)
    lane.answer(1, Done((), 5.0), 5.5)
    lane.offer(frame(2), 100.0, 6.0)
    lane.offer(frame(3), 15.0, 6.0)
    lane.offer(frame(4), 100.0, 6.0)
    lane.tick(12.0)
    lane.answer(2, Done((), 7.0), 13.0)
    stats = lane.stats
    assert (stats.skipped, stats.dropped, stats.timed_out, stats.done) == (1, 1, 1, 1)
    assert (stats.busy_s, stats.last_done_s, list(stats.waits_s)) == (12.0, 5.5, [0.5, 6.0, 13.0])


def test_each_number_of_a_camera_was_received_incomplete_or_missed(rig: Rig) -> None:
    rig.open()
    rig.frame()
    rig.lose(Code.PICTURE_UNREADABLE)
    rig.lose(Code.NO_FREE_SLOT)
    rig.ledger.take()  # its announcement is lost
    rig.frame()
    rig.ledger.take()
    rig.line.on_ending()
    rig.line.on_gone("was ended by SIGKILL", life=1, reaped=True)
    camera = rig.census.take().cameras["top"]
    assert (camera.frames_received, camera.frames_incomplete, camera.frames_missed) == (2, 1, 3)
    assert camera.frames_received + camera.frames_incomplete + camera.frames_missed == rig.ledger.last


def test_the_first_opening_is_no_reconnect_and_a_lost_child_is_a_restart(rig: Rig) -> None:
    rig.open()
    found = rig.census.take()
    assert (found.cameras["top"].reconnects, found.models["defects"].restarts) == (0, 0)
    rig.line.on_ending()
    rig.line.on_gone("x", life=1, reaped=True)
    rig.line.on_hello()
    rig.line.on_message({"t": "opened", "facts": CAMERA, "bytes": slot_bytes(64, 64)})
    rig.driver.crew.serving.on_ending()
    rig.driver.crew.serving.on_gone("x", life=1, reaped=True)
    found = rig.census.take()
    assert (found.cameras["top"].reconnects, found.models["defects"].restarts) == (1, 1)


def test_skipping_and_the_breaker_are_those_of_the_lane(rig: Rig) -> None:
    rig.open()
    before = rig.census.take().models["defects"]
    assert (before.skip_every, before.breaker, rig.driver.fault) == (1, Breaker.CLOSED, None)
    lane = rig.driver.lane
    lane.levels["top"]._change(5, rig.now)
    for attempt in range(1, 6):
        lane.breaker.begun(attempt)
        lane.breaker.ended(attempt, Failed(Code.MODEL_ERROR, "x"), rig.now)
    model = rig.census.take().models["defects"]
    assert (model.state, model.skip_every, model.breaker) == (ModelState.RUNNING, 1.25, Breaker.OPEN)
    assert rig.driver.fault == lane.breaker.reason != "", "the station is not ready, and an alarm is raised"
    rig.now += 5
    rig.frame()
    assert rig.census.take().models["defects"].breaker is Breaker.PROBING


def test_a_model_in_repair_has_an_open_breaker(rig: Rig) -> None:
    """Its frames are answered at once as unavailable, which is what an open breaker means."""
    rig.open()
    assert rig.census.take().models["defects"].breaker is Breaker.CLOSED
    rig.model_host.told = Told("refused its file", FailureKind.REFUSED)
    rig.driver.crew.serving.on_ending()
    rig.driver.crew.serving.on_gone("refused its file", life=1, reaped=True)
    model = rig.census.take().models["defects"]
    assert (model.state, model.breaker) == (ModelState.REPAIR, Breaker.OPEN)


def test_the_brokers_counts_go_on_over_a_new_publisher(rig: Rig) -> None:
    """A new stream has a publisher of its own, which begins at 0."""
    rig.wire = PlayedWire(connects=3, counts={"dead_letters": 2, "no_subscribers": 7})
    rig.census.take()
    rig.wire = PlayedWire(connects=1, counts={"dead_letters": 1, "no_subscribers": 0})
    mqtt = rig.census.take().mqtt
    assert (mqtt.reconnects, mqtt.dead_letters, mqtt.no_subscribers) == (3, 3, 7)


async def test_the_age_of_the_oldest_unsent_result_is_asked_and_told_in_the_next_period(rig: Rig) -> None:
    """Nobody waits for the disk; what is not known is left out."""
    assert rig.census.take().mqtt.oldest_unsent_age_s == 0.0
    rig.wire.counts = {"acked_seq": 7, "last_seq": 20}
    assert rig.census.take().mqtt.oldest_unsent_age_s is None
    assert rig.journal.asked == [(8, 20, 1)]
    rig.census.take()
    assert len(rig.journal.asked) == 1, "one question at a time"
    rig.journal.answers[0].set_result((stored(8, WALL_S - 90.0),))
    await asyncio.sleep(0)
    mqtt = rig.census.take().mqtt
    assert (mqtt.oldest_unsent_age_s, mqtt.outbox_rows) == (90.0, 13)
    rig.wire.counts = {"acked_seq": 8, "last_seq": 20}
    assert rig.census.take().mqtt.oldest_unsent_age_s is None, "that one is delivered"
    rig.wire.counts = {"acked_seq": 20, "last_seq": 20}
    assert rig.census.take().mqtt.oldest_unsent_age_s == 0.0


async def test_a_journal_that_cannot_be_read_leaves_the_age_out(rig: Rig) -> None:
    rig.wire.counts = {"acked_seq": 7, "last_seq": 20}
    rig.census.take()
    rig.journal.answers[0].set_exception(StorageError("the disk does not answer"))
    await asyncio.sleep(0)
    assert rig.census.take().mqtt.oldest_unsent_age_s is None
    assert len(rig.journal.asked) == 2


def test_the_disk_is_told_by_its_commits_and_what_is_free(rig: Rig) -> None:
    (rig.folder / "journal" / "00000001.sqlite").write_bytes(bytes(5000))
    (rig.folder / "journal" / "00000001.sqlite-wal").write_bytes(bytes(9000))
    rig.commits_s += [number / 1000 for number in range(1, 101)]
    found = rig.census.take()
    assert (found.storage.commit_p95_s, found.mqtt.outbox_bytes) == (0.095, 5000)
    assert found.storage.free_bytes
    assert rig.census.take().storage.commit_p95_s is None
    assert found.mqtt.certificate_days_left == 42.0


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([], 0.95) is None
    assert percentile([3.0], 0.5) == 3.0
    assert [percentile(list(range(1, 101)), share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]


# How long the broker may stay away


def outage(limit_bytes: int, row_bytes: int, rows_per_s: int, step_rows: int = 1) -> OutageEstimate:
    """Five minutes of production; the file grows by so many rows at once."""
    estimate = OutageEstimate(limit_bytes)
    for s in range(0, 300, 10):
        rows = s * rows_per_s
        estimate.note(float(s), rows // step_rows * step_rows * row_bytes, rows)
    return estimate


@pytest.mark.parametrize("step_rows", [1, 840])
def test_the_hours_of_an_outage_come_from_size_of_a_row_and_rate(step_rows: int) -> None:
    """1 GB at 30 results of 1 kB a second: 9.26 h; also where the file grows only now and then."""
    assert outage(10**9, 1000, 30, step_rows).hours(0) == pytest.approx(9.26, rel=0.05)


def test_what_is_unsent_already_takes_from_the_hours() -> None:
    estimate = outage(10**9, 1000, 30)
    assert estimate.hours(500_000) == pytest.approx(4.63, rel=0.05)
    assert estimate.hours(2_000_000) == 0.0


def test_hours_are_unknown_before_the_journal_has_grown_and_where_nothing_is_produced() -> None:
    estimate = OutageEstimate(10**9)
    assert estimate.hours(0) is None
    for s in range(5):
        estimate.note(10.0 * s, 4096, 100)
    assert estimate.hours(0) is None


def test_old_results_that_go_and_a_new_stream_do_not_spoil_the_estimate() -> None:
    estimate = outage(10**9, 1000, 30)
    estimate.note(300.0, 1000, 9000)
    assert estimate.hours(0) == pytest.approx(9.26, rel=0.05)
    estimate.note(310.0, 1000, 0)
    assert estimate.hours(0) is None
    estimate.note(320.0, 1000, 300)
    assert estimate.hours(0) == pytest.approx(9.26, rel=0.05)


# The PC


def sysfs(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "ascii")
    return folder


def test_a_pc_without_sensors_says_nothing_of_heat(tmp_path: Path) -> None:
    found = HostWatch(tmp_path).read()
    assert (found.temperature_c, found.throttled) == (None, None)
    assert 0 <= found.cpu_percent <= 100
    assert found.memory_bytes > 0


def test_the_temperature_is_the_processors_hottest_and_no_disks(tmp_path: Path) -> None:
    files = {
        "class/hwmon/hwmon0/name": "nvme\n",
        "class/hwmon/hwmon0/temp1_input": "99000\n",
        "class/hwmon/hwmon1/name": "coretemp\n",
        "class/hwmon/hwmon1/temp1_input": "61000\n",
        "class/hwmon/hwmon1/temp2_input": "63500\n",
        "class/thermal/thermal_zone0/type": "acpitz\n",
        "class/thermal/thermal_zone0/temp": "20000\n",
    }
    assert HostWatch(sysfs(tmp_path, files)).read().temperature_c == 63.5


def test_without_such_a_chip_a_thermal_zone_of_the_processor_serves(tmp_path: Path) -> None:
    files = {"class/thermal/thermal_zone3/type": "x86_pkg_temp\n", "class/thermal/thermal_zone3/temp": "47000\n"}
    watch = HostWatch(sysfs(tmp_path, files))
    assert watch.read().temperature_c == 47.0
    (tmp_path / "class/thermal/thermal_zone3/temp").write_text("not now", "ascii")
    assert watch.read().temperature_c is None


def test_throttled_is_what_happened_in_this_period(tmp_path: Path) -> None:
    counter = "devices/system/cpu/cpu0/thermal_throttle/package_throttle_count"
    watch = HostWatch(sysfs(tmp_path, {counter: "5\n"}))
    said = [watch.read().throttled]
    sysfs(tmp_path, {counter: "6\n"})
    said += [watch.read().throttled, watch.read().throttled]
    assert said == [False, True, False]


def test_what_is_not_there_has_no_size(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "nothing") is None
    assert FolderSize(tmp_path / "nothing", ".sqlite").read() == 0
    assert rss_bytes(None) is None
    assert rss_bytes(2**22 + 1) is None


def test_a_folders_size_follows_its_newest_file_at_once_and_the_others_in_turn(tmp_path: Path) -> None:
    """An old file of the journal changes only when it is written again without what was delivered, or goes."""
    for number in range(5):
        (tmp_path / f"{number}.sqlite").write_bytes(bytes(100))
    size = FolderSize(tmp_path, ".sqlite")
    assert size.read() == 500
    (tmp_path / "4.sqlite").write_bytes(bytes(150))
    assert size.read() == 550
    (tmp_path / "0.sqlite").write_bytes(bytes(10))
    assert [size.read() for _ in range(5)][-1] == 460
    (tmp_path / "1.sqlite").unlink()
    assert size.read() == 360
