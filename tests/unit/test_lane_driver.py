"""The driver believes an answer only under the stamp that it was asked with; a change of child loses no frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.played import PlayedHost

from inspectd.errors import WorkerError
from inspectd.lane.driver import LaneDriver, Reader
from inspectd.lane.inbox import CameraShare, WhenFull
from inspectd.lane.lane import Lane
from inspectd.lane.policy import LanePolicy
from inspectd.records import Done, Failed, Frame, Outcome, OutcomeKind
from inspectd.worker.channel import Message
from inspectd.worker.crewports import Memory, Move, RepairPolicy
from inspectd.worker.frames import PoolSpec
from inspectd.worker.ladder import STEADY_S
from inspectd.worker.modelchild import ModelChild
from inspectd.worker.ports import FailureKind, Told

MB = 2**20
FACTS: dict[str, Any] = {
    "model": "defects",
    "task": "detect",
    "device": "CPU",
    "precision": "f32",
    "hash": "00",
    "classes": ["open"],
}
FACTS |= {"requests": 2, "input_width_px": 64, "input_height_px": 64, "layout": "yolo", "warmup_p95_s": 0.01}


def frame(number: int) -> Frame:
    return Frame("top", number, 1, number % 4, 5, 64, 64, captured_s=0.0, captured_wall_s=0.0)


class Owner:
    """The camera's line."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[int, Outcome]] = []
        self.readers: set[Reader] = set()

    def pools(self) -> list[tuple[PoolSpec, int]]:
        return [(PoolSpec("top", 1, 4, 4096), 99)]

    def read(self, frame: Frame, reader: Reader) -> None:
        assert frame.camera == "top"
        self.readers.add(reader)

    def release(self, frame: Frame, reader: Reader) -> None:
        assert frame.camera == "top"
        self.readers.remove(reader)

    def model_admitted(self) -> None: ...

    def finished(self, frame: Frame, model: str, outcome: Outcome) -> None:
        assert model == "defects"
        self.outcomes.append((frame.frame_id, outcome))


class Timer:
    def __init__(self, due_s: float, call: Callable[[], None]) -> None:
        self.due_s, self.call = due_s, call

    def cancel(self) -> None:
        self.call = lambda: None


class Rig:
    """A driver whose children, time and memory the test plays."""

    def __init__(self, repair: RepairPolicy, retries: int) -> None:
        self.now = 0.0
        self.hosts: list[PlayedHost] = []
        self.children: list[ModelChild] = []
        self.timers: list[Timer] = []
        self.memory: dict[int, int] = {}
        self.available = 4096 * MB
        self.moves: list[Move] = []
        self.owner = Owner()
        policy = LanePolicy("defects", 60.0, 0.5, retries, WhenFull.DROP_OLDEST, {"top": CameraShare(8)})
        memory = Memory(lambda pid: self.memory.get(pid, 100 * MB), lambda: self.available)
        self.driver = LaneDriver(
            Lane(policy), "detect", {"path": "x"}, self._make, self._later, lambda: self.now, repair, memory
        )
        self.driver.crew.on_moved = self.moves.append
        self.driver.start({"top": self.owner})

    def _make(self, child: Any) -> PlayedHost:
        host = PlayedHost()
        host.pid = 100 + len(self.hosts)
        self.hosts.append(host)
        self.children.append(child)
        return host

    def _later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now + delay_s, call))
        return self.timers[-1]

    def wait(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self.timers if timer.due_s <= self.now]
        self.timers = [timer for timer in self.timers if timer not in due]
        for timer in due:
            timer.call()

    def admit(self, which: int = -1, **facts: Any) -> None:
        self.hosts[which].pid = 100 + (which if which >= 0 else len(self.hosts) + which)
        self.children[which].on_hello()
        self.children[which].on_message({"t": "admitted", "facts": FACTS | facts})

    def lose(self, which: int = -1, reason: str = "was ended by SIGSEGV", told: Told | None = None) -> None:
        host = self.hosts[which]
        host.told, host.trouble = told, reason
        self.children[which].on_ending()
        host.pid = None
        self.children[which].on_gone(reason, life=1, reaped=True)

    def answer(self, attempt: int, number: int, which: int = -1, **changes: Any) -> None:
        self.children[which].on_message(answer(a=attempt, n=number, **changes))

    def asked(self, which: int) -> list[int]:
        """Frames that a child was given."""
        return [message["f"]["frame_id"] for message in self.hosts[which].sent if message["t"] == "infer"]

    def loaded(self, which: int) -> dict[str, Any]:
        """What a child was last told to run."""
        specs: list[dict[str, Any]] = [m["spec"] for m in self.hosts[which].sent if m["t"] == "load"]
        return specs[-1]

    def kinds(self) -> dict[int, OutcomeKind]:
        return {number: outcome.kind for number, outcome in self.owner.outcomes}


