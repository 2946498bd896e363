from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspectd.backoff import Backoff

BACKOFF = Backoff(first_s=0.2, limit_s=10.0)


@given(failures=st.integers(0, 10_000), random=st.floats(0, 1))
def test_a_delay_never_leaves_its_bounds(failures: int, random: float) -> None:
    """Between `first_s` and `limit_s` always, after however many failures."""
    assert BACKOFF.first_s <= BACKOFF.delay_s(failures, random) <= BACKOFF.limit_s


@given(failures=st.integers(0, 50), random=st.floats(0, 1))
def test_a_further_failure_never_shortens_the_delay(failures: int, random: float) -> None:
    assert BACKOFF.delay_s(failures, random) <= BACKOFF.delay_s(failures + 1, random)


def test_delays_double_until_the_limit() -> None:
    assert [BACKOFF.delay_s(failures, 1.0) for failures in range(1, 8)] == [0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_jitter_spreads_over_the_upper_half() -> None:
    """Stations that lost the same broker at once do not all come back at once."""
    assert BACKOFF.delay_s(20, 0.0) == 5.0
    assert BACKOFF.delay_s(20, 1.0) == 10.0


@pytest.mark.parametrize(("first_s", "limit_s", "factor"), [(0.0, 1.0, 2.0), (2.0, 1.0, 2.0), (1.0, 2.0, 0.5)])
def test_settings_that_cannot_be_meant_are_refused(first_s: float, limit_s: float, factor: float) -> None:
    with pytest.raises(ValueError, match="back-off from"):
        Backoff(first_s, limit_s, factor)
