"""What the schema refuses, in an engineer's words; and what its models give."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.unit.config_case import BASE, Case, case, changed

from inspectd.config.schema import Configuration, FilesSource, Model, SimulatorSource
from inspectd.config.show import as_yaml

RULE = "      evaluation: notOk\n"


@pytest.fixture
def line3(tmp_path: Path) -> Case:
    return case(tmp_path)


FAULTS = {
    "a misspelt key": ("    fps: 30", "    fsp: 30", "13: cameras.top.fsp: unknown key, did you mean `fps`?"),
    "a misspelt required key": (
        "    models: [defects]",
        "    modles: [defects]",
        "15: cameras.top.modles: unknown key, did you mean `models`?",
    ),
    "a key of another section": (
        "    fps: 30",
        "    fps: 30\n    confidence: 0.3",
        "14: cameras.top.confidence: unknown key here; it belongs under `models.NAME`",
    ),
    "a key that nobody knows": (
        "  host: 127.0.0.1",
        "  zebra: 1",
        "9: mqtt.zebra: unknown key; known here: host, tls, port, version, base, username, password_file",
    ),
    "a section of a later version": (
        "mqtt:\n",
        "mqtt:\n  proxy: {}\n",
        "9: mqtt.proxy: unknown key; known here: host, tls, port",
    ),
    "a missing key": ("  line: line3\n", "", "2: station.line: is missing; the section needs it"),
    "a missing section": ("version: 1\n", "", "1: version: is missing; the file needs it"),
    "another version": ("version: 1", "version: 2", "1: version: `2` is not 1"),
    "a version in quotes": ("version: 1", 'version: "1"', "1: version: `1` is not 1; write 1 without quotes"),
    "a number in quotes": (
        "fps: 30",
        'fps: "30"',
        "13: cameras.top.fps: `30` in quotes is text; write 30 without them",
    ),
    "a number with its unit": (
        "deadline_ms: 300",
        "deadline_ms: 300ms",
        "14: cameras.top.deadline_ms: `300ms` is text; give the number alone (300), in the unit that the key names",
    ),
    "a word where a number is wanted": (
        "fps: 30",
        "fps: fast",
        "13: cameras.top.fps: `fast` is text; a number is wanted",
    ),
    "a fraction": (
        "deadline_ms: 300",
        "deadline_ms: 300.5",
        "14: cameras.top.deadline_ms: `300.5` has a fraction; a whole number is wanted",
    ),
    "a truth where a number is wanted": (
        "fps: 30",
        "fps: yes",
        "13: cameras.top.fps: `yes` is true or false; a number",
    ),
    "a list where a number is wanted": ("fps: 30", "fps: [30]", "13: cameras.top.fps: is a list; a number is wanted"),
    "zero pictures per second": ("fps: 30", "fps: 0", "13: cameras.top.fps: `0` is too small; it must be above 0"),
    "an infinite number": ("fps: 30", "fps: .inf", "13: cameras.top.fps: "),
    "a port too large": ("host: 127.0.0.1", "port: 70000", "9: mqtt.port: `70000` is too large; at most 65535"),
    "a name with a blank": (
        "site: suzhou",
        "site: su zhou",
        "4: station.site: `su zhou`: only A-Z a-z 0-9 _ - are allowed",
    ),
    "a camera's name with a slash": ("  top:", "  top/left:", "11: cameras.top/left: `top/left`: only A-Z a-z 0-9 _ -"),
    "a camera of a later version": (
        "{kind: simulator}",
        "{kind: rtsp, url: x}",
        "12: cameras.top.source.kind: `rtsp` is not files, video or simulator",
    ),
    "a misspelt kind": (
        "{kind: simulator}",
        "{kind: simulater}",
        "12: cameras.top.source.kind: `simulater` is not files, video or simulator, did you mean `simulator`?",
    ),
    "no kind": ("{kind: simulator}", "{seed: 1}", "12: cameras.top.source.kind: is missing; it is files or simulator"),
    "a wrong key of a source": (
        "{kind: simulator}",
        "{kind: simulator, path: x}",
        "12: cameras.top.source.path: unknown key here; it belongs under",
    ),
    "a wrong value of a source": (
        "{kind: simulator}",
        "{kind: simulator, seed: -1}",
        "12: cameras.top.source.seed: `-1` is",
    ),
    "a triggered camera": (
        "    fps: 30",
        "    fps: 30\n    mode: triggered",
        "14: cameras.top.mode: `triggered`: triggered cameras are not in this version of inspectd; only `cont",
    ),
    "no rate": (
        "    fps: 30\n",
        "",
        "11: cameras.top.fps: is missing; give the expected pictures per second, or `pace: lossl",
    ),
    "no cameras": (
        BASE[BASE.index("  top:") : BASE.index("models:\n")],
        "  {}\n",
        "10: cameras: is empty; give at least one",
    ),
    "no models of a camera": ("[defects]", "[]", "15: cameras.top.models: is empty; give at least one"),
    "a model named twice": ("[defects]", "[defects, defects]", "15: cameras.top.models: names a model twice"),
    "another task": ("task: detect", "task: ocr", "18: models.defects.task: `ocr` is not detect"),
    "another way to resize": (
        "    task: detect",
        "    task: detect\n    input: {resize: squeeze}",
        "19: models.defects.input.resize: `squeeze` is not",
    ),
    "neither auto nor a number": (
        "    task: detect",
        "    task: detect\n    threads: all",
        "19: models.defects.threads: `all`: give `auto` or a whole number from 1 to 1024",
    ),
    "too few means": (
        "    task: detect",
        "    task: detect\n    input: {mean: [1, 2]}",
        "19: models.defects.input.mean[2]: too few values; the list needs one more here",
    ),
    "too many means": (
        "    task: detect",
        "    task: detect\n    input: {mean: [1, 2, 3, 4]}",
        "19: models.defects.input.mean: has 4 values; 3 are wanted",
    ),
    "a device in small letters": (
        "    task: detect",
        "    task: detect\n    devices: [gpu]",
        "19: models.defects.devices[0]: `gpu`: is not a device as OpenVINO names them: CPU, GPU, GPU.1, NPU",
    ),
    "a device named twice": (
        "    task: detect",
        "    task: detect\n    devices: [GPU, CPU, GPU.0]",
        "19: models.defects.devices: names GPU.0 after GPU, which is the same; give each device once",
    ),
    "a limit of memory that no process keeps": (
        "    task: detect",
        "    task: detect\n    rss_limit_mb: 63",
        "19: models.defects.rss_limit_mb: `63`: give `auto` or a whole number from 64 to 1048576",
    ),
    "a hash that is none": (
        "    task: detect",
        "    task: detect\n    sha256: 9f2c",
        "19: models.defects.sha256: `9f2c`: is not a SHA-256, which has 64 digits 0-9 a-f; `sha256sum FILE` prints it",
    ),
    "a home folder": (
        "models/pcb.xml",
        "~/pcb.xml",
        "19: models.defects.path: `~/pcb.xml`: `~` is not a home folder here",
    ),
    "an empty path": ("models/pcb.xml", '""', "19: models.defects.path: is empty; give a path, or remove the key"),
    "a word in capitals": (
        RULE,
        "      evaluation: NotOk\n",
        "25: decision.rules[0].evaluation: `NotOk` is not notOk or notDe",
    ),
    "an evaluation of no rule": (
        RULE,
        "      evaluation: ok\n",
        "25: decision.rules[0].evaluation: `ok` is not notOk or notD",
    ),
    "a code of the other evaluation": (
        RULE,
        RULE + "      code: 200\n",
        "26: decision.rules[0].code: code 200 does not fit `evaluation: notOk`; give 110 to 199, or leave it out",
    ),
    "counts the wrong way round": (
        RULE,
        RULE + "      min_count: 2\n",
        "23: decision.rules[0].max_count: min_count 2 is above max_count 0, so that no count is right",
    ),
    "a time that does not exist": (
        "  id: aoi-01",
        '  id: aoi-01\n  shifts: ["24:00"]',
        "8: station.shifts[0]: `24:00`: there is no such time of day; 00:00 to 23:59",
    ),
    "a time without its zero": (
        "  id: aoi-01",
        '  id: aoi-01\n  shifts: ["6:00"]',
        "8: station.shifts[0]: `6:00`: give a time",
    ),
    "a wildcard in the topics": ("  host: 127.0.0.1", '  base: "a/#"', "9: mqtt.base: `a/#`: give topic levels of A-Z"),
    "an unknown name in the topics": (
        "  host: 127.0.0.1",
        '  base: "a/{plant}"',
        "9: mqtt.base: `a/{plant}`: give topic levels",
    ),
    "text for a section": ("{kind: simulator}", "simulator", "12: cameras.top.source: `simulator` is text; a section"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_value_gives_one_fault_in_plain_words(line3: Case, name: str) -> None:
    """`FILE:LINE: key: what is wrong and how to mend it`, once, without the words of pydantic."""
    old, new, said = FAULTS[name]
    fault = line3.fault(changed(old, new))
    assert f"inspectd.yaml:{said}" in fault
    assert "Input should" not in fault


def test_a_key_without_a_value_is_told(line3: Case) -> None:
    assert line3.fault(changed("site: suzhou", "site:")) == (
        "inspectd.yaml:4: station.site: has no value; give text, or remove the key"
    )


def test_eight_faults_are_eight_lines_in_the_order_of_the_file(line3: Case) -> None:
    """All faults at once: an engineer mends a file in one go. No fault is told twice or follows from another."""
    text = BASE
    for old, new in (
        ("site: suzhou", "site: su zhou"),
        ("line: line3", "line: no"),
        ("host: 127.0.0.1", "host: mes-broker"),
        ("fps: 30", 'fps: "30"'),
        ("    models: [defects]", "    models: [defect]"),
        ("task: detect", "task: detect\n    iou: 2"),
        ("timeout_ms: 150", "timeout_sm: 150"),
        ("[open, short]", "[open, shrot]\n      model: defects"),
    ):
        text = changed(old, new, text)
    faults = line3.faults(text)
    assert [fault.split(":")[1] for fault in faults] == ["4", "6", "9", "13", "15", "19", "21", "25"]


def test_a_rule_after_a_wrong_one_keeps_its_place_in_messages(line3: Case) -> None:
    """The first rule lacks its id and is left out of the cross-checks; the second must not be called the first."""
    text = BASE.replace("    - id: electrical\n      class", "    - zebra: 1\n      evaluation: x\n      class", 1)
    text = text.replace("      evaluation: notOk\n", "    - {id: b, camera: side, evaluation: notOk}\n", 1)
    assert any(
        fault.startswith("inspectd.yaml:26: decision.rules[1].camera: there is no") for fault in line3.faults(text)
    )


def test_a_model_is_frozen(line3: Case) -> None:
    configuration = line3.load(BASE).configuration
    with pytest.raises(ValidationError, match="frozen"):
        configuration.mqtt.port = 1


def test_durations_are_given_in_seconds(line3: Case) -> None:
    configuration = line3.load(BASE).configuration
    assert configuration.cameras["top"].deadline_s == 0.3
    assert configuration.models["defects"].timeout_s == 0.15


@pytest.mark.parametrize(("timeout_ms", "kill_after_s"), [(10, 0.2), (150, 0.3), (4000, 5.0)])
def test_the_time_to_kill_is_twice_the_limit_within_bounds(timeout_ms: int, kill_after_s: float) -> None:
    model = Model.model_validate({"task": "detect", "path": "m.xml", "timeout_ms": timeout_ms})
    assert model.kill_after_s == kill_after_s


def test_a_given_time_to_kill_is_taken() -> None:
    model = Model.model_validate({"task": "detect", "path": "m.xml", "kill_after_ms": 50})
    assert model.kill_after_s == 0.05


def test_an_empty_level_is_left_out_of_the_topic(line3: Case) -> None:
    configuration = line3.load(BASE).configuration
    assert configuration.base_topic == "acme/suzhou/smt/line3/aoi-01"
    assert configuration.client_id == "inspectd-acme-suzhou-smt-line3-aoi-01"


def test_the_topic_can_be_given(line3: Case) -> None:
    text = changed("  host: 127.0.0.1", '  base: "plant/{line}/{id}"')
    assert line3.load(text).configuration.base_topic == "plant/line3/aoi-01"


def test_one_class_is_a_list_of_one(line3: Case) -> None:
    text = changed("class: [open, short]", "class: open")
    assert line3.load(text).configuration.decision.rules[0].class_ == ("open",)


def test_an_overlap_that_is_not_given_is_left_to_the_model_file(line3: Case) -> None:
    """`show` printed 0.5 where the engine took the file's 0.7."""
    left = line3.load(BASE).configuration
    given = line3.load(changed("task: detect", "task: detect\n    iou: 0.4")).configuration
    assert (left.models["defects"].iou, given.models["defects"].iou) == (None, 0.4)
    assert "iou" not in as_yaml(left)
    assert "iou: 0.4" in as_yaml(given)


