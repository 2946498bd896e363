"""What `check`, `show` and `schema` print."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml
from tests.unit.config_case import BASE, ENV, Case, case, changed

from inspectd.config.commands import check, show
from inspectd.errors import ConfigurationError

QUIET = changed("class: [open, short]", "min_confidence: 0.3")


@pytest.fixture
def line3(tmp_path: Path) -> Case:
    return case(tmp_path)


def checked(line3: Case, text: str) -> tuple[int, str]:
    line3.write(text)
    code, said = check(line3.file, None, ENV)
    return code, said.replace(f"{line3.folder}/", "")


def test_check_prints_the_plan_of_a_good_file(line3: Case) -> None:
    code, said = checked(line3, QUIET)
    assert code == 0
    assert said.startswith("inspectd.yaml: no fault; state in /home/line/.local/state/inspectd; SHA-256 ")
    assert "\n  camera top: 12 slots × 640 × 640 × 3 = 14 MB\n" in said
    assert "\n  together: 3 processes, 14 MB for frames, " in said


def test_check_prints_warnings_before_the_plan_and_still_exits_0(line3: Case) -> None:
    code, said = checked(line3, BASE)
    assert code == 0
    first, second, *_ = said.splitlines()
    assert first.startswith("inspectd.yaml:17: models.defects: no rule names mouse_bite")
    assert first.endswith("(warning)")
    assert second.startswith("inspectd.yaml: no fault, 1 warning; ")


def test_check_prints_every_fault_and_exits_78(line3: Case) -> None:
    code, said = checked(line3, changed("fps: 30", "fsp: 30", changed("id: aoi-01", "id: 1")))
    assert code == 78
    assert said.splitlines() == [
        'inspectd.yaml:7: station.id: `1` without quotes is a number; write "1" in quotes for text',
        "inspectd.yaml:13: cameras.top.fsp: unknown key, did you mean `fps`?",
        "2 faults",
    ]


@pytest.mark.parametrize(("name", "said"), [("a.png", "12 slots × 6 × 4 × 3"), ("b.png", "size not known before")])
def test_check_looks_at_the_first_picture_for_its_size(line3: Case, name: str, said: str) -> None:
    """One that cannot be read is a frame of its own (405) later, and no fault now."""
    (line3.folder / "pictures").mkdir()
    picture = line3.folder / "pictures" / name
    if name == "a.png":
        cv2.imwrite(str(picture), np.zeros((4, 6, 3), np.uint8))
    else:
        picture.write_bytes(b"no picture")
    code, text = checked(line3, changed("{kind: simulator}", "{kind: files, path: pictures}", QUIET))
    assert code == 0
    assert said in text


def test_show_gives_every_key_with_its_value(line3: Case) -> None:
    line3.write(BASE)
    shown = yaml.safe_load(show(line3.file, ENV))
    assert shown["mqtt"]["keepalive_s"] == 10
    assert shown["models"]["defects"]["path"] == str(line3.folder / "models" / "pcb.xml")
    assert shown["storage"]["path"] == "/home/line/.local/state/inspectd"


def test_what_show_prints_loads_again_as_the_same(line3: Case) -> None:
    """Also words that need quotes, an explicit null, and values that are equal in two places."""
    shifts = '  id: "017"\n  shifts: ["06:00", "14:00"]\n  cell: "no"'
    text = changed(
        "  id: aoi-01", shifts, changed("      evaluation: notOk", "      evaluation: notOk\n      max_count: null")
    )
    loaded = line3.load(text)
    again = line3.load(show(line3.file, ENV))
    assert again.configuration == loaded.configuration
    assert again.configuration.decision.rules[0].max_count is None


def test_show_never_holds_a_password(line3: Case) -> None:
    (line3.folder / "pw").write_text("hunter2")
    (line3.folder / "pw").chmod(0o600)
    line3.write(changed("  host: 127.0.0.1", "  username: aoi\n  password_file: pw"))
    shown = show(line3.file, ENV)
    assert "hunter2" not in shown
    assert f"password_file: {line3.folder}/pw" in shown


def test_show_of_a_wrong_file_tells_its_faults(line3: Case) -> None:
    line3.write("version: 1\n")
    with pytest.raises(ConfigurationError) as caught:
        show(line3.file, ENV)
    assert len(caught.value.faults) == 3
