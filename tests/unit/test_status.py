from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from inspectd.call_command import call_daemon
from inspectd.cli import cli
from inspectd.door.client import Answered, NotRunning
from inspectd.door.place import NAME, find_socket, socket_path
from inspectd.errors import ConfigurationError, OutsideError, UsageError
from inspectd.status_command import Options, show_status, unmet
from inspectd.status_table import render
from inspectd.status_text import size, span

CAMERA = {"framesReceived": 300, "framesIncomplete": 0, "framesMissed": 2, "reconnects": 14, "lastFrameAgeMs": 21}
TALLY = {"ok": 1_199_500, "notOk": 29_990, "notDecidable": 4000, "undefined": 507}


def document(**state: Any) -> dict[str, Any]:
    """A station with a bit of everything."""
    return {
        "schema": "inspectd.localstatus/1.0",
        "stationId": "aoi-01",
        "base": "acme/suzhou/smt/line3/aoi/aoi-01",
        "version": "0.4.0",
        "bootId": "6f0c3d64-2f6e-4b0c-9d0a-0f3f5a1c2b7d",
        "pid": 4711,
        "uptimeS": 277_321.3,
        "time": "2026-11-30T05:00:00.000Z",
        "configuration": {"path": "/etc/inspectd/inspectd.yaml", "hash": "c0de"},
        "state": {
            "vision": "Operational",
            "automatic": "ContinuousExecution",
            "ready": True,
            "degraded": False,
            "reasons": [],
            "simulation": False,
            "recipe": {"id": "A12", "number": 12, "hash": "a12a"},
            "jobsInFlight": 0,
            "jobsMax": 14,
            "since": "2026-11-30T00:53:20.123Z",
            "cameras": {
                "top": {"mode": "continuous", "connected": True, "ready": True},
                "side": {"mode": "triggered", "connected": False, "ready": False},
            },
            **state,
        },
        "health": {
            "cameras": {
                "top": {"connected": True, "fps": 29.97, **CAMERA},
                "side": {"connected": False, "fps": 0.0, **CAMERA},
            },
            "models": {
                "defects": {
                    "state": "running",
                    "device": "GPU",
                    "requests": 4,
                    "requestsBusy": 2,
                    "done": 297,
                    "timedOut": 2,
                    "failed": 1,
                    "p50Ms": 12.3,
                    "p95Ms": 18.01,
                    "p99Ms": 31.9,
                    "queueDepth": 1,
                    "restarts": 0,
                    "rssBytes": 312_000_000,
                },
                "code_on_the_label_of_the_second_carrier": {
                    "state": "repair",
                    "requests": 2,
                    "requestsBusy": 0,
                    "done": 0,
                    "unavailable": 300,
                },
            },
            "mqtt": {"connected": True, "outageHours": 411.2, "deadLetters": 1, "certificateDaysLeft": 21},
            "storage": {"commitP95Ms": 2.1, "freeBytes": 41_234_000_000, "evidenceBytes": 0},
            "host": {"cpuPercent": 37.2, "memoryBytes": 812_000_000, "temperatureC": 61, "throttled": True},
            "clock": {"source": "ntp", "synced": True, "maxErrorMs": 12.2},
        },
        "counters": {
            "since": "2026-11-01T00:00:00.000Z",
            "captured": 1_234_000,
            "inFlight": 3,
            **TALLY,
            "perCamera": {"top": {"captured": 1_234_000, "inFlight": 3, **TALLY}, "side": {}},
        },
        "alarms": [
            {
                "code": "CameraLost",
                "source": "side",
                "severity": 800,
                "active": True,
                "acknowledged": True,
                "confirmed": False,
                "since": "2026-11-30T04:46:00.000Z",
                "count": 14,
                "text": "camera side: is not there (serial 23998877), trying again",
                "cure": "Check the camera's power, cable and network. It is opened again by itself.",
                "blocks": "ready",
            }
        ],
        "outbox": {"streamId": "s", "lastSeq": 1_234_560, "unsent": 0, "unsentEvents": 0},
        "subscribers": {"mes-1": {"upToSeq": 1_229_160, "behind": 5400}, "archive": {"upToSeq": 1, "behind": 0}},
        "children": {"camera top": 4712, "model defects": 4714},
    }