@pytest.fixture
def rig() -> Rig:
    """A model on the CPU that has one frame at work."""
    built = Rig(RepairPolicy(), retries=0)
    built.admit()
    built.driver.offer(frame(7), 1.0)
    return built


def two_devices(**changes: Any) -> Rig:
    return Rig(RepairPolicy(("GPU", "CPU"), retry_primary_s=600.0, **changes), retries=1)


def answer(**changes: Any) -> Message:
    return {"t": "answer", "a": 1, "n": 7, "g": 5, "k": "done", "d": [[0, 0.9, 1, 2, 3, 4]], "s": 0.01, **changes}


def test_a_new_child_is_told_of_every_pool_before_the_first_frame(rig: Rig) -> None:
    assert [message["t"] for message in rig.hosts[0].sent] == ["load", "pool", "infer"]


def test_an_answer_becomes_detections_with_the_models_class_names(rig: Rig) -> None:
    assert rig.owner.readers == {("defects", 1)}
    rig.answer(1, 7)
    [(_, outcome)] = rig.owner.outcomes
    assert isinstance(outcome, Done)
    assert [(found.class_name, found.confidence, found.box.h) for found in outcome.detections] == [("open", 0.9, 4)]
    assert rig.owner.readers == set()


@pytest.mark.parametrize("stamp", [{"n": 8}, {"g": 6}])
def test_an_answer_with_another_stamp_is_a_failure(rig: Rig, stamp: dict[str, int]) -> None:
    """Detections of another picture must never become this part's verdict."""
    rig.children[0].on_message(answer(**stamp))
    assert rig.kinds() == {7: OutcomeKind.FAILED}


def test_a_device_error_fails_the_frame_and_poisons_the_child_at_once(rig: Rig) -> None:
    """What waits is kept for the next child: on this one it would only fail as well."""
    rig.driver.offer(frame(8), 1.0)
    rig.driver.offer(frame(9), 1.0)
    rig.answer(1, 7, k="device", why="out of resources")
    assert isinstance(rig.owner.outcomes[0][1], Failed)
    assert rig.hosts[0].killed == ["device error: out of resources"]
    assert rig.asked(0) == [7, 8]


def test_frames_are_answered_at_once_while_the_model_is_in_repair(rig: Rig) -> None:
    rig.lose(told=Told("refused its file", FailureKind.REFUSED))
    rig.driver.offer(frame(8), 1.0)
    assert rig.driver.is_settled
    rig.admit()
    rig.driver.offer(frame(9), 1.0)
    rig.answer(2, 9)
    assert rig.kinds() == {7: OutcomeKind.FAILED, 8: OutcomeKind.UNAVAILABLE, 9: OutcomeKind.DONE}


def test_an_unknown_message_is_the_childs_fault(rig: Rig) -> None:
    with pytest.raises(WorkerError, match="unknown message 'greetings'"):
        rig.children[0].on_message({"t": "greetings"})


