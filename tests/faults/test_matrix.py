"""The fault matrix as tests: every fault that is not slow, once (`pytest -m matrix`). `make faults` prints it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from tests.faults import report
from tests.faults.fault import Row
from tests.faults.matrix import chosen, faults, run

pytestmark = pytest.mark.matrix

NAMES = [fault.name for fault in chosen(faults(), (), slow=False)]
JOBS = 3
LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class _Run:
    rows: Mapping[str, Row]
    took_s: float


@pytest.fixture(scope="module")
def matrix() -> _Run:
    """All of them in one run: faults that leave a daemon alive share it."""
    begun_s = time.monotonic()
    rows = run(chosen(faults(), (), slow=False), lambda _: None, JOBS)
    return _Run({row.name: row for row in rows}, time.monotonic() - begun_s)


@pytest.mark.slow
@pytest.mark.timeout(4 * LIMIT_S)
@pytest.mark.parametrize("name", NAMES)
def test_every_frame_is_accounted_none_is_invented_and_nothing_is_left_over(name: str, matrix: _Run) -> None:
    """For each fault: captured = accounted, 0 OK without inference, others undisturbed, back within its budget."""
    row = matrix.rows[name]
    if row.outcome in ("skipped", "elsewhere"):
        pytest.skip(row.complaint or row.seen)
    assert row.outcome == "pass", report.line(row)


@pytest.mark.slow
@pytest.mark.timeout(4 * LIMIT_S)
def test_the_matrix_takes_five_minutes_at_most(matrix: _Run) -> None:
    """On a host that starts the daemon in time; on a slower one as much longer."""
    slowness = max(row.slowness for row in matrix.rows.values())
    assert matrix.took_s <= LIMIT_S * slowness
