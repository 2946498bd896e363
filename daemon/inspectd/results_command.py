"""Composition root of `inspectd results`: lists and counts what the journal has, also while the daemon writes it."""

from __future__ import annotations

import grp
import os
import pwd
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from inspectd.config.load import load
from inspectd.config.partial import validated
from inspectd.config.paths import storage_path
from inspectd.config.readfile import read_text
from inspectd.config.schema import Configuration
from inspectd.config.suggest import or_choice
from inspectd.config.yamltree import parse
from inspectd.errors import OutsideError, UsageError
from inspectd.publish.journalaccess import Unreadable
from inspectd.publish.journalquery import (
    SLOT_S,
    Filter,
    JournalPart,
    all_rows,
    counts,
    last_rows,
    parts_of,
)
from inspectd.records import Evaluation
from inspectd.results_report import Bucket, Form, write_buckets, write_rows
from inspectd.results_times import By, begins, moment, zone_of

LAST = 20
SERVICE_STATE = Path("/var/lib/inspectd")
"""The systemd unit's StateDirectory. A person's shell has no STATE_DIRECTORY that would tell it."""
EXIT_DONE = 0


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, as it was typed; None: any."""

    camera: str | None = None
    evaluation: str | None = None
    code: int | None = None
    begin: str | None = None
    end: str | None = None
    last: int = LAST
    """So many rows, or hours, shifts, days. 0: all."""
    by: By | None = None


@dataclass(frozen=True, slots=True)
class _Plant:
    """What is needed of a configuration."""

    journal: Path
    time_zone: str
    shifts: tuple[str, ...]


def list_results(
    question: Question,
    config: Path,
    environment: Mapping[str, str],
    *,
    journal: Path | None = None,
    form: Form = "table",
    output: Path | None = None,
    out: TextIO,
    err: TextIO,
    wall: Callable[[], float] = time.time,
) -> int:
    """List or count results; give the exit code.

    `journal`: this folder instead of the configuration's; without a configuration times are UTC. Raises UsageError,
    ConfigurationError, and OutsideError where there is no journal, or none that this user may read.
    """
    plant = _plant(config, environment, journal)
    zone = zone_of(plant.time_zone)
    asked = _filter(question, plant, wall())
    if question.by == "shift" and not plant.shifts:
        raise UsageError(
            f"--by shift: {config} names no shifts; add station.shifts, such as ['06:00', '14:00', '22:00']"
        )
    if output is not None and output.resolve().parent == plant.journal.resolve():
        raise UsageError(f"--output {output}: that is in the journal itself; give another folder")

    def warn(text: str) -> None:
        err.write(f"{text}\n")

    with _access(plant.journal):
        parts = parts_of(plant.journal, warn)
        if not parts:
            raise OutsideError(f"{plant.journal}: there is no result in it yet; inspectd has not run with this folder")
        with _opened(output, out) as file:
            if question.by is not None:
                buckets = _buckets(parts, asked, question.by, question.last, plant, warn)
                write_buckets(buckets, form, zone, file)
                is_empty = not buckets
            elif question.last:
                rows = last_rows(parts, asked, question.last, warn)
                write_rows(rows, form, zone, file)
                is_empty = not rows
            else:
                write_rows(all_rows(parts, asked, warn), form, zone, file)
                is_empty = False
    if is_empty:
        warn("nothing in the journal fits")
    return EXIT_DONE


def _plant(config: Path, environment: Mapping[str, str], journal: Path | None) -> _Plant:
    if journal is not None and not config.exists():
        return _Plant(journal, "UTC", ())
    configuration = _configuration(config, environment)
    base = Path(os.path.abspath(config)).parent  # noqa: PTH100  as `load`: a link to the file is meant where it lies
    if journal is None:
        storage = storage_path(configuration, base, environment)
        is_told = configuration.storage.path is not None or "STATE_DIRECTORY" in environment
        if storage is None or (not is_told and not storage.exists() and SERVICE_STATE.exists()):
            storage = SERVICE_STATE
        journal = storage / "journal"
    return _Plant(journal, configuration.station.time_zone, configuration.station.shifts)


def _configuration(path: Path, environment: Mapping[str, str]) -> Configuration:
    """Read a configuration whose station and storage are right: models and cameras do not matter here.

    Raises ConfigurationError, with every fault of the file, where they are not.
    """
    text = read_text(path)
    if isinstance(text, str):
        tree = parse(text)
        if isinstance(tree.value, dict) and not tree.faults:
            outcome = validated(tree)
            matters = {(), ("station",), ("storage",)}
            if outcome.configuration is not None and not any(fault.key[:1] in matters for fault in outcome.faults):
                return outcome.configuration
    return load(path, env=environment).configuration


def _filter(question: Question, plant: _Plant, now_s: float) -> Filter:
    zone = zone_of(plant.time_zone)
    from_s = None if question.begin is None else moment("--from", question.begin, now_s, zone)
    to_s = None if question.end is None else moment("--to", question.end, now_s, zone)
    if from_s is not None and to_s is not None and from_s >= to_s:
        raise UsageError(f"--from {question.begin} is not before --to {question.end}")
    evaluation = None
    if question.evaluation is not None:
        words = [evaluation.word for evaluation in Evaluation]
        if question.evaluation not in words:
            raise UsageError(f"--evaluation {question.evaluation}: is none{or_choice(question.evaluation, words)}")
        evaluation = Evaluation.of_word(question.evaluation)
    if question.last < 0:
        raise UsageError(f"--last {question.last}: give a number of rows, or 0 for all")
    return Filter(question.camera, evaluation, question.code, from_s, to_s)


def _buckets(
    parts: list[JournalPart], asked: Filter, by: By, last: int, plant: _Plant, warn: Callable[[str], None]
) -> list[Bucket]:
    """Count by hour, shift or day, from the newest file backwards: no further than the last ones need."""
    zone = zone_of(plant.time_zone)
    minutes: Counter[tuple[int, Evaluation]] = Counter()
    buckets: list[Bucket] = []
    for part in reversed(parts):
        if not part.may_have(asked):
            continue
        try:
            minutes += counts(part, asked)
        except Unreadable as error:
            warn(f"{error}; it is left out")
            continue
        if not minutes:
            continue
        first_minute, last_minute = min(minutes)[0], max(minutes)[0]
        edges = begins(by, first_minute * SLOT_S, last_minute * SLOT_S, zone, plant.shifts)
        buckets = _gathered(minutes, edges)
        if last and len(buckets) >= last:
            asked = replace(asked, from_s=max(asked.from_s or float("-inf"), buckets[-last].begin_s))
    return buckets[-last:]


def _gathered(minutes: Counter[tuple[int, Evaluation]], edges: list[float]) -> list[Bucket]:
    gathered: dict[int, Counter[Evaluation]] = {}
    for (minute, evaluation), count in minutes.items():
        place = bisect_right(edges, minute * SLOT_S) - 1
        gathered.setdefault(place, Counter())[evaluation] += count
    return [Bucket(edges[place], edges[place + 1], gathered[place]) for place in sorted(gathered)]


@contextmanager
def _access(folder: Path) -> Iterator[None]:
    """Say what is missing where the journal is not there, or not for this user."""
    try:
        yield
    except FileNotFoundError as error:
        raise OutsideError(
            f"{folder}: there is no journal; give the configuration that inspectd runs with (-c), or its folder"
            " (--journal)"
        ) from error
    except NotADirectoryError as error:
        raise OutsideError(f"{folder}: is no folder; give the folder of the journal's files") from error
    except PermissionError as error:
        raise OutsideError(_who_may(Path(error.filename or folder))) from error


def _who_may(path: Path) -> str:
    """Name the group that may read a path, as far as this user can see."""
    for folder in (path, *path.parents):
        try:
            status = folder.stat()
        except PermissionError:
            continue
        group, user = _name_of_group(status.st_gid), _name_of_user(os.getuid())
        cure = f"`sudo usermod -aG {group} {user}`, then log in again" if status.st_gid else "ask as root"
        return f"{path}: {user} may not read it, {folder} belongs to the group {group}: {cure}"
    raise AssertionError("everybody sees /")


def _name_of_group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _name_of_user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


@contextmanager
def _opened(output: Path | None, out: TextIO) -> Iterator[TextIO]:
    """Give the file to write to. A reader that has seen enough (`| head`) is no error."""
    if output is None:
        try:
            yield out
            out.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        return
    try:
        file = output.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise OutsideError(f"--output {output}: {error.strerror}; name a file that can be written") from error
    with file:
        yield file