def test_a_broken_device_is_left_for_the_next_one_and_people_are_told() -> None:
    tested = two_devices()
    assert not tested.driver.is_settled
    for _ in range(2):
        tested.children[0].on_hello()
        assert tested.loaded(0)["device"] == "GPU"
        tested.lose(reason="GPU is not registered", told=Told("GPU is not registered"))
    assert not tested.driver.is_settled, "another device is left"
    tested.admit()
    assert tested.loaded(0)["device"] == "CPU"
    assert tested.driver.crew.ladder.degraded == "defects: runs on CPU instead of GPU"
    [move] = tested.moves
    assert (move.before.device, move.after.device) == ("GPU", "CPU")
    assert move.reason == "runs on CPU, since GPU failed: GPU is not registered"


def test_every_child_is_held_to_the_file_that_the_first_one_was_admitted_with() -> None:
    """A second one too: another file under the same name is another recipe."""
    tested = two_devices(rss_limit_bytes=200 * MB)
    tested.admit(hash="aa")
    tested.wait(1.0)
    tested.memory[100] = 250 * MB
    tested.wait(1.0)
    tested.children[1].on_hello()
    assert tested.loaded(1)["sha256"] == "aa"
    with pytest.raises(WorkerError, match="admitted with file bb instead of aa"):
        tested.children[1].on_message({"t": "admitted", "facts": FACTS | {"hash": "bb"}})
    assert tested.driver.crew.serving is tested.children[0]


def test_out_of_memory_at_the_warm_up_halves_the_requests_and_that_is_told() -> None:
    tested = Rig(RepairPolicy(("CPU",)), retries=0)
    tested.children[0].on_hello()
    assert tested.loaded(0)["requests_most"] is None
    tested.lose(reason="no memory", told=Told("no memory", FailureKind.MEMORY, requests=8))
    tested.admit(requests=4)
    assert tested.loaded(0)["requests_most"] == 4
    assert tested.driver.crew.ladder.degraded == "defects: CPU has memory for 4 requests only"
    assert [(move.before.requests_most, move.after.requests_most) for move in tested.moves] == [(None, 4)]
    assert tested.moves[0].reason == "no memory"


def recycling() -> Rig:
    """A second child is being warmed because the first one has grown; it has two frames at work, a third one waits."""
    tested = Rig(RepairPolicy(("CPU",), rss_limit_bytes=200 * MB), retries=1)
    tested.admit()
    tested.wait(1.0)
    for number in (1, 2, 3):
        tested.driver.offer(frame(number), 100.0)
    tested.memory[100] = 200 * MB
    tested.wait(1.0)
    assert len(tested.hosts) == 2
    assert not tested.hosts[1].replaces
    return tested


def test_a_second_child_gets_every_new_frame_and_the_first_one_finishes_what_it_has() -> None:
    """The planned change of the child, between frames: nothing is lost, and nothing counts as a failure."""
    tested = recycling()
    tested.admit(1)
    assert tested.loaded(1)["requests_most"] == 2, "no more than the first: its warm-up was slowed by it"
    assert (tested.asked(0), tested.asked(1)) == ([1, 2], [3])
    tested.answer(3, 3, which=1)
    tested.answer(1, 1, which=0)
    assert tested.hosts[0].dismissed == 0
    tested.answer(2, 2, which=0)
    assert (tested.hosts[0].dismissed, tested.hosts[0].replaces, tested.hosts[1].replaces) == (1, False, True)
    tested.lose(0, "ended by itself with exit status 0")
    crew = tested.driver.crew
    assert (crew.leaving, crew.restarts, crew.ladder.stats.ends, crew.spare.stats.recycled) == ([], 0, 0, 1)
    assert set(tested.kinds().values()) == {OutcomeKind.DONE}
    assert tested.owner.readers == set()
    assert tested.moves == []


def test_a_first_child_that_dies_over_its_last_frames_gives_them_to_the_second() -> None:
    tested = recycling()
    tested.admit(1)
    tested.answer(3, 3, which=1)
    tested.lose(0)
    assert sorted(tested.asked(1)) == [1, 2, 3]
    assert tested.driver.crew.ladder.stats.ends == 0


