"""YAML's traps, each with a message that names file, line, key and the cure."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.unit.config_case import BASE, ENV, Case, case, changed

from inspectd.config.load import load
from inspectd.config.readfile import BYTES_MAX
from inspectd.config.yamltree import parse
from inspectd.errors import ConfigurationError


@pytest.fixture
def line3(tmp_path: Path) -> Case:
    return case(tmp_path)


def test_the_base_of_these_tests_has_no_fault(line3: Case) -> None:
    assert line3.faults(BASE) == []


TRAPS: dict[str, tuple[str | bytes, str]] = {
    "a tab as indentation": (
        changed("  site: suzhou", "\tsite: suzhou"),
        "inspectd.yaml:4: a tab indents this line; YAML wants spaces",
    ),
    "a tab after spaces": (changed("  site: suzhou", "  \tsite: suzhou"), "inspectd.yaml:4: a tab indents this line"),
    "a key given twice": (
        changed("  site: suzhou", "  site: suzhou\n  site: wuxi"),
        "inspectd.yaml:5: station.site: is given twice, first on line 4; remove one",
    ),
    "a section given twice": (
        BASE + "mqtt: {port: 1884}\n",
        "inspectd.yaml:26: mqtt: is given twice, first on line 8; remove one",
    ),
    "no as text": (
        changed("line: line3", "line: no"),
        'inspectd.yaml:6: station.line: `no` without quotes is false to YAML; write "no" in quotes for text',
    ),
    "on as a key": (
        changed("  top:\n", "  on:\n"),
        'inspectd.yaml:11: cameras.on: `on` without quotes is not text to YAML; write "on" in quotes',
    ),
    "a number as a key": (changed("  top:\n", "  1:\n"), "inspectd.yaml:11: cameras.1: `1` without quotes is not text"),
    "a number as an id": (
        changed("id: aoi-01", "id: 17"),
        'inspectd.yaml:7: station.id: `17` without quotes is a number; write "17" in quotes for text',
    ),
    "a leading zero": (
        changed("host: 127.0.0.1", "port: 01883"),
        "inspectd.yaml:9: mqtt.port: `01883` begins with 0, which some YAML readers take for an octal number; wr",
    ),
    "an octal number": (
        changed("host: 127.0.0.1", "port: 0o17"),
        "inspectd.yaml:9: mqtt.port: `0o17` begins with 0, which some YAML readers take for an octal number",
    ),
    "a time of day": (
        changed("  id: aoi-01", "  id: aoi-01\n  shifts: [14:00]"),
        'some YAML readers; write "14:00" in quotes',
    ),
    "a time of day before ten": (
        changed("  id: aoi-01", "  id: aoi-01\n  shifts: [06:00]"),
        "inspectd.yaml:8: station.shifts[0]: `06:00` without quotes",
    ),
    "a list at the top": (
        "- version: 1\n",
        "inspectd.yaml:1: begins with a list (`- …`); keys are wanted: `version: 1`",
    ),
    "a word": ("hello\n", "inspectd.yaml:1: is one word or text; keys are wanted"),
    "an empty file": ("", "inspectd.yaml:1: is empty; begin with `version: 1`"),
    "blanks only": (" \n\n", "inspectd.yaml:1: is empty; begin with `version: 1`"),
    "comments only": ("# version: 1\n", "inspectd.yaml:1: has no keys, only comments; begin with `version: 1`"),
    "an empty document": ("---\n", "inspectd.yaml:2: has no keys"),
    "several documents": (BASE + "---\n" + BASE, "inspectd.yaml:26: a second document begins here (`---`)"),
    "nonsense of 10 MB": (b"x" * 10 * 2**20, "inspectd.yaml:1: is larger than 1 MiB"),
    "a NUL byte": (b"version: 1\n\0\n", "inspectd.yaml:2: has a NUL byte here: it is not text"),
    "not UTF-8": (
        "version: 1\n# Prüfung\n".encode("latin-1"),
        "inspectd.yaml:2: has byte 0xfc, which is not UTF-8; save the file as UTF-8",
    ),
    "UTF-16": ("version: 1\n".encode("utf-16"), "inspectd.yaml:1: is UTF-16; save it as UTF-8"),
    "a control character": ("version: 1\n#\x07\n", "inspectd.yaml:2: has the control character U+0007 here; remove it"),
    "an anchor": (
        changed("fps: 30", "fps: &rate 30"),
        "inspectd.yaml:13: cameras.top.fps: the anchor `&rate` is not supported; write the value where it is used",
    ),
    "an alias": (
        changed("fps: 30", "fps: *rate"),
        "inspectd.yaml:13: cameras.top.fps: the alias `*rate` is not supported; write the value out",
    ),
    "a merge key": (
        changed("    fps: 30", "    fps: 30\n    <<: {priority: 2}"),
        "inspectd.yaml:14: cameras.top.<<: merge keys (`<<`) are not supported; write the keys out",
    ),
    "a tag that would make an object": (
        changed("site: suzhou", "site: !!python/object/apply:os.system ['true']"),
        "inspectd.yaml:4: station.site: the tag `!!python/object/apply:os.system` is not supported",
    ),
    "a vault's tag": (changed("site: suzhou", "site: !vault x"), "inspectd.yaml:4: station.site: the tag `!vault`"),
    "an unfilled template": (
        changed("site: suzhou", "site: {{ site }}"),
        "inspectd.yaml:4: station.site: a key must be one word; is this a template (`{{ … }}`) that was not filled in",
    ),
    "an open bracket": (
        changed("models: [defects]", "models: [defects"),
        "is not YAML: a bracket or brace is not closed, or a comma is missing (begun on line 15)",
    ),
    "an open quote": (
        changed("site: suzhou", 'site: "suzhou'),
        "inspectd.yaml:26: is not YAML: a quote or bracket is never closed (begun on line 4)",
    ),
    "a wrong indentation": (
        changed("  site: suzhou", " site: suzhou"),
        "inspectd.yaml:4: is not YAML: this line's indentation does not fit the lines above",
    ),
    "a colon in a value": (
        changed("site: suzhou", "site: suzhou: 2"),
        "inspectd.yaml:4: is not YAML: a `: ` where none",
    ),
    "a colon without a blank": (
        changed("site: suzhou", "site:suzhou"),
        "inspectd.yaml:4: is not YAML: `: ` is missing after a key",
    ),
    "deep nesting": (changed("site: suzhou", "site: " + "[" * 500), "inspectd.yaml:4: is nested more than 24 deep"),
    "very deep nesting": ("[" * 500_000, "nested "),
    "too many values": ("a: [" + "1," * 100_000 + "]", "inspectd.yaml:1: has more than 20000 values"),
}


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_gives_one_clear_fault(line3: Case, name: str) -> None:
    """The fault names the file, the line and the key, says what is wrong and how to mend it; nothing else is told."""
    text, said = TRAPS[name]
    assert said in line3.fault(text)


def test_aliases_that_explode_are_refused_at_once() -> None:
    """Ten levels of nine aliases each would make 10^9 values; each alias is one fault and no value."""
    levels = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 11)]
    begun_s = time.monotonic()
    tree = parse("\n".join(levels))
    assert time.monotonic() - begun_s < 2
    assert any("the alias `*a9` is not supported" in fault.what for fault in tree.faults)


def test_every_trap_of_a_file_is_told_with_what_the_schema_says(line3: Case) -> None:
    text = changed("host: 127.0.0.1", "port: 01883", changed("line: line3", "line: no", changed("fps: 30", "fsp: 30")))
    lines = [fault.split(":")[1] for fault in line3.faults(text)]
    assert lines == ["6", "9", "13"]


def test_an_unquoted_password_under_a_wrong_key_is_not_printed(line3: Case) -> None:
    """No secret in any text: also not the one that somebody put where it does not belong."""
    fault = line3.fault(changed("host: 127.0.0.1", "password: 0123456"))
    assert "unknown key, did you mean `password_file`?" in fault
    assert "123456" not in fault


def test_a_missing_file_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"none\.yaml:1: there is no such file; give the configuration with -c"
    ):
        load(tmp_path / "none.yaml", env=ENV)


def test_a_folder_is_a_fault_that_names_the_file_to_give(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r":1: is a folder; name the file in it, such as .*/inspectd\.yaml"):
        load(tmp_path, env=ENV)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_the_right_to_read_it_names_user_and_mode(line3: Case) -> None:
    line3.write(BASE)
    line3.file.chmod(0o000)
    with pytest.raises(ConfigurationError, match=rf":1: user id {os.geteuid()} may not read it \(mode 0000, owner"):
        load(line3.file, env=ENV)


def test_a_fifo_is_a_fault_and_not_a_wait(tmp_path: Path) -> None:
    """Opening a FIFO that nobody writes to would hang the start of the daemon."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigurationError, match="is not a regular file"):
        load(tmp_path / "fifo", env=ENV)


def test_a_file_of_exactly_the_limit_is_read(line3: Case) -> None:
    assert line3.faults(BASE + "#" * (BYTES_MAX - len(BASE))) == []


def test_a_byte_order_mark_is_no_fault(line3: Case) -> None:
    assert line3.faults("\ufeff" + BASE) == []


def test_windows_line_ends_are_no_fault_and_lines_stay_right(line3: Case) -> None:
    text = changed("fps: 30", "fsp: 30").replace("\n", "\r\n")
    assert line3.fault(text).startswith("inspectd.yaml:13: cameras.top.fsp: ")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("yes", True),
        ("off", False),
        ("~", None),
        ("1_000", 1000),
        ("0x10", 16),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.0.5", "1.0.5"),
    ],
)
def test_a_plain_word_means_what_most_readers_think(word: str, value: object) -> None:
    assert parse(f"a: {word}").value == {"a": value}
