"""The demo from start to summary, with a stand-in for the daemon that speaks the contract and does as it is told.

The stand-in is a package of the same name that comes first on the child's path, so that the demo starts it as a user
would start the daemon.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

DAEMON = Path(__file__).resolve().parents[2] / "daemon"
STAND_IN = """
import json, os, signal, sys, threading, time
import paho.mqtt.client as mqtt, yaml
from paho.mqtt.enums import CallbackAPIVersion

manner, path = os.environ["MANNER"], sys.argv[3]
if manner == "refuses":
    print("top: no such thing", flush=True)
    sys.exit(69)
document = yaml.safe_load(open(path))
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: None if manner == "hangs" else stop.set())
station, broker = document["station"], document["mqtt"]
base = "/".join(station[level] for level in ("enterprise", "site", "area", "line", "cell", "id") if station.get(level))
client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv311)
client.connect(broker["host"], broker["port"])
client.loop_start()


def say(leaf, **fields):
    client.publish(f"{base}/{leaf}", json.dumps(fields), qos=1).wait_for_publish(5)


say("state", vision="Operational", ready=True, degraded=False, reasons=[])
count = 0
while not stop.wait(0.01) and not (manner == "dies" and count > 20):
    count += 1
    if manner == "mute":
        continue
    say("result", acquisition={"cameraId": "top", "frameId": count}, resultState=1, resultEvaluation=1 + count % 2,
        latencyMs=20.0, resultContent={"detections": []})