def test_a_first_child_that_does_not_give_its_last_frames_back_is_killed_alone() -> None:
    tested = recycling()
    tested.admit(1)
    tested.answer(3, 3, which=1)
    tested.wait(60.0)
    assert [message["t"] for message in tested.hosts[0].sent[-2:]] == ["cancel", "cancel"]
    tested.wait(0.6)
    assert len(tested.hosts[0].killed) == 1
    assert tested.hosts[1].killed == []


def test_a_child_answers_for_its_own_frames_only() -> None:
    tested = recycling()
    tested.admit(1)
    with pytest.raises(WorkerError, match="answer to attempt 1, which another process has"):
        tested.answer(1, 1, which=1)


def test_a_second_child_that_is_not_admitted_changes_nothing() -> None:
    tested = recycling()
    tested.lose(1, "was ended by SIGKILL")
    assert tested.driver.host is tested.hosts[0]
    assert tested.driver.facts is not None
    tested.wait(30.0)
    assert len(tested.hosts) == 2, "no second try at once"
    tested.wait(31.0)
    assert len(tested.hosts) == 3


def test_when_the_first_child_dies_meanwhile_the_second_one_takes_its_place() -> None:
    """It is further than a new one would be; two at once would only slow each other."""
    tested = recycling()
    tested.lose(0)
    assert (tested.hosts[0].replaces, tested.hosts[1].replaces) == (False, True)
    assert tested.driver.host is tested.hosts[1]
    tested.admit(1)
    assert sorted(tested.asked(1)) == [1, 2], "they are tried again, before the one that waits"
    assert tested.driver.crew.restarts == 1


def test_without_memory_for_two_the_child_is_replaced_when_it_has_no_frame() -> None:
    tested = Rig(RepairPolicy(("CPU",), rss_limit_bytes=200 * MB), retries=1)
    tested.admit()
    tested.wait(1.0)
    tested.driver.offer(frame(1), 100.0)
    tested.memory[100], tested.available = 200 * MB, 200 * MB
    tested.wait(1.0)
    assert (len(tested.hosts), tested.hosts[0].recycled) == (1, 0)
    tested.answer(1, 1)
    assert tested.hosts[0].recycled == 1
    tested.driver.offer(frame(2), 100.0)
    tested.lose(0, "ended by itself with exit status 0")
    assert not tested.driver.repair
    tested.admit()
    assert tested.asked(0) == [1, 2]
    crew = tested.driver.crew
    assert (crew.restarts, crew.ladder.stats.ends, crew.spare.stats.recycled) == (0, 0, 1)


def test_a_device_without_memory_for_two_is_found_out_by_trying() -> None:
    """Then too the requests stay: alone the child has room for them."""
    tested = recycling()
    for attempt in (1, 2):
        tested.answer(attempt, attempt, which=0)
    tested.lose(1, "no memory", Told("no memory", FailureKind.MEMORY, requests=2))
    assert tested.hosts[0].recycled == 0
    tested.answer(3, 3, which=0)
    assert tested.hosts[0].recycled == 1
    assert tested.driver.crew.ladder.requests_most("CPU") is None


def test_at_twice_the_limit_the_child_is_killed() -> None:
    tested = recycling()
    tested.memory[100] = 400 * MB
    tested.wait(1.0)
    assert tested.hosts[0].killed == ["its process has 400 MB, the hard limit is 400 MB"]


def fallen() -> Rig:
    """On the CPU, because the GPU broke."""
    tested = two_devices()
    for _ in range(2):
        tested.lose(reason="device lost")
    tested.admit()
    return tested