def test_no_upper_limit_is_an_explicit_null(line3: Case) -> None:
    """Left out, max_count is 0."""
    text = changed(RULE, RULE + "      max_count: null\n")
    assert line3.load(text).configuration.decision.rules[0].max_count is None
    assert line3.load(BASE).configuration.decision.rules[0].max_count == 0


@pytest.mark.parametrize(
    ("source", "fps", "max_fps", "supply_fps"),
    [
        ({"kind": "simulator"}, 30.0, None, 30.0),
        ({"kind": "simulator"}, 30.0, 30.0, 30.0),
        ({"kind": "files", "path": "x", "fps": 50.0}, 30.0, 40.0, 40.0),
        ({"kind": "files", "path": "x", "fps": 5.0}, 30.0, None, 5.0),
        ({"kind": "files", "path": "x", "pace": "lossless"}, None, None, None),
    ],
)
def test_a_source_with_a_pace_of_its_own_is_told_its_rate(
    source: dict[str, object], fps: float | None, max_fps: float | None, supply_fps: float | None
) -> None:
    """Its own fps, else the camera's, at most max_fps; None when it waits for room instead."""
    camera = {"source": source, "fps": fps, "max_fps": max_fps, "models": ["m"]}
    station = dict.fromkeys(("enterprise", "site", "area", "line", "id"), "x")
    models = {"m": {"task": "detect", "path": "m.xml"}}
    configuration = Configuration.model_validate(
        {"version": 1, "station": station, "cameras": {"top": camera}, "models": models}
    )
    assert configuration.cameras["top"].supply_fps == supply_fps
    assert isinstance(configuration.cameras["top"].source, (FilesSource, SimulatorSource))