if manner == "dies":
    print("segmentation fault of some kind", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
say("counters", captured=count + (manner == "miscounts"), ok=count // 2, notOk=count - count // 2, notDecidable=0,
    undefined=0, inFlight=0)
say("status", status="offline", reason="stop")
client.disconnect()
client.loop_stop()
"""
DRIVER = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from pathlib import Path
from inspectd.demo import configuration, run
from inspectd.errors import ConfigurationError, OutsideError
configuration.model_path = lambda name: Path("/models") / name
run._END_LIMIT_S = 3.0
seconds, form, config = float(sys.argv[1]), sys.argv[2], sys.argv[3]
try:
    sys.exit(run.run_demo(config=Path(config) if config else None, seconds=seconds, json_output=form == "json",
                          broker=None, out=sys.stdout))
except (ConfigurationError, OutsideError) as error:
    sys.stderr.write(f"{error}\\n")
    sys.exit(78 if isinstance(error, ConfigurationError) else 69)
"""


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts demos, and ends what a failed test leaves of them."""
    demos: list[subprocess.Popen[str]] = []

    def begin(manner: str, seconds: float, form: str = "json", config: str = "", **more: Any) -> subprocess.Popen[str]:
        package = tmp_path / "path" / "inspectd"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(STAND_IN)
        temporary = tmp_path / "tmp"
        temporary.mkdir()
        environment = {**os.environ, "PYTHONPATH": str(package.parent), "MANNER": manner, "TMPDIR": str(temporary)}
        arguments = [sys.executable, "-W", "error", "-c", DRIVER, str(DAEMON), str(seconds), form, config]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
        demos.append(subprocess.Popen(arguments, env=environment, **pipes))
        return demos[-1]

    yield begin
    for demo in demos:
        if demo.poll() is None:
            demo.terminate()
            demo.communicate(timeout=40)


def finish(folder: Path, demo: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end, and look that neither process nor file is left."""
    out, errors = demo.communicate(timeout=40)
    assert "Traceback" not in errors
    assert not list((folder / "tmp").iterdir())
    assert not [process for process in psutil.process_iter(["environ"]) if belongs(process, folder)]
    return demo.returncode, out, errors


def belongs(process: psutil.Process, folder: Path) -> bool:
    environment = process.info["environ"] or {}
    return environment.get("TMPDIR") == str(folder / "tmp")


def test_json_is_one_document_with_the_accounting(start: Start, tmp_path: Path) -> None:
    """No model finds anything here, so every true defect is missed, and the score says so."""
    code, out, errors = finish(tmp_path, start("works", 1.0))
    document = json.loads(out)
    assert (code, errors) == (0, "")
    assert document["results"] > 20
    assert document["accounting"]["exact"] is True
    assert document["accounting"]["captured"] == document["results"] == sum(document["verdicts"].values())
    assert document["truth"]["defects"]["recall"] == 0.0


def test_without_a_terminal_plain_lines_come_and_then_the_summary(start: Start, tmp_path: Path) -> None:
    code, out, _ = finish(tmp_path, start("works", 2.5, "text"))
    assert code == 0
    assert "\x1b" not in out
    assert len([line for line in out.splitlines() if " inspected  OK " in line]) >= 2
    assert ": exact" in out


def test_on_a_terminal_the_table_is_drawn_and_the_cursor_given_back(start: Start, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    demo = start("works", 1.0, "text", stdout=theirs)
    os.close(theirs)
    seen: list[bytes] = []
    reader = threading.Thread(target=lambda: seen.extend(iter(lambda: read(ours), b"")))
    reader.start()
    code, _, _ = finish(tmp_path, demo)
    reader.join(10)
    os.close(ours)
    text = b"".join(seen).decode()
    assert code == 0
    assert "Operational, ready" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def wait_for_line(demo: subprocess.Popen[str], *, with_results: bool) -> None:
    assert demo.stdout is not None
    for line in iter(demo.stdout.readline, ""):
        if " inspected  OK " in line and not (with_results and line.startswith("0 ")):
            return
    pytest.fail("the demo ended without such a line")


def read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux says EIO when the other end is closed
        return b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_it_shows_ends_in_order(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    demo = start("works", 60, "text")
    wait_for_line(demo, with_results=True)
    demo.send_signal(number)
    code, out, _ = finish(tmp_path, demo)
    assert code == 0
    assert ": exact" in out


def test_ctrl_c_while_the_daemon_starts_ends_in_order(start: Start, tmp_path: Path) -> None:
    demo = start("works", 60, "text")
    wait_for_line(demo, with_results=False)
    demo.send_signal(signal.SIGINT)
    code, out, errors = finish(tmp_path, demo)
    assert code == 0, errors
    assert "What it showed" in out


@pytest.mark.parametrize(
    ("manner", "code", "words"),
    [
        ("refuses", 69, ["did not come up", "exit code 69", "top: no such thing"]),
        ("dies", 69, ["ended too early (exit code -9)", "segmentation fault of some kind"]),
        ("mute", 69, ["gave no result in 1 s"]),
        ("miscounts", 70, ["captured is not the sum of all verdicts"]),
    ],
)
def test_what_goes_wrong_is_told_with_reason_and_log(
    start: Start, tmp_path: Path, manner: str, code: int, words: list[str]
) -> None:
    found, _, errors = finish(tmp_path, start(manner, 1.0))
    assert found == code
    for word in words:
        assert word in errors


def test_a_daemon_that_does_not_end_is_killed_and_told(start: Start, tmp_path: Path) -> None:
    code, out, errors = finish(tmp_path, start("hangs", 0.5))
    assert code == 70
    assert json.loads(out)["accounting"] is None
    assert "did not end within 3 s and was killed" in errors


def test_a_faulty_configuration_is_refused_with_its_own_lines(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("version: 1\nstation: {}\n")
    code, out, errors = finish(tmp_path, start("works", 1.0, "text", str(config)))
    assert (code, out) == (78, "")
    assert f"{config}:2: station" in errors


def test_a_configuration_of_ones_own_keeps_all_but_broker_and_storage(start: Start, tmp_path: Path) -> None:
    """Results are heard on its own topics; files have no known truth."""
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "1.png").write_bytes(b"")
    (tmp_path / "pcb.xml").write_text("<net/>")
    (tmp_path / "pcb.bin").touch()
    config = tmp_path / "mine.yaml"
    config.write_text(
        textwrap.dedent(
            """
            version: 1
            station: {enterprise: acme, site: suzhou, area: smt, line: line3, id: aoi-01}
            mqtt: {host: mes-broker, version: 5, insecure: true}
            cameras: {top: {source: {kind: files, path: pictures}, fps: 5, models: [defects]}}
            models: {defects: {task: detect, path: pcb.xml, classes: [open, short]}}
            """
        )
    )
    code, out, errors = finish(tmp_path, start("works", 0.5, "json", str(config)))
    assert code == 0, errors
    assert json.loads(out)["truth"] is None
    assert json.loads(out)["results"] > 5