def drawn(said: dict[str, Any], width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(render(said, console.width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 109, 110, 120])
def test_the_table_shows_everything_at_every_width(width: int) -> None:
    """Nothing is cut off: neither a name nor a number."""
    text = drawn(document(), width)
    flat = " ".join(text.split())
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    for words in (
        "READY Operational / ContinuousExecution",
        "up 3 d 5 h",
        "CameraLost side",
        "trying again",
        "→ Check the camera's power, cable and network. It is opened again by itself.",
        "30.0",
        "1,199,500",
        "2/4",
        "18.0",
        "repair",
        "certificate for 21 days",
        "41.2 GB free",
        "throttled",
        "300",
        "mes-1 5,400 behind, archive has all",
        "main 4711, camera top 4712, model defects 4714",
    ):
        assert words in flat, words


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ({}, "READY"),
        ({"degraded": True, "reasons": ["broker: away"]}, "DEGRADED"),
        ({"ready": False, "reasons": ["camera top: is being opened"]}, "NOT READY"),
    ],
)
def test_the_first_line_says_in_a_word_how_it_is_and_the_next_ones_why(state: dict[str, Any], word: str) -> None:
    first, _, *others = drawn(document(**state)).splitlines()
    assert f" {word} " in first
    assert all(f"• {reason}" in "\n".join(others) for reason in state.get("reasons", ()))


def test_colour_goes_to_a_terminal_only() -> None:
    plain, coloured = io.StringIO(), io.StringIO()
    show_status(document, Options(), plain)
    Console(file=coloured, force_terminal=True, color_system="standard").print(render(document(), 80))
    assert "\x1b[" not in plain.getvalue()
    assert "\x1b[" in coloured.getvalue()


def test_what_others_wrote_is_only_shown() -> None:
    """A broker's reason or a camera's name must neither colour nor steer the terminal."""
    said = document(ready=False, reasons=["\x1b[2J[bold red]gone[/]"])
    said["alarms"][0] |= {"text": "[link=x]a[/link]\x07", "cure": "[blink]b"}
    text = drawn(said)
    assert "\x1b" not in text
    assert "[bold red]gone[/]" in text
    assert "[link=x]a[/link]" in text
    assert "[blink]b" in text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
DEPTHS = [
    ("state",),
    ("state", "cameras"),
    ("health",),
    ("health", "models"),
    ("health", "models", "defects"),
    ("outbox",),
]


@given(path=st.sampled_from(DEPTHS), data=st.data())
def test_a_daemon_of_another_release_is_shown_as_far_as_it_goes(path: tuple[str, ...], data: st.DataObject) -> None:
    """Fields may be missing, or be there that nobody knew."""
    part = said = document()
    for step in path:
        part = part[step]
    part.pop(data.draw(st.sampled_from(sorted(part))))
    part["new"] = data.draw(VALUES)
    assert "aoi-01" in drawn(said)


def test_an_empty_document_is_drawn_too() -> None:
    assert "NOT READY" in drawn({})


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0213, "21 ms"), (4.2, "4.2 s"), (60, "1 min"), (843.2, "14 min 3 s"), (277_321, "3 d 5 h"), (None, "–")],
)
def test_durations_have_the_two_units_that_matter(seconds: float | None, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(999, "999 B"), (12_000, "12 kB"), (41_234_000_000, "41.2 GB"), (812e6, "812 MB"), (2e12, "2.0 TB")],
)
def test_sizes_have_the_unit_that_fits(count: float, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("state", "outbox", "healthy", "idle"),
    [
        ({}, {}, [], []),
        ({"degraded": True, "reasons": ["broker: away"]}, {"unsent": 5}, ["broker: away"], ["5 results unsent"]),
        ({"ready": False}, {"unsentEvents": 1}, ["it is starting or stopping"], ["1 events unsent"]),
        ({"jobsInFlight": 2}, {}, [], ["2 frames in flight"]),
    ],
)
def test_what_is_waited_for(state: dict[str, Any], outbox: dict[str, int], healthy: list[str], idle: list[str]) -> None:
    said = document(**state)
    said["outbox"] |= outbox
    assert unmet(said, "healthy") == healthy
    assert unmet(said, "idle") == idle