def test_the_way_back_is_taken_by_a_second_child_that_was_warmed() -> None:
    tested = fallen()
    tested.wait(599.0)
    assert len(tested.hosts) == 1
    tested.wait(1.0)
    tested.driver.offer(frame(1), 1000.0)
    assert tested.asked(0) == [1], "the one on the CPU goes on"
    tested.admit(1, device="GPU.0")
    assert tested.loaded(1)["device"] == "GPU"
    tested.driver.offer(frame(2), 1000.0)
    assert tested.asked(1) == [2]
    tested.answer(1, 1, which=0)
    assert tested.hosts[0].dismissed == 1
    assert tested.driver.crew.ladder.degraded is None
    assert [(move.before.device, move.after.device) for move in tested.moves] == [("GPU", "CPU"), ("CPU", "GPU")]
    assert tested.moves[-1].reason == "GPU works again"


def test_a_way_back_that_fails_is_tried_again_after_the_same_time() -> None:
    tested = fallen()
    tested.wait(600.0)
    tested.lose(1, "GPU is not there", Told("GPU is not there"))
    assert tested.driver.crew.ladder.fallback == "runs on CPU, since GPU failed: device lost"
    tested.wait(599.0)
    assert len(tested.hosts) == 2
    tested.wait(1.0)
    assert len(tested.hosts) == 3


def test_a_leaking_child_on_the_fallback_device_does_not_put_off_the_way_back() -> None:
    """It was replaced every few minutes, and the first device never tried again."""
    tested = Rig(RepairPolicy(("GPU", "CPU"), 600.0, 200 * MB), retries=0)
    for _ in range(2):
        tested.lose(reason="device lost")
    tested.admit()
    for which in range(3):
        tested.wait(1.0)
        tested.memory[100 + which] = 250 * MB
        tested.wait(199.0)
        tested.admit(which + 1)
        tested.lose(which, "ended by itself with exit status 0")
    tested.wait(1.0)
    tested.children[-1].on_hello()
    assert (tested.loaded(-1)["device"], len(tested.hosts)) == ("GPU", 5)


async def test_a_stop_ends_every_child_and_is_no_failure() -> None:
    tested = recycling()
    stopped: list[int] = []
    for number, host in enumerate(tested.hosts):
        host.stop = lambda _grace_s, number=number: _note(stopped, number)  # type: ignore[method-assign,misc]
    await tested.driver.stop(1.0)
    tested.lose(0, "ended by itself with exit status 0")
    tested.lose(1, "ended by itself with exit status 0")
    assert stopped == [0, 1]
    assert (tested.driver.crew.restarts, len(tested.hosts)) == (0, 2)


async def _note(stopped: list[int], number: int) -> None:
    stopped.append(number)


def test_a_steady_child_that_breaks_once_keeps_its_device() -> None:
    tested = two_devices()
    tested.admit()
    for _ in range(3):
        tested.wait(STEADY_S)
        tested.lose()
        tested.admit()
    assert tested.loaded(0)["device"] == "GPU"
    assert tested.moves == []


