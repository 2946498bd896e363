"""Cross-checks: keys against each other, against the model's classes, and against this PC."""

from __future__ import annotations

import hashlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from tests.unit.config_case import BASE, ENV, Case, case, changed, ir

from inspectd import slices
from inspectd.camera.files import ENDINGS
from inspectd.config.load import load
from inspectd.config.modelfile import classes_of, hashes_of
from inspectd.config.onsite import PICTURE_ENDINGS
from inspectd.errors import ConfigurationError
from inspectd.publish.broker import TlsFiles

RULE = "      evaluation: notOk\n"
SIDE = "  side: {source: {kind: simulator}, fps: 10, models: [defects]}\nmodels:\n"
OTHER = "  other: {task: detect, path: models/pcb.xml, required: false}\ndecision:\n"


@pytest.fixture
def line3(tmp_path: Path) -> Case:
    return case(tmp_path)


def fitted(*changes: tuple[str, str]) -> str:
    text = BASE
    for old, new in changes:
        text = changed(old, new, text)
    return text


FAULTS = {
    "a camera names an unknown model": (
        fitted(("[defects]", "[defect]")),
        "15: cameras.top.models[0]: there is no model `defect`, did you mean `defects`?",
    ),
    "a camera names a model that is like none": (
        fitted(("[defects]", "[qqq, defects]")),
        "15: cameras.top.models[0]: there is no model `qqq`; there is defects",
    ),
    "a camera without a required model": (
        fitted(("    task: detect", "    task: detect\n    required: false")),
        "15: cameras.top.models: none of defects is required, so that nothing could ever be OK",
    ),
    "a deadline shorter than a time limit": (
        fitted(("deadline_ms: 300", "deadline_ms: 100")),
        "14: cameras.top.deadline_ms: 100 ms is shorter than the time limit of model defects (timeout_ms 150)",
    ),
    "a limit below the expected rate": (
        fitted(("    fps: 30", "    fps: 30\n    max_fps: 10")),
        "14: cameras.top.max_fps: 10 is below the expected `fps` 30",
    ),
    "a broker elsewhere": (
        fitted(("127.0.0.1", "mes-broker")),
        "9: mqtt.host: `mes-broker` is not on this PC, and without `tls` passwords",
    ),
    "a broker elsewhere by number": (fitted(("127.0.0.1", "10.0.0.5")), "9: mqtt.host: `10.0.0.5` is not on this PC"),
    "a name without its password": (
        fitted(("  host: 127.0.0.1", "  username: aoi")),
        "9: mqtt.username: is given without `password_file`",
    ),
    "a shift given twice": (
        fitted(("  id: aoi-01", '  id: aoi-01\n  shifts: ["06:00", "06:00"]')),
        "8: station.shifts[1]: `06:00` is given twice; remove one",
    ),
    "an unknown time zone": (
        fitted(("  id: aoi-01", "  id: aoi-01\n  time_zone: Asia/Shangai")),
        "8: station.time_zone: there is no time zone `Asia/Shangai`",
    ),
    "a class that the model does not have": (
        fitted(("[open, short]", "[open, shrot]")),
        "24: decision.rules[0].class: model defects has no class `shrot`, did you mean `short`?",
    ),
    "a class that is like none": (
        fitted(("[open, short]", "[zzz]")),
        "24: decision.rules[0].class: model defects has no class `zzz`; there is open, short and mouse_bite",
    ),
    "classes other than the file's": (
        fitted(("    task: detect", "    task: detect\n    classes: [short, open, mouse_bite]")),
        "19: models.defects.classes: this says short, open and mouse_bite, the file ",
    ),
    "a rule below its model's confidence": (
        fitted((RULE, RULE + "      min_confidence: 0.05\n")),
        "26: decision.rules[0].min_confidence: 0.05 is below the `confidence` 0.1 of model defects",
    ),
    "a rule of an unknown model": (
        fitted((RULE, RULE + "    - {id: b, model: defect, evaluation: notOk}\n")),
        "26: decision.rules[1].model: there is no model `defect`, did you mean `defects`?",
    ),
    "a rule of an unknown camera": (
        fitted((RULE, RULE + "    - {id: b, camera: tpo, evaluation: notOk}\n")),
        "26: decision.rules[1].camera: there is no camera `tpo`, did you mean `top`?",
    ),
    "a rule of a model that its camera does not run": (
        fitted(("decision:\n", OTHER), (RULE, RULE + "    - {id: b, camera: top, model: other, evaluation: notOk}\n")),
        "27: decision.rules[1].model: camera top does not run model other",
    ),
    "a region of no camera": (
        fitted((RULE, RULE + "      region: [[0, 0], [9, 0], [9, 9]]\n")),
        "26: decision.rules[0].region: needs `camera`: px of which camera's picture?",
    ),
    "a region that is a line": (
        fitted((RULE, RULE + "      camera: top\n      region: [[0, 0], [9, 0]]\n")),
        "27: decision.rules[0].region: has 2 points; a polygon has at least 3",
    ),
    "two rules of one id": (
        fitted((RULE, RULE + "    - {id: electrical, evaluation: notOk}\n")),
        "26: decision.rules[1].id: `electrical` is the id of another rule too",
    ),
    "a camera that no rule looks at": (
        fitted(("models:\n  d", SIDE + "  d"), (RULE, RULE + "      camera: top\n")),
        "16: cameras.side: no rule looks at a required model of this camera (defects), so that nothing",
    ),
    "a model file that is missing": (
        fitted(("models/pcb.xml", "models/pbc.xml")),
        "19: models.defects.path: models/pbc.xml does not exist, did you mean `pcb.xml`?",
    ),
    "a model of another kind": (
        fitted(("models/pcb.xml", "models/pcb.pt")),
        "19: models.defects.path: models/pcb.pt is no model that inspectd reads; export it to OpenVINO .xml with .bin",
    ),
    "a model that is another": (
        fitted(("    task: detect", f"    task: detect\n    sha256: {'a' * 64}")),
        "19: models.defects.sha256: models/pcb.xml has ",
    ),
    "a folder of pictures that is missing": (
        fitted(("{kind: simulator}", "{kind: files, path: pictures}")),
        "12: cameras.top.source.path: pictures does not exist; give a folder or glob with pictures (.png",
    ),
    "a folder without pictures": (
        fitted(("{kind: simulator}", "{kind: files, path: models}")),
        "12: cameras.top.source.path: models holds no picture",
    ),
    "a glob that matches nothing": (
        fitted(("{kind: simulator}", '{kind: files, path: "models/*.png"}')),
        "12: cameras.top.source.path: models/*.png matches nothing",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_does_not_fit_together_is_one_fault(line3: Case, name: str) -> None:
    text, said = FAULTS[name]
    assert line3.fault(text).startswith(f"inspectd.yaml:{said}")


def test_a_class_given_twice_is_a_fault(line3: Case) -> None:
    """Space and _ are the same, also here."""
    (line3.folder / "models" / "pcb.xml").write_text(ir(""))
    text = fitted(("    task: detect", "    task: detect\n    classes: [open, short, mouse bite, mouse_bite]"))
    assert line3.fault(text).startswith("inspectd.yaml:19: models.defects.classes[3]: `mouse_bite` is given twice")


def test_a_password_file_needs_a_name(line3: Case) -> None:
    (line3.folder / "pw").write_text("x")
    (line3.folder / "pw").chmod(0o600)
    fault = line3.fault(fitted(("  host: 127.0.0.1", "  password_file: pw")))
    assert fault.startswith("inspectd.yaml:9: mqtt.password_file: is given without `username`")


@pytest.mark.parametrize(
    ("mode", "is_fault"), [(0o600, False), (0o640, False), (0o400, False), (0o644, True), (0o660, True)]
)
def test_a_password_file_that_others_can_read_is_a_fault(line3: Case, mode: int, is_fault: bool) -> None:
    """Existence and mode only: the content is neither read nor told."""
    (line3.folder / "pw").write_text("hunter2")
    (line3.folder / "pw").chmod(mode)
    faults = line3.faults(fitted(("  host: 127.0.0.1", "  username: aoi\n  password_file: pw")))
    told = f"inspectd.yaml:10: mqtt.password_file: pw has mode {mode:04o}, so that others get at the password"
    assert [fault[: len(told)] for fault in faults] == ([told] if is_fault else [])
    assert not any("hunter2" in fault for fault in faults)


def test_a_missing_password_file_is_a_fault(line3: Case) -> None:
    fault = line3.fault(fitted(("  host: 127.0.0.1", "  username: aoi\n  password_file: pw")))
    assert fault.startswith("inspectd.yaml:10: mqtt.password_file: pw cannot be found")


def tls(*lines: str) -> str:
    return fitted(("  host: 127.0.0.1", "  host: mes-broker\n  tls:\n" + "\n".join(f"    {line}" for line in lines)))


@pytest.fixture
def keyed(line3: Case) -> Case:
    """With a client certificate as `openssl` writes one, as far as `check` looks at it."""
    for name in ("ca.pem", "aoi.pem"):
        (line3.folder / name).write_text("-----BEGIN CERTIFICATE-----\n")
    (line3.folder / "aoi.key").write_text("hunter2")
    (line3.folder / "aoi.key").chmod(0o600)
    return line3


def test_a_broker_elsewhere_is_accepted_with_tls_and_its_port_is_another(keyed: Case) -> None:
    configuration = keyed.load(tls("ca_file: ca.pem", "cert_file: aoi.pem", "key_file: aoi.key")).configuration
    assert configuration.mqtt.tls is not None
    assert configuration.mqtt.tls.key_file == keyed.folder / "aoi.key"
    assert configuration.mqtt.port == 8883
    settings = slices.broker_settings(configuration, "boot")
    assert settings.tls == TlsFiles(keyed.folder / "ca.pem", keyed.folder / "aoi.pem", keyed.folder / "aoi.key")
    assert keyed.load(fitted()).configuration.mqtt.port == 1883


def test_tls_without_files_trusts_what_this_pc_trusts_and_a_port_that_is_given_stays(line3: Case) -> None:
    text = fitted(("  host: 127.0.0.1", "  host: mes-broker\n  tls: {}\n  port: 1884"))
    configuration = line3.load(text).configuration
    assert configuration.mqtt.port == 1884
    assert slices.broker_settings(configuration, "boot").tls == TlsFiles()


@pytest.mark.parametrize(
    ("name", "value", "missing"), [("cert_file", "aoi.pem", "key_file"), ("key_file", "aoi.key", "cert_file")]
)
def test_half_a_client_certificate_is_a_fault(keyed: Case, name: str, value: str, missing: str) -> None:
    assert keyed.fault(tls(f"{name}: {value}")).startswith(
        f"inspectd.yaml:11: mqtt.tls.{name}: is given without `{missing}`"
    )


def test_a_key_that_others_can_read_is_a_fault(keyed: Case) -> None:
    """Existence and mode only: the content is neither read nor told."""
    (keyed.folder / "aoi.key").chmod(0o644)
    fault = keyed.fault(tls("cert_file: aoi.pem", "key_file: aoi.key"))
    assert fault.startswith("inspectd.yaml:12: mqtt.tls.key_file: aoi.key has mode 0644, so that others get at the key")


@pytest.mark.parametrize("name", ["ca_file", "cert_file"])
def test_a_certificate_that_is_missing_or_none_is_a_fault(keyed: Case, name: str) -> None:
    lines = {"ca_file": "ca.pem", "cert_file": "aoi.pem", "key_file": "aoi.key"}
    place = 11 + list(lines).index(name)
    text = tls(*(f"{key}: {value}" for key, value in lines.items()))
    path = keyed.folder / lines[name]
    path.write_bytes(b"\x30\x82der")
    assert f"{place}: mqtt.tls.{name}: {path.name} holds no certificate in PEM form; convert it" in keyed.fault(text)
    path.unlink()
    assert f"{place}: mqtt.tls.{name}: {path.name} cannot be read" in keyed.fault(text)


def test_an_insecure_broker_is_accepted_when_it_is_meant(line3: Case) -> None:
    assert line3.faults(fitted(("127.0.0.1", "mes-broker\n  insecure: true"))) == []


@pytest.mark.parametrize("host", ["localhost", "127.0.1.1", '"::1"', "LocalHost"])
def test_loopback_needs_no_encryption(line3: Case, host: str) -> None:
    assert line3.faults(fitted(("127.0.0.1", host))) == []


def test_an_ir_without_its_weights_is_a_fault(line3: Case) -> None:
    (line3.folder / "models" / "pcb.bin").unlink()
    fault = line3.fault(BASE)
    assert fault.startswith(
        "inspectd.yaml:19: models.defects.path: models/pcb.bin is missing; an OpenVINO model is two"
    )


def test_an_empty_model_is_a_fault(line3: Case) -> None:
    (line3.folder / "models" / "pcb.xml").write_bytes(b"")
    assert line3.fault(BASE).startswith("inspectd.yaml:19: models.defects.path: models/pcb.xml is empty")


def test_a_folder_as_model_is_a_fault(line3: Case) -> None:
    (line3.folder / "folder.xml").mkdir()
    (line3.folder / "folder.bin").write_bytes(b"x")
    fault = line3.fault(fitted(("models/pcb.xml", "folder.xml")))
    assert "models.defects.path: folder.xml cannot be read by user id" in fault


@pytest.mark.parametrize("with_weights", [True, False])
def test_a_model_is_known_by_its_hash_with_or_without_the_weights(line3: Case, with_weights: bool) -> None:
    """As the model child accepts it: `cat pcb.xml pcb.bin | sha256sum`, or that of the .xml."""
    parts = [line3.folder / "models" / "pcb.xml"] + [line3.folder / "models" / "pcb.bin"] * with_weights
    wanted = hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()
    assert line3.faults(fitted(("    task: detect", f"    task: detect\n    sha256: {wanted}"))) == []
    assert wanted in hashes_of(parts[0])


def test_two_cameras_on_the_same_pictures_are_a_fault(line3: Case) -> None:
    """Also by another way to write the path."""
    (line3.folder / "pictures").mkdir()
    (line3.folder / "pictures" / "a.png").write_bytes(b"x")
    side = "  side: {source: {kind: files, path: models/../pictures/}, fps: 10, models: [defects]}\nmodels:\n"
    fault = line3.fault(fitted(("{kind: simulator}", "{kind: files, path: pictures}"), ("models:\n  d", side + "  d")))
    assert fault.startswith("inspectd.yaml:16: cameras.side.source.path: camera top has the same path (pictures)")


def test_two_cameras_on_equal_simulators_are_no_fault(line3: Case) -> None:
    assert line3.faults(fitted(("models:\n  d", SIDE + "  d"))) == []


def test_a_model_that_no_camera_uses_is_a_warning(line3: Case) -> None:
    warnings = line3.warnings(fitted(("decision:\n", OTHER)))
    assert any(warning.startswith("inspectd.yaml:21: models.other: no camera uses this model") for warning in warnings)


def test_a_way_back_without_another_device_is_a_warning(line3: Case) -> None:
    changed = ("    task: detect", "    task: detect\n    retry_primary_s: 60")
    assert line3.warnings(fitted(changed))[-1].startswith(
        "inspectd.yaml:19: models.defects.retry_primary_s: has no effect with one device (CPU); add another"
    )
    assert len(line3.warnings(fitted((changed[0], f"{changed[1]}\n    devices: [GPU, CPU]")))) == 1


def test_a_class_that_no_rule_names_is_a_warning(line3: Case) -> None:
    (warning,) = line3.warnings(BASE)
    assert warning == (
        "inspectd.yaml:17: models.defects: no rule names mouse_bite: when found, the verdict is notOk "
        "(code 101, `decision.unlisted`)"
    )


@pytest.mark.parametrize("rule", ["class: [open, short, mouse bite]", "min_count: 0"])
def test_a_class_is_named_with_a_blank_or_by_a_rule_for_all(line3: Case, rule: str) -> None:
    """Class names compare with space = _; a rule without class names all."""
    assert line3.warnings(fitted(("class: [open, short]", rule))) == []


def test_without_rules_there_is_no_warning_of_unnamed_classes(line3: Case) -> None:
    assert line3.warnings(BASE[: BASE.index("decision:")]) == []


def test_too_few_slots_are_a_warning(line3: Case) -> None:
    """min(8 waiting, 9 within the deadline) + 2 requests + 2."""
    warnings = line3.warnings(fitted(("    fps: 30", "    fps: 30\n    slots: 4")))
    assert warnings[0].startswith("inspectd.yaml:14: cameras.top.slots: 4 is below the 12 that queue, requests and")


def test_a_label_for_no_class_is_a_warning(line3: Case) -> None:
    warnings = line3.warnings(fitted(("    task: detect", "    task: detect\n    labels: {opne: {de: Bruch}}")))
    assert warnings[1].startswith(
        "inspectd.yaml:19: models.defects.labels.opne: model defects has no class `opne`, did you mean `open`?"
    )


def test_a_fault_that_follows_from_another_is_not_told(line3: Case) -> None:
    """The model's time limit is unreadable: whether the deadline is shorter cannot be said."""
    assert "models.defects.timeout_ms" in line3.fault(fitted(("timeout_ms: 150", "timeout_ms: 1s"), ("300", "100")))


def test_cross_checks_are_told_beside_faults_of_the_schema(line3: Case) -> None:
    faults = line3.faults(fitted(("site: suzhou", "site: su zhou"), ("[open, short]", "[opne]")))
    assert [fault.split(":")[1] for fault in faults] == ["4", "24"]


def test_relative_paths_are_relative_to_the_file(line3: Case) -> None:
    loaded = line3.load(BASE)
    assert loaded.base == line3.folder
    assert loaded.configuration.models["defects"].path == line3.folder / "models" / "pcb.xml"


def test_a_copy_is_judged_as_if_it_lay_at_the_given_path(line3: Case, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Ansible validates a temporary copy; messages name the copy, paths are those of the place it is meant for."""
    copy = tmp_path_factory.mktemp("ansible") / "source"
    copy.write_text(BASE)
    assert load(copy, as_path=line3.file, env=ENV).base == line3.folder
    copy.write_text(fitted(("models/pcb.xml", "models/pbc.xml")))
    with pytest.raises(ConfigurationError) as caught:
        load(copy, as_path=line3.file, env=ENV)
    assert caught.value.faults == [
        f"{copy}:19: models.defects.path: {line3.folder}/models/pbc.xml does not exist, did you mean `pcb.xml`?"
    ]


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ({"STATE_DIRECTORY": "/var/lib/inspectd:/var/lib/b", "HOME": "/root"}, "/var/lib/inspectd"),
        ({"XDG_STATE_HOME": "/state", "HOME": "/home/line"}, "/state/inspectd"),
        ({"HOME": "/home/line"}, "/home/line/.local/state/inspectd"),
    ],
)
def test_state_is_kept_where_systemd_says_else_the_user(line3: Case, env: dict[str, str], path: str) -> None:
    loaded = line3.load(BASE, env)
    assert loaded.storage_path == loaded.configuration.storage.path == Path(path)


def test_a_place_for_state_is_needed(line3: Case) -> None:
    fault = line3.fault(BASE, {})
    assert fault.startswith("inspectd.yaml:1: storage.path: is missing, and neither STATE_DIRECTORY")


def test_a_given_place_for_state_is_taken(line3: Case) -> None:
    assert line3.load(BASE + "storage: {path: state}\n", {}).storage_path == line3.folder / "state"


def test_the_hash_is_that_of_the_meaning(line3: Case) -> None:
    """Comments, order and written-out defaults do not change it; another value does."""
    plain = line3.load(BASE).sha256
    assert line3.load("# a comment\n" + changed("fps: 30", "fps: 30.0\n    priority: 1")).sha256 == plain
    assert line3.load(changed("fps: 30", "fps: 31")).sha256 != plain


def test_classes_come_from_metadata_before_rt_info(tmp_path: Path) -> None:
    (tmp_path / "m.xml").write_text(ir("a b"))
    (tmp_path / "metadata.yaml").write_text("task: detect\nnames:\n  0: open\n  1: mouse bite\n")
    assert classes_of(tmp_path / "m.xml") == ("open", "mouse bite")


def test_classes_come_from_rt_info(tmp_path: Path) -> None:
    (tmp_path / "m.xml").write_text(ir("open mouse_bite"))
    assert classes_of(tmp_path / "m.xml") == ("open", "mouse_bite")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no xml",
        "<net>",
        '<!DOCTYPE net [<!ENTITY a "x">]>' + ir("&a;").partition("?>")[2],
        '<net><layers><labels value="x"/></layers></net>',
    ],
)
def test_a_model_file_that_tells_nothing_gives_no_classes(tmp_path: Path, text: str) -> None:
    """Entities are not expanded: a document type is refused as a whole."""
    (tmp_path / "m.xml").write_text(text)
    assert classes_of(tmp_path / "m.xml") is None


def test_a_broken_metadata_file_gives_way_to_rt_info(tmp_path: Path) -> None:
    (tmp_path / "m.xml").write_text(ir("a b"))
    (tmp_path / "metadata.yaml").write_text("names: [")
    assert classes_of(tmp_path / "m.xml") == ("a", "b")


def test_check_and_the_source_agree_on_what_a_picture_is() -> None:
    """`config` may not import OpenCV into main, so it has the list once more."""
    assert PICTURE_ENDINGS == ENDINGS


def test_a_folder_with_a_picture_is_no_fault(line3: Case) -> None:
    (line3.folder / "pictures").mkdir()
    cv2.imwrite(str(line3.folder / "pictures" / "a.PNG"), np.zeros((4, 6, 3), np.uint8))
    assert line3.faults(fitted(("{kind: simulator}", "{kind: files, path: pictures}"))) == []