@dataclass
class Daemon:
    """Answers in turn, the last for ever, and a clock that goes on while somebody waits."""

    answers: list[dict[str, Any] | Exception]
    now: float = 0.0
    out: io.StringIO = field(default_factory=io.StringIO)
    stop_after_s: float = 1000.0

    def ask(self) -> dict[str, Any]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pause(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.stop_after_s:
            raise KeyboardInterrupt

    def show(self, **options: Any) -> int:
        return show_status(self.ask, Options(**options), self.out, clock=lambda: self.now, pause=self.pause)


READY, NOT_READY, AWAY = document(), document(ready=False, reasons=["camera top: away"]), NotRunning("nobody answers")


@pytest.mark.parametrize(("said", "code"), [(READY, 0), (document(degraded=True), 0), (NOT_READY, 1)])
def test_the_exit_code_tells_whether_it_is_ready(said: dict[str, Any], code: int) -> None:
    assert Daemon([said]).show() == code


def test_json_is_the_whole_document() -> None:
    daemon = Daemon([READY])
    daemon.show(as_json=True)
    assert json.loads(daemon.out.getvalue()) == READY


def test_waiting_for_health_waits_for_a_daemon_that_starts_and_for_all_of_it() -> None:
    daemon = Daemon([AWAY, NOT_READY, document(degraded=True), READY])
    assert daemon.show(wait="healthy") == 0
    assert daemon.now > 0


def test_a_wait_in_vain_names_the_reasons() -> None:
    daemon = Daemon([NOT_READY])
    with pytest.raises(OutsideError, match=r"not healthy within 3 s: camera top: away"):
        daemon.show(wait="healthy", timeout_s=3.0)
    assert daemon.now == pytest.approx(3.0)


def test_waiting_without_time_looks_once() -> None:
    assert Daemon([READY]).show(wait="healthy", timeout_s=0.0) == 0
    with pytest.raises(OutsideError):
        Daemon([AWAY]).show(wait="idle", timeout_s=0.0)


def test_an_idle_station_need_not_be_ready() -> None:
    """A finite source is used up: no frame comes any more, and all is delivered."""
    assert Daemon([NOT_READY]).show(wait="idle") == 0


def test_watching_goes_on_until_it_is_stopped_also_while_nobody_answers() -> None:
    daemon = Daemon([READY, AWAY, READY], stop_after_s=3.0)
    assert daemon.show(watch=True) == 0
    assert daemon.out.getvalue().count("aoi-01") == 2
    assert "nobody answers" in daemon.out.getvalue()


def test_watching_in_json_gives_one_document_a_line() -> None:
    daemon = Daemon([READY], stop_after_s=3.0)
    daemon.show(watch=True, as_json=True)
    assert [json.loads(line) for line in daemon.out.getvalue().splitlines()] == [READY] * 3


def answering(status: str, *, is_last: bool = True) -> Callable[[str, bytes, float], Answered]:
    return lambda command, body, _: Answered({"command": command, "status": status, "body": body.decode()}, is_last)


@pytest.mark.parametrize(("status", "code"), [("completed", 0), ("accepted", 0), ("rejected", 1), ("failed", 1)])
def test_a_calls_exit_code_tells_what_became_of_it(status: str, code: int) -> None:
    out = io.StringIO()
    assert call_daemon(answering(status), "get-state", '{"a": 1}', 5.0, out) == code
    assert json.loads(out.getvalue()) == {"command": "get-state", "status": status, "body": '{"a": 1}'}


def test_a_call_that_does_not_end_in_time_shows_what_is_known() -> None:
    out = io.StringIO()
    with pytest.raises(OutsideError, match="accepted, and not at its end within 5 s"):
        call_daemon(answering("accepted", is_last=False), "replay", None, 5.0, out)
    assert json.loads(out.getvalue())["status"] == "accepted"


@pytest.mark.parametrize("arguments", ["", "{", "[]", "5", "null", "[" * 100_000])
def test_a_calls_arguments_must_be_an_object(arguments: str) -> None:
    with pytest.raises(UsageError):
        call_daemon(answering("completed"), "get-state", arguments, 5.0, io.StringIO())


def test_the_daemons_socket_is_in_systemds_folder_or_beside_its_state() -> None:
    assert socket_path(Path("/s"), {"RUNTIME_DIRECTORY": "/run/inspectd:/run/x"}) == Path("/run/inspectd") / NAME
    assert socket_path(Path("/s"), {}) == Path("/s") / NAME


def test_a_configuration_tells_where_the_socket_is_even_with_faults_in_it(tmp_path: Path) -> None:
    """Somebody may be editing it."""
    file = tmp_path / "inspectd.yaml"
    file.write_text("version: 1\nstorage: {path: state}\ncameras: {top: {sauce: 1}}\n", "utf-8")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / NAME).touch()
    assert find_socket(None, file, Path("/nowhere"), {}) == tmp_path / "state" / NAME
    assert find_socket(Path("/x"), file, Path("/nowhere"), {}) == Path("/x")
    with pytest.raises(ConfigurationError, match="no such file"):
        find_socket(None, tmp_path / "other.yaml", Path("/nowhere"), {})


def test_inside_a_unit_the_socket_is_found_by_its_runtime_folder(tmp_path: Path) -> None:
    (tmp_path / NAME).touch()
    assert find_socket(None, None, Path("/nowhere"), {"RUNTIME_DIRECTORY": str(tmp_path)}) == tmp_path / NAME


def test_where_nothing_is_found_the_usual_place_is_named(tmp_path: Path) -> None:
    assert find_socket(None, None, tmp_path / "no.yaml", {}) == Path("/run/inspectd") / NAME


@pytest.mark.parametrize("command", ["status", "call"])
def test_the_help_tells_the_exit_codes(command: str) -> None:
    assert "69" in CliRunner().invoke(cli, [command, "--help"]).output