class CrewMachine(RuleBasedStateMachine):
    """Any history of children beside each other: every frame gets exactly one word, and no slot stays read."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(RepairPolicy(("GPU", "CPU"), 600.0, 200 * MB), retries=1)
        self.offered = 0
        self.seen: dict[int, int] = {}
        """By child: messages of it that were read."""
        self.at_work: dict[int, dict[int, int]] = {}
        """By child: attempt → frame, as the living process has them."""

    def alive(self) -> list[int]:
        return [which for which, host in enumerate(self.rig.hosts) if self._lives(which, host)]

    def _lives(self, which: int, host: PlayedHost) -> bool:
        """A process that ended is followed by another only where its supervisor replaces it."""
        return host.pid is not None or (host.replaces and not host.dismissed and self.rig.children[which].facts is None)

    def read(self) -> None:
        """Every process reads what it was sent."""
        for which, host in enumerate(self.rig.hosts):
            for message in host.sent[self.seen.get(which, 0) :]:
                if message["t"] == "infer":
                    assert self.rig.children[which].facts is not None, "only an admitted child is given frames"
                    self.at_work.setdefault(which, {})[message["a"]] = message["f"]["frame_id"]
            self.seen[which] = len(host.sent)

    def end(self, which: int, reason: str, told: Told | None = None) -> None:
        self.read()
        self.at_work.pop(which, None)
        self.rig.hosts[which].killed.clear()
        self.rig.hosts[which].recycled = 0
        self.rig.lose(which, reason, told)
        self.read()

    @rule()
    def a_frame_comes(self) -> None:
        self.offered += 1
        self.rig.driver.offer(frame(self.offered), self.rig.now + 100.0)
        self.read()

    @precondition(lambda self: any(self.at_work.values()))
    @rule(pick=st.integers(0, 9), word=st.sampled_from(["done", "done", "failed", "device"]))
    def a_child_answers(self, pick: int, word: str) -> None:
        having = [(which, a, n) for which, found in self.at_work.items() for a, n in found.items()]
        which, attempt, number = having[pick % len(having)]
        del self.at_work[which][attempt]
        self.rig.answer(attempt, number, which, k=word, why="played")
        self.read()

    def loading(self) -> list[int]:
        return [which for which in self.alive() if self.rig.children[which].facts is None]

    @precondition(lambda self: self.loading())
    @rule(pick=st.integers(0, 9))
    def a_child_is_admitted(self, pick: int) -> None:
        loading = self.loading()
        self.rig.admit(loading[pick % len(loading)])
        self.read()

    @rule(pick=st.integers(0, 9), kind=st.sampled_from([None, *FailureKind]))
    def a_child_ends(self, pick: int, kind: FailureKind | None) -> None:
        if alive := self.alive():
            which = alive[pick % len(alive)]
            self.end(which, "played", None if kind is None else Told("played", kind, 4))

    def asked_to_end(self) -> list[int]:
        hosts = self.rig.hosts
        return [
            n for n in self.alive() if hosts[n].pid and (hosts[n].killed or hosts[n].recycled or hosts[n].dismissed)
        ]

    @precondition(lambda self: self.asked_to_end())
    @rule(pick=st.integers(0, 9))
    def one_that_is_to_end_does(self, pick: int) -> None:
        asked = self.asked_to_end()
        self.end(asked[pick % len(asked)], "ended by itself with exit status 0")

    @rule(seconds=st.sampled_from([0.3, 30.0, 61.0, 600.0]))
    def time_passes(self, seconds: float) -> None:
        self.rig.wait(seconds)
        self.read()

    @precondition(lambda self: self.rig.driver.facts is not None)
    @rule(grown_mb=st.sampled_from([250, 250, 500]), available_mb=st.sampled_from([100, 4000, 4000]))
    def the_child_grows(self, grown_mb: int, available_mb: int) -> None:
        self.rig.wait(1.0)
        pid, self.rig.available = self.rig.driver.host.pid, available_mb * MB
        self.rig.memory = {} if pid is None else {pid: grown_mb * MB}
        self.rig.wait(1.0)
        self.read()

    @invariant()
    def every_frame_has_one_word_at_most_and_slots_are_read_for_a_reason(self) -> None:
        told = [number for number, _ in self.rig.owner.outcomes]
        assert len(told) == len(set(told))
        lane = self.rig.driver.lane
        assert len(self.rig.owner.readers) == sum(map(len, self.at_work.values()))
        assert lane.busy <= lane.requests or lane.requests == 0

    @invariant()
    def one_serves_and_at_most_one_is_warmed(self) -> None:
        crew = self.rig.driver.crew
        replaced = [host for host in self.rig.hosts if host.replaces]
        assert replaced == [crew.serving.host]
        assert (crew.second is None) or crew.spare.warming is not None

    def teardown(self) -> None:
        """When time is over every frame has its word."""
        for _ in range(3):
            self.rig.wait(101.0)
            self.read()
        assert sorted(number for number, _ in self.rig.owner.outcomes) == list(range(1, self.offered + 1))


TestCrew = CrewMachine.TestCase
TestCrew.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
