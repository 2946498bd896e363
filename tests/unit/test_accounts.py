"""Numbers are captured once, accounted once, and in flight in between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspectd.accounts import Accounts, Mark, recover


def test_a_gap_in_the_announcements_is_found_and_counts_as_handed_over() -> None:
    accounts = Accounts(10)
    assert accounts.announce(11) is None
    assert accounts.announce(14) == (12, 13)
    assert accounts.in_flight(14) == 4
    accounts.committed(2)
    assert accounts.in_flight(14) == 2


def test_what_the_ledger_has_and_main_has_not_seen_is_in_flight() -> None:
    accounts = Accounts(0)
    assert accounts.in_flight(3) == 3
    assert accounts.skip_to(3) == (1, 3)
    assert accounts.skip_to(3) is None


def test_a_number_cannot_be_recorded_twice_or_before_it_was_announced() -> None:
    accounts = Accounts(0)
    accounts.announce(1)
    accounts.record(1)
    for number in (1, 2):
        with pytest.raises(ValueError, match="recorded twice, or was never announced"):
            accounts.record(number)


def test_a_number_cannot_come_again() -> None:
    accounts = Accounts(5)
    with pytest.raises(ValueError, match="came after 5"):
        accounts.announce(5)


def test_more_cannot_be_committed_than_was_handed_over() -> None:
    with pytest.raises(ValueError, match="handed over"):
        Accounts(0).committed(1)


def test_at_start_the_numbers_without_a_row_are_lost() -> None:
    mark = Mark(accounted_to=10, above=((12, 13), (16, 16)), reserved_to=300)
    recovery = recover(mark, 18, exact=True)
    assert recovery.lost == ((11, 11), (14, 15), (17, 18))
    assert recovery.possibly_lost is None
    assert recovery.last == 18


def test_after_a_power_cut_the_reserved_numbers_are_an_upper_bound() -> None:
    """The page may be older than the last frames: nothing up to reserved_to may be given again."""
    mark = Mark(accounted_to=10, above=((12, 13),), reserved_to=300)
    recovery = recover(mark, 12, exact=False)
    assert recovery.lost == ((11, 11),)
    assert recovery.possibly_lost == (14, 300)
    assert recovery.last == 300


def test_a_lost_ledger_is_treated_like_a_power_cut() -> None:
    recovery = recover(Mark(accounted_to=10, reserved_to=40), None, exact=True)
    assert recovery.possibly_lost == (11, 40)
    assert recovery.last == 40


def test_a_first_start_has_nothing_to_recover() -> None:
    recovery = recover(Mark(), None, exact=False)
    assert (recovery.lost, recovery.possibly_lost, recovery.last) == ((), None, 0)


spans = st.lists(st.integers(1, 40), unique=True, max_size=20)


@given(numbers=spans, accounted_to=st.integers(0, 30), ledger=st.none() | st.integers(0, 60), exact=st.booleans())
def test_recovery_covers_every_number_once_and_gives_none_again(
    numbers: list[int], accounted_to: int, ledger: int | None, exact: bool
) -> None:
    """Rows, lost and possibly lost numbers together are 1…last, without overlap."""
    above = tuple((n, n) for n in sorted(numbers) if n > accounted_to + 1)
    mark = Mark(accounted_to, above, reserved_to=accounted_to + 50)
    recovery = recover(mark, ledger, exact=exact)
    covered = list(range(1, accounted_to + 1)) + [n for first, last in above for n in range(first, last + 1)]
    for first, last in (*recovery.lost, *([recovery.possibly_lost] if recovery.possibly_lost else [])):
        covered += range(first, last + 1)
    assert sorted(covered) == list(range(1, recovery.last + 1))
    assert recovery.last >= (ledger or 0)
