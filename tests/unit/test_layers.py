"""Who may know whom: read from the sources, and for whole processes from what they really load."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "daemon"
VALUES = {"records", "errors", "publish.broker"}
"""Names for what crosses a stage. `publish.broker` reads a password file when asked; nobody pure asks."""
PURE = (
    "accounts",
    "backoff",
    "camera.boards.anchors",
    "camera.boards.artwork",
    "camera.boards.defects",
    "camera.boards.layout",
    "camera.boards.routing",
    "camera.boards.scene",
    "camera.boards.size",
    "classnames",
    "decide",
    "decode",
    "decode.*",
    "demo.score",
    "engine.admission",
    "engine.sourced",
    "health.alarmkinds",
    "health.alarms",
    "health.assess",
    "health.budget",
    "health.outage",
    "join",
    "lane.actions",
    "lane.breaker",
    "lane.demotion",
    "lane.everynth",
    "lane.guard",
    "lane.inbox",
    "lane.lane",
    "lane.policy",
    "lane.skip",
    "lane.stats",
    "lane.turns",
    "lane.words",
    "model_trial",
    "publish.audit",
    "publish.commands",
    "publish.counters",
    "publish.denials",
    "publish.effects",
    "publish.events",
    "publish.flight",
    "publish.healthreport",
    "publish.hold",
    "publish.intervals",
    "publish.journalstate",
    "publish.memory",
    "publish.messages",
    "publish.outbox",
    "publish.properties",
    "publish.queues",
    "publish.reasons",
    "publish.receipts",
    "publish.reports",
    "publish.requests",
    "publish.results",
    "publish.retained",
    "publish.retention",
    "publish.ring",
    "publish.silence",
    "publish.skips",
    "publish.stream",
    "publish.subscriptions",
    "publish.suspects",
    "publish.uuid7",
    "publish.wire",
    "statemachine",
    "worker.ladder",
    "worker.slots",
    "worker.spare",
)
OUTSIDE = {"asyncio", "logging", "os", "pathlib", "socket", "sqlite3", "subprocess", "threading", "time"}
"""What is left to the modules that carry out: the loop, the log, the clock, the disk, the net."""
LIBRARIES = {
    "aiohttp": ("door.server",),
    "amqtt": ("demo.broker",),
    "click": ("cli",),
    "cryptography": ("publish.tls", "publish.validity"),
    "cv2": (
        "annotate",
        "camera.files",
        "camera.videofile",
        "camera.boards.drawing",
        "camera.boards.paint",
        "decode.geometry",
        "engine.openvino",
        "picturefolder",
    ),
    "numpy": ("annotate", "camera", "camera.*", "decode", "decode.*", "engine", "engine.*", "worker.pool"),
    "openvino": ("engine.openvino",),
    "paho": ("publish.mqtt", "publish.mqttdial", "demo.subscriber"),
    "pydantic": ("config.*",),
    "pydantic_core": ("config.*",),
    "psutil": ("health.host",),
    "rich": ("demo.*", "model_command", "model_report", "results_*", "status_command", "status_table"),
    "sdnotify": ("health.notify",),
    "setproctitle": ("worker.child",),
    "yaml": ("config.*", "demo.configuration", "engine.modelfile"),
}
PARTS = {"Announcer", "Bookkeeper", "Host", "LaneDriver", "Line", "Publisher", "Reporter", "Writer"}


@cache
def trees() -> dict[str, ast.Module]:
    """Each module of ours by its name without `inspectd.`."""
    package = SOURCES / "inspectd"
    parts = {path: path.relative_to(package).with_suffix("").parts for path in package.rglob("*.py")}
    return {
        ".".join(names).removesuffix("__init__").rstrip("."): ast.parse(path.read_text("utf-8"))
        for path, names in parts.items()
    }


def imported(module: str) -> Iterator[str]:
    """Give all that a module imports, inside functions too; `from a import b` gives a and a.b."""
    for node in ast.walk(trees()[module]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert node.level == 0, f"{module}: imports are absolute"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(module: str) -> set[str]:
    """Give the modules of ours that a module imports."""
    names = {name.removeprefix("inspectd.") for name in imported(module) if name.startswith("inspectd.")}
    return names & trees().keys()


def foreign(module: str) -> set[str]:
    """Give the libraries that a module imports, the standard one's too."""
    return {name.split(".")[0] for name in imported(module)} - {"inspectd"}


def is_one_of(module: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(module, pattern) for pattern in patterns)


def modules(*patterns: str) -> list[str]:
    return sorted(module for module in trees() if is_one_of(module, patterns))


def test_every_pattern_names_a_module() -> None:
    """A module that was renamed must not slip out of its rule."""
    patterns = {*PURE, *VALUES, *(pattern for allowed in LIBRARIES.values() for pattern in allowed)}
    assert not [pattern for pattern in patterns if not modules(pattern)]


@pytest.mark.parametrize("module", ["records", "errors"])
def test_records_and_errors_import_nothing_of_ours(module: str) -> None:
    assert not ours(module)


@pytest.mark.parametrize("module", modules(*PURE))
def test_a_pure_module_imports_only_values_and_pure_modules(module: str) -> None:
    strange = {name for name in ours(module) if name not in VALUES and not is_one_of(name, (*PURE, "publish"))}
    assert not strange


@pytest.mark.parametrize("module", modules(*PURE))
def test_a_pure_module_has_no_clock_no_log_and_no_input_or_output(module: str) -> None:
    assert not foreign(module) & OUTSIDE
    assert not [
        node for node in ast.walk(trees()[module]) if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith)
    ]


@pytest.mark.parametrize("module", sorted(trees()))
def test_a_library_is_known_only_where_it_is_wrapped(module: str) -> None:
    libraries = foreign(module) - sys.stdlib_module_names
    assert libraries <= LIBRARIES.keys(), "a new library: who may know it?"
    assert not [name for name in libraries if not is_one_of(module, LIBRARIES[name])]


def test_only_the_composition_root_makes_the_parts() -> None:
    makers = {
        (module, node.func.id)
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PARTS
    }
    assert makers == {("app", part) for part in PARTS}


@pytest.mark.parametrize(
    ("process", "unwanted"),
    [
        (("cli",), {"numpy", "cv2", "openvino", "paho", "pydantic", "yaml", "rich"}),
        (("run",), {"numpy", "cv2", "openvino", "amqtt", "rich"}),
        (("worker.child", "camera.child"), {"openvino", "paho", "pydantic", "yaml", "sqlite3", "click"}),
        (
            ("camera.files", "camera.simulator", "camera.video"),
            {"openvino", "paho", "pydantic", "yaml", "sqlite3", "click"},
        ),
        (("worker.child", "engine.child"), {"cv2", "paho", "pydantic", "sqlite3", "click"}),
    ],
    ids=["command line", "main", "camera child", "sources", "model child"],
)
def test_a_process_loads_only_what_its_kind_needs(process: tuple[str, ...], unwanted: set[str]) -> None:
    """Main touches no pixel; a child starts in a moment; a library that crashes takes one kind of process with it."""
    imports = ", ".join(f"inspectd.{module}" for module in process)
    code = f"import sys, {imports}; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert not unwanted & set(done.stdout.split())
