"""Under overload a line leaves frames out before any model gets them; each has its record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.played import NoTimer, PlayedHost

from inspectd.book import Bookkeeper, Identity
from inspectd.lane.skip import QUARTERS, SkipLevel, SkipPolicy
from inspectd.ledger import Ledger
from inspectd.line import Line
from inspectd.lineports import LineSpec
from inspectd.records import (
    Code,
    ConfigurationId,
    DecisionPlan,
    Done,
    Evaluation,
    Frame,
    Inspection,
    LostRun,
    ModelRun,
    Outcome,
    OutcomeKind,
    Record,
)
from inspectd.worker.frames import PoolSpec, slot_bytes

BEFORE = 2**32 - 3
"""Numbers that are given before the first frame."""
CAMERA = {"camera": "top", "kind": "x", "simulated": False, "finite": False, "width_px": 64, "height_px": 64}
ID = ConfigurationId("id", "1", "00")


class PlayedLane:
    """A model that is done with every frame as soon as the test says so."""

    def __init__(self, model: str, quarters: int | None) -> None:
        self.model, self.offered, self.skipped = model, list[Frame](), 0
        self._level = None if quarters is None else SkipLevel(f"top/{model}", SkipPolicy())
        if self._level is not None and quarters is not None and quarters > QUARTERS:
            self._level._change(quarters, 0.0)

    def offer(self, frame: Frame, deadline_s: float) -> None:
        assert deadline_s == frame.captured_s + 1.0
        self.offered.append(frame)

    def level(self, camera: str) -> SkipLevel | None:
        assert camera == "top"
        return self._level

    def note_skipped(self) -> None:
        self.skipped += 1

    def add_pool(self, spec: PoolSpec, descriptor: int) -> None: ...

    def forget_pool(self, spec: PoolSpec) -> None: ...

    def describe(self, outcome: Outcome) -> ModelRun:
        return ModelRun(self.model, "detect", "CPU", "f32", "00", None, outcome.attempts, outcome.kind)


class Rig:
    """A line between a camera and models that the test plays; its book is the real one."""

    def __init__(self, folder: Path, levels: dict[str, int | None], *, as_results: bool = False) -> None:
        self.records: list[Record] = []
        self.ledger = Ledger.open(folder / "top")
        self.ledger.begin(BEFORE, simulated=False)
        self.lanes = {model: PlayedLane(model, quarters) for model, quarters in levels.items()}
        self.book = Bookkeeper(self, Identity(ID, {"top": ID}), lambda: 0.0, skipped_as_results=as_results)
        self.book.expect("top", BEFORE, 10.0)
        plan = DecisionPlan((("defects", True), ("code", False)), (), Evaluation.NOT_OK)
        spec = LineSpec("top", {}, simulated=False, lossless=False, fps=10.0, deadline_s=1.0, plan=plan)
        self.host = PlayedHost()
        ports = self.book, lambda: 4, lambda _: self.host, lambda *_: NoTimer(), lambda: 0.1
        self.line = Line(spec, self.ledger, 0, self.lanes, *ports)
        self.line.start()
        self.line.enable()
        self.line.on_hello()
        self.line.on_message({"t": "opened", "facts": CAMERA, "bytes": slot_bytes(64, 64)})
        [self.pool] = [message for message in self.host.sent if message["t"] == "pool"]
        self._free = list(self.pool["free"])

    def submit(self, record: Record, *, urgent: bool = False) -> None:
        assert not urgent
        self.records.append(record)

    def reserve(self, camera: str, to: int) -> None:
        assert (camera, to > BEFORE) == ("top", True)

    def frames(self, count: int) -> None:
        """The camera gives frames; the models are done with each that they get before the next comes."""
        for _ in range(count):
            number, slot = self.ledger.take(), self._free.pop(0)
            message: dict[str, Any] = {
                "t": "frame",
                "n": number,
                "p": self.pool["spec"]["pool"],
                "s": slot,
                "g": number,
            }
            message |= {"w": 64, "h": 64, "at": 0.0, "wall": 0.0, "acq": 0.0, "name": ""}
            self.line.on_message(message)
            for model, lane in self.lanes.items():
                if lane.offered and lane.offered[-1].frame_id == number:
                    self.line.finished(lane.offered[-1], model, Done((), 0.01))
            freed = self.host.sent.pop()
            assert freed == {"t": "free", "p": self.pool["spec"]["pool"], "slots": [slot]}
            self._free += freed["slots"]
        self.book.flush()

    def offered(self, model: str) -> list[int]:
        """Which of the frames a model got, from 1."""
        return [frame.frame_id - BEFORE for frame in self.lanes[model].offered]

    def close(self) -> None:
        self.line.close()
        self.ledger.close()


@pytest.fixture
def rigs() -> Iterator[list[Rig]]:
    opened: list[Rig] = []
    yield opened
    for rig in opened:
        rig.close()


def test_a_frame_that_is_left_out_ends_at_once_as_a_run_and_gives_its_slot_back(
    tmp_path: Path, rigs: list[Rig]
) -> None:
    """Of three frames one is taken; the two between are one row, 303, whose numbers lie around 2³²."""
    rigs.append(rig := Rig(tmp_path, {"defects": 3 * QUARTERS, "code": QUARTERS}))
    rig.frames(7)
    assert rig.offered("defects") == rig.offered("code") == [1, 4, 7]
    runs = [record for record in rig.records if isinstance(record, LostRun)]
    assert [(run.from_frame_id - BEFORE, run.to_frame_id - BEFORE, run.code) for run in runs] == [
        (2, 3, Code.SKIPPED_BY_POLICY),
        (5, 6, Code.SKIPPED_BY_POLICY),
    ]
    assert "top/defects: overload: 1 of 3 frames are taken" in runs[0].reason
    taken = [record for record in rig.records if isinstance(record, Inspection)]
    assert [record.decision.evaluation for record in taken] == [Evaluation.OK] * 3
    assert rig.lanes["defects"].skipped == rig.lanes["code"].skipped == 4
    assert rig.line.accounts.open_numbers == frozenset()
    assert rig.line.in_flight == 7, "handed over, not committed"


def test_four_of_five_frames_are_taken_where_that_is_enough(tmp_path: Path, rigs: list[Rig]) -> None:
    rigs.append(rig := Rig(tmp_path, {"defects": 5}))
    rig.frames(11)
    assert rig.offered("defects") == [1, 3, 4, 5, 6, 8, 9, 10, 11]


def test_an_optional_model_that_is_slower_leaves_out_more_and_costs_the_required_one_nothing(
    tmp_path: Path, rigs: list[Rig]
) -> None:
    """Of the frames that are taken it gets every second; the others are decided without it."""
    rigs.append(rig := Rig(tmp_path, {"defects": 2 * QUARTERS, "code": 2 * QUARTERS}))
    rig.frames(8)
    assert rig.offered("defects") == [1, 3, 5, 7]
    assert rig.offered("code") == [1, 5]
    taken = [record for record in rig.records if isinstance(record, Inspection)]
    assert [record.decision.evaluation for record in taken] == [Evaluation.OK] * 4
    kinds = [[run.outcome for run in record.runs] for record in taken]
    assert kinds[:2] == [[OutcomeKind.DONE, OutcomeKind.DONE], [OutcomeKind.DONE, OutcomeKind.DROPPED]]


def test_a_camera_whose_frames_may_not_be_left_out_loses_none(tmp_path: Path, rigs: list[Rig]) -> None:
    rigs.append(rig := Rig(tmp_path, {"defects": None, "code": None}))
    rig.frames(10)
    assert rig.offered("defects") == rig.offered("code") == list(range(1, 11))


def test_as_results_each_frame_that_is_left_out_names_all_models_that_were_to_run(
    tmp_path: Path, rigs: list[Rig]
) -> None:
    """`skipped_results: all`."""
    rigs.append(rig := Rig(tmp_path, {"defects": 2 * QUARTERS, "code": QUARTERS}, as_results=True))
    rig.frames(2)
    [_, left_out] = rig.records
    assert isinstance(left_out, Inspection)
    assert (left_out.decision.code, left_out.decision.evaluation) == (Code.SKIPPED_BY_POLICY, Evaluation.UNDEFINED)
    assert [(run.model, run.outcome, run.attempts) for run in left_out.runs] == [
        ("defects", OutcomeKind.DROPPED, 0),
        ("code", OutcomeKind.DROPPED, 0),
    ]
