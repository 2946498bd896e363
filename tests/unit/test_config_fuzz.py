"""Whatever a file holds: it loads, or gives ConfigurationError, and soon."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.config_case import BASE, Case, case

BOUND_S = 5.0
"""Far above what any file of 1 MiB takes on a busy shared host."""
FAULT = re.compile(r".*inspectd\.yaml(:\d+: .|: and \d+ more faults)", re.DOTALL)
WORDS = [
    "version",
    "station",
    "cameras",
    "models",
    "decision",
    "rules",
    "top",
    "defects",
    "kind",
    "files",
    "id",
    "class",
    "region",
]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(WORDS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
SIGNS = "- |: |? |{|}|[|]|, |\n|\n  |\t|&a |*a|!!x |!|'|\"|>\n|#|---\n|%|@|`|\\x|<<: |~|no|0o7|14:00|é|.inf|1e400"
FRAGMENTS = st.sampled_from([*SIGNS.split("|"), "|\n", "\u2028", "\x85", *WORDS])
given_often = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def line3(tmp_path: Path) -> Case:
    return case(tmp_path)


def loads_or_tells(line3: Case, text: str | bytes) -> None:
    begun_s = time.monotonic()
    faults = line3.faults(text)
    assert time.monotonic() - begun_s < BOUND_S
    assert [fault for fault in faults if "\n" in fault or not FAULT.match(fault)] == []


@given_often
@given(st.binary(max_size=300))
def test_any_bytes_load_or_are_told(line3: Case, data: bytes) -> None:
    loads_or_tells(line3, data)


@given_often
@given(st.lists(FRAGMENTS, max_size=40).map("".join))
def test_any_heap_of_yaml_s_own_signs_loads_or_is_told(line3: Case, text: str) -> None:
    loads_or_tells(line3, text)


@given_often
@given(st.data())
def test_a_good_file_with_any_values_put_in_loads_or_is_told(line3: Case, data: st.DataObject) -> None:
    """Reaches what lies behind the parser: the schema, its mending, and the cross-checks."""
    document: Any = yaml.safe_load(BASE)
    for _ in range(data.draw(st.integers(1, 4))):
        place = document
        while True:
            keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if not isinstance(place[key], (dict, list)) or data.draw(st.booleans()):
                place[key] = data.draw(VALUES)
                break
            place = place[key]
    with contextlib.suppress(yaml.YAMLError, UnicodeEncodeError):
        loads_or_tells(line3, yaml.safe_dump(document, sort_keys=False))


@given_often
@given(st.integers(0, len(BASE)), st.integers(0, 20), FRAGMENTS)
def test_a_good_file_with_a_hole_or_a_slip_loads_or_is_told(line3: Case, place: int, length: int, slip: str) -> None:
    loads_or_tells(line3, BASE[:place] + slip + BASE[place + length :])


@pytest.mark.parametrize(
    "text",
    [
        "a: [" + "{" * 600_000,
        "- " * 500_000,
        "? " * 500_000,
        "a: " + "9" * 1_000_000,
        "a: '" + "''" * 500_000,
        "".join(f"k{number}: {{}}\n" for number in range(19_000)),
        BASE + "".join(f"    - {{id: r{number}, zebra: 1}}\n" for number in range(3_000)),
        BASE + "".join(f"    - {{id: r{number}, camera: nobody, evaluation: notOk}}\n" for number in range(3_000)),
    ],
    ids=["braces", "lists", "keys", "digits", "quotes", "unknown keys", "wrong rules", "lost rules"],
)
def test_a_large_file_of_nonsense_is_told_soon(line3: Case, text: str) -> None:
    loads_or_tells(line3, text)
