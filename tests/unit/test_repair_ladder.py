"""A model that breaks goes down its devices and comes back to the first only by a second child that was admitted."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from inspectd.worker.ladder import PATIENCE_MOST, STEADY_S, TRIES, End, Ladder, Rung
from inspectd.worker.spare import FRESH_ROOM_BYTES, RETRY_S, Spare, Wish

GPU_CPU = ("GPU", "CPU")
START_S = 2.0**32 / 1000
"""Milliseconds of 49.7 days have just wrapped."""
DAY_S = 86_400.0
MB = 2**20


def ladder(devices: tuple[str, ...] = GPU_CPU) -> Ladder:
    return Ladder("defects", devices, 600.0)


def fallen(now: float) -> Ladder:
    """On the CPU since `now`, because the GPU broke."""
    built = ladder()
    for _ in range(TRIES):
        built.ended(End.BROKE, "device lost", now)
    built.admitted(now)
    return built


def test_a_broken_child_is_replaced_on_its_device_first_and_then_on_the_next() -> None:
    tested = ladder()
    tested.admitted(0.0)
    assert tested.ended(End.BROKE, "was ended by SIGSEGV", 100.0) is Rung.SAME_DEVICE
    assert tested.device == "GPU"
    assert tested.degraded == "defects: no model process, next on GPU: was ended by SIGSEGV"
    assert tested.ended(End.BROKE, "was ended by SIGSEGV", 101.0) is Rung.NEXT_DEVICE
    assert tested.device == "CPU"
    tested.admitted(102.0)
    assert tested.degraded == "defects: runs on CPU instead of GPU"


def test_a_child_that_lived_steadily_begins_the_count_again() -> None:
    """A crash a day is no reason to leave the device."""
    tested = ladder()
    for day in range(60):
        tested.admitted(day * DAY_S)
        assert tested.ended(End.BROKE, "crash", day * DAY_S + STEADY_S) is Rung.SAME_DEVICE
    assert tested.failures == 1


def test_the_last_device_is_followed_by_all_in_turn_for_ever() -> None:
    """Alarm and back-off, but no rung after which it stops trying."""
    tested = ladder()
    rungs = [tested.ended(End.BROKE, "absent", 0.0) for _ in range(4)]
    assert rungs == [Rung.SAME_DEVICE, Rung.NEXT_DEVICE, Rung.SAME_DEVICE, Rung.ALL_FAILED]
    tried = []
    for second in range(1000):
        tried.append(tested.device)
        assert tested.ended(End.BROKE, "absent", float(second)) is Rung.ALL_FAILED
    assert tried[:4] == ["GPU", "CPU", "GPU", "CPU"]
    assert tested.failures == 1004
    tested.admitted(2000.0)
    assert not tested.all_failed


def test_a_fallback_device_that_breaks_too_is_followed_by_the_first() -> None:
    """Not by the alarm: hours ago is not now; but two devices that both break soon are told as such."""
    tested = fallen(0.0)
    tested.ended(End.BROKE, "crash", 3600.0)
    assert tested.ended(End.BROKE, "crash", 3601.0) is Rung.NEXT_DEVICE
    assert tested.device == "GPU"


def test_out_of_memory_at_warm_up_halves_the_requests_down_to_one() -> None:
    """It is no failure of the device until one request is too many."""
    tested = ladder()
    requests = [8]
    while tested.ended(End.OUT_OF_MEMORY, "out of memory", 0.0, requests=requests[-1]) is Rung.FEWER_REQUESTS:
        most = tested.requests_most("GPU")
        assert most is not None
        requests.append(most)
    assert requests == [8, 4, 2, 1]
    assert tested.device == "GPU"
    assert tested.ended(End.OUT_OF_MEMORY, "out of memory", 0.0, requests=1) is Rung.NEXT_DEVICE
    assert tested.requests_most("CPU") is None


def test_fewer_requests_are_told_and_kept() -> None:
    tested = ladder(("CPU",))
    tested.ended(End.OUT_OF_MEMORY, "out of memory", 0.0, requests=6)
    tested.admitted(1.0)
    assert tested.degraded == "defects: CPU has memory for 3 requests only"
    tested.ended(End.BROKE, "crash", 60 * DAY_S)
    assert tested.requests_most("CPU") == 3


def test_out_of_memory_in_the_midst_of_work_is_a_broken_child() -> None:
    """It had passed its warm-up with as many requests."""
    tested = ladder()
    tested.admitted(0.0)
    assert tested.ended(End.OUT_OF_MEMORY, "out of memory", 60.0, requests=4) is Rung.SAME_DEVICE
    assert tested.requests_most("GPU") is None


def test_a_model_file_that_does_not_fit_is_told_at_once_and_tried_on_the_same_device() -> None:
    tested = ladder()
    for _ in range(5):
        assert tested.ended(End.REFUSED, "another file", 0.0) is Rung.ALL_FAILED
        assert tested.device == "GPU"


def test_the_way_back_is_due_after_retry_primary_s_and_only_an_admission_takes_it() -> None:
    tested = fallen(0.0)
    assert not tested.way_back_due(599.9)
    assert tested.way_back_due(600.0)
    tested.way_back_failed(610.0)
    assert tested.device == "CPU"
    assert not tested.way_back_due(1209.9)
    assert tested.way_back_due(1210.0)
    tested.took_over("GPU", 1215.0)
    assert tested.device == "GPU"
    assert tested.degraded is None
    assert not tested.way_back_due(60 * DAY_S)


def test_a_device_that_breaks_soon_after_each_way_back_is_tried_less_and_less_often() -> None:
    """It passes its warm-up and breaks under load: at worst it costs a moment every 80 minutes."""
    tested, now, waits = fallen(0.0), 0.0, []
    for _ in range(6):
        begun = now
        while not tested.way_back_due(now):
            now += 10
        waits.append(now - begun)
        tested.took_over("GPU", now)
        for _ in range(TRIES):
            now += 1
            tested.ended(End.BROKE, "device lost", now)
        tested.admitted(now)
    assert waits == [600, 1200, 2400, 4800, 4800, 4800]
    assert max(waits) == PATIENCE_MOST * 600


def test_memory_over_the_limit_asks_for_one_second_child() -> None:
    spare = Spare(800 * MB)
    assert spare.watch(300 * MB, 0.0, way_back_due=False) is None
    assert spare.watch(800 * MB, 1.0, way_back_due=False) is Wish.RECYCLE
    assert spare.reason == "its process has 800 MB, the limit is 800 MB"
    assert spare.watch(900 * MB, 2.0, way_back_due=True) is None, "one at a time"
    spare.admitted()
    assert spare.stats.recycled == 1
    assert spare.watch(310 * MB, 3.0, way_back_due=False) is None


def test_a_second_child_that_was_not_admitted_is_not_tried_again_at_once() -> None:
    spare = Spare(800 * MB)
    spare.watch(300 * MB, 0.0, way_back_due=False)
    spare.watch(801 * MB, 1.0, way_back_due=False)
    spare.failed(5.0)
    assert spare.watch(820 * MB, 5.0 + RETRY_S - 1, way_back_due=False) is None
    assert spare.watch(820 * MB, 5.0 + RETRY_S, way_back_due=False) is Wish.RECYCLE


def test_at_twice_the_limit_the_child_is_killed_once() -> None:
    """A leak that is faster than a warm-up, or a host without memory for a second child."""
    spare = Spare(800 * MB)
    spare.watch(300 * MB, 0.0, way_back_due=False)
    assert spare.watch(1600 * MB, 1.0, way_back_due=False) is Wish.KILL
    assert spare.watch(1700 * MB, 2.0, way_back_due=False) is None
    spare.serving()
    assert spare.watch(300 * MB, 3.0, way_back_due=False) is None


def test_a_limit_below_what_a_fresh_child_has_does_not_replace_it_without_end() -> None:
    spare = Spare(100 * MB)
    assert spare.watch(300 * MB, 0.0, way_back_due=False) is None
    assert spare.limit_bytes == 300 * MB + FRESH_ROOM_BYTES


def test_without_a_limit_a_child_may_grow_by_half() -> None:
    spare = Spare(None)
    spare.watch(800 * MB, 0.0, way_back_due=False)
    assert spare.limit_bytes == 1200 * MB


class RepairMachine(RuleBasedStateMachine):
    """Any history of children, with leaps of up to 60 days: ladder and spare as the driver joins them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START_S
        self.devices = ("GPU", "NPU", "CPU")
        self.ladder = Ladder("defects", self.devices, 600.0)
        self.spare = Spare(800 * MB)
        self.serves: str | None = None
        self.second: str | None = None
        self.in_a_row: list[str] = []

    @rule(seconds=st.sampled_from([0.0, 1.0, 9.9, 10.0, 60.0, 600.0, DAY_S, 60 * DAY_S]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.serves is None)
    @rule()
    def child_admitted(self) -> None:
        self.serves = self.ladder.device
        self.ladder.admitted(self.now)
        self.spare.serving()
        self.in_a_row = []

    @rule(end=st.sampled_from([End.BROKE, End.BROKE, End.OUT_OF_MEMORY, End.REFUSED]), requests=st.integers(0, 16))
    def child_ends(self, end: End, requests: int) -> None:
        device, was_admitted = self.ladder.device, self.serves is not None
        failures, limits = self.ladder.failures, dict(self.ladder._most)
        rung = self.ladder.ended(end, "broke", self.now, requests=requests)
        self.serves = None
        if rung is Rung.FEWER_REQUESTS:
            assert not was_admitted
            assert self.ladder.requests_most(device) == requests // 2 >= 1
            assert (self.ladder.device, self.ladder.failures) == (device, failures)
            return
        assert limits == self.ladder._most
        assert self.ladder.failures >= 1
        if rung is Rung.SAME_DEVICE or end is End.REFUSED:
            assert self.ladder.device == device
        else:
            assert self.ladder.device == self.devices[(self.devices.index(device) + 1) % 3]
        if end is not End.REFUSED:
            self.in_a_row.append(device)
        if len(self.in_a_row) >= TRIES * len(self.devices):
            assert set(self.in_a_row) == set(self.devices), "every device gets its tries"
            assert self.ladder.all_failed

    @precondition(lambda self: self.serves is not None)
    @rule(rss_mb=st.integers(50, 2000))
    def watch(self, rss_mb: int) -> None:
        due = self.ladder.way_back_due(self.now)
        wish = self.spare.watch(rss_mb * MB, self.now, way_back_due=due)
        if wish is Wish.WAY_BACK:
            assert due
            assert self.second is None
            self.second = self.ladder.primary
        elif wish is Wish.RECYCLE:
            assert self.second is None
            self.second = self.ladder.device

    @precondition(lambda self: self.second is not None)
    @rule(admitted=st.booleans())
    def second_child_ends_its_warm_up(self, admitted: bool) -> None:
        device, self.second = self.second, None
        assert device is not None
        if admitted:
            self.ladder.took_over(device, self.now)
            self.spare.admitted()
            self.serves, self.in_a_row = device, []
            assert self.ladder.device == device
            return
        before = self.ladder.device
        if self.spare.warming is Wish.WAY_BACK:
            self.ladder.way_back_failed(self.now)
        self.spare.failed(self.now)
        assert self.ladder.device == before
        assert self.spare.watch(900 * MB, self.now, way_back_due=True) in (None, Wish.KILL)

    @invariant()
    def the_device_is_one_of_the_configured(self) -> None:
        assert self.ladder.device in self.devices
        if self.serves is not None:
            assert self.ladder.device == self.serves

    @invariant()
    def whatever_is_not_as_meant_is_told(self) -> None:
        as_meant = self.serves == "GPU" and self.ladder.requests_most("GPU") is None
        if as_meant:
            assert self.ladder.degraded is None
        elif self.serves is not None or self.ladder.stats.ends:
            assert self.ladder.degraded is not None
        assert not (self.serves and self.ladder.all_failed)

    @invariant()
    def off_the_first_device_the_way_back_comes_due(self) -> None:
        later_s = self.now + PATIENCE_MOST * 600.0
        assert self.ladder.way_back_due(later_s) == (self.serves not in (None, "GPU"))

    @invariant()
    def a_second_child_is_known_to_both(self) -> None:
        assert (self.second is None) == (self.spare.warming is None)


TestRepair = RepairMachine.TestCase
TestRepair.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
