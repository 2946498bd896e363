"""Composition root: the only file that names every concrete class. Builds the daemon from its configuration."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from inspectd import __version__, slices
from inspectd.accounts import Accounts
from inspectd.backoff import Backoff
from inspectd.book import Bookkeeper
from inspectd.config.load import Loaded
from inspectd.config.plan import threads_per_model
from inspectd.config.schema import Configuration
from inspectd.health.clock import read_clock
from inspectd.lane.driver import LaneDriver
from inspectd.lane.lane import Lane
from inspectd.line import Line
from inspectd.publish import messages, reports
from inspectd.publish.announcer import Announcer, Wording
from inspectd.publish.commands import Answer
from inspectd.publish.journal import Encode
from inspectd.publish.journal_door import Journal as JournalPort
from inspectd.publish.publisher import Publisher
from inspectd.publish.reporter import Parts, Reporter
from inspectd.publish.writer import Writer
from inspectd.records import Inspection
from inspectd.storage import Storage, open_storage
from inspectd.worker.host import Host, Limits
from inspectd.worker.ports import Handler

CAMERA_BACKOFF = Backoff(first_s=0.2, limit_s=10.0)
CAMERA_LIMITS = Limits(ready_s=60.0, stall_s=5.0)
"""A source answers every 0.1 s; one that does not for 5 s hangs in native code."""
MODEL_FIRST_BACKOFF_S = 0.2
StatusReason = Literal["start", "stop", "connectionLost", "failure"]


@dataclass(slots=True)
class Daemon:
    """Everything that lives."""

    loaded: Loaded
    storage: Storage
    writer: Writer
    announcer: Announcer
    book: Bookkeeper
    lanes: dict[str, LaneDriver]
    """Of the models that a camera uses."""
    lines: dict[str, Line]
    reporter: Reporter
    context: Context
    publisher: Publisher
    make_publisher: Callable[[], Publisher]
    boot_id: str
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time

    def status_message(self, reason: StatusReason) -> bytes:
        """Word the status topic's message."""
        return reports.status(reason, self.boot_id, self.wall())

    def required_lanes(self, camera: str) -> list[LaneDriver]:
        """Lanes without which the camera's frames cannot be OK."""
        configuration = self.loaded.configuration
        return [self.lanes[name] for name, model in configuration.models_of(camera).items() if model.required]


class Context:
    """What every result says of the station; the clock's state is refreshed once a second."""

    def __init__(self, configuration: Configuration, boot_id: str, started_s: float) -> None:
        self._configuration, self._boot_id, self._started_s = configuration, boot_id, started_s
        self.refresh_clock()

    def refresh_clock(self) -> None:
        """Ask the kernel whether the wall clock is right."""
        source, state = self._configuration.station.clock, read_clock()
        self._clock = messages.Clock(source, state.synced, state.max_error_s)
        self.is_clock_right = state.synced or source == "none"

    def encoder(self, stream_id: str) -> Encode:
        """How results of a stream are worded; called in the writer's thread."""

        def encode(inspection: Inspection, seq: int) -> bytes:
            return messages.result(inspection, self._station(stream_id), seq, self._uptime_ms(inspection))

        return encode

    def last_result(self, stream_id: str, inspection: Inspection, seq: int) -> bytes:
        """Word the last result."""
        return messages.last_result(inspection, self._station(stream_id), seq, self._uptime_ms(inspection))

    def verdict_wording(self) -> Callable[[Inspection, int], bytes] | None:
        """How verdicts are worded, or None where none are sent: those of continuous cameras go out by option only."""
        verdict = self._configuration.mqtt.verdict
        if verdict.enabled != "always":
            return None
        return lambda inspection, seq: messages.verdict(inspection, seq, form=verdict.format)

    def _uptime_ms(self, inspection: Inspection) -> int:
        return max(0, round((inspection.closed_s - self._started_s) * 1000))

    def _station(self, stream_id: str) -> messages.Station:
        station_id = self._configuration.station.id
        return messages.Station(station_id, stream_id, self._boot_id, __version__, self._clock)


def build(loaded: Loaded, cache_dir: Path | None) -> Daemon:
    """Open the storage and put every part together; nothing runs yet. Raises OutsideError and StorageError."""
    configuration, boot_id = loaded.configuration, str(uuid.uuid4())
    context = Context(configuration, boot_id, time.monotonic())
    hashes = slices.model_hashes(configuration)
    recipe, identity = slices.identity(configuration, hashes)

    def note_file(name: str, sha256: str) -> None:
        """A model that was mended since the start is another recipe."""
        nonlocal recipe
        hashes[name] = sha256
        recipe, book.identity = slices.identity(configuration, hashes)

    storage = open_storage(slices.storage_settings(loaded), slices.camera_numbers(configuration), context.encoder)

    used = {name: configuration.models[name] for camera in configuration.cameras.values() for name in camera.models}
    lanes = {name: _lane(name, configuration, cache_dir) for name in used}
    for name, lane in lanes.items():
        lane.on_first_file = partial(note_file, name)
    accounts: dict[str, Accounts] = {}
    announcer = Announcer(
        lambda: daemon.publisher,
        accounts,
        storage.journal.state.counters,
        Wording(context.verdict_wording(), lambda *record: context.last_result(writer.stream_id, *record)),
        time.monotonic,
    )
    writer = Writer(storage.journal, context.encoder, announcer, asyncio.get_running_loop())
    skipped_as_results = configuration.mqtt.skipped_results == "all"
    book = Bookkeeper(writer, identity, time.time, skipped_as_results=skipped_as_results)
    lines = {name: _line(name, configuration, storage, lanes, book) for name in configuration.cameras}
    retired = {
        name: (ledger, Accounts(ledger.last, storage.excluded[name]))
        for name, ledger in storage.ledgers.items()
        if name not in lines
    }
    accounts |= {name: line.accounts for name, line in lines.items()}
    accounts |= {name: account for name, (_, account) in retired.items()}
    for name, line in lines.items():
        book.expect(name, line.ledger.last, slices.camera_rate(configuration, name))

    def answer(given: Answer) -> bytes:
        return reports.response(given, reporter.vision, time.time())

    def make_publisher() -> Publisher:
        settings = slices.broker_settings(configuration, boot_id)
        return Publisher(settings, _journal_port(writer, storage), answer, on_change=reporter.publish_changes)

    reporter = Reporter(
        Parts(
            lines=lines,
            lanes=lanes,
            required=frozenset(name for name, model in used.items() if model.required),
            labels={name: model.labels for name, model in used.items()},
            retired=retired,
            announcer=announcer,
            writer=writer,
            publisher=lambda: daemon.publisher,
            recipe=lambda: recipe,
            configuration_hash=loaded.sha256,
            boot_id=boot_id,
        ),
        time.monotonic,
        time.time,
    )
    daemon = Daemon(
        loaded,
        storage,
        writer,
        announcer,
        book,
        lanes,
        lines,
        reporter,
        context,
        make_publisher(),
        make_publisher,
        boot_id,
    )
    return daemon


def _lane(name: str, configuration: Configuration, cache_dir: Path | None) -> LaneDriver:
    spec = slices.model_spec(
        name,
        configuration,
        threads=threads_per_model(configuration, len(os.sched_getaffinity(0)))[name],
        fps_total=slices.fps_total(configuration, name),
        cache_dir=cache_dir,
    )
    model = configuration.models[name]
    backoff = Backoff(MODEL_FIRST_BACKOFF_S, max(model.retry_s, MODEL_FIRST_BACKOFF_S))

    def make_host(handler: Handler) -> Host:
        return Host("model", name, handler, Limits(), backoff)

    later = asyncio.get_running_loop().call_later
    return LaneDriver(
        Lane(slices.lane_policy(configuration, name)), model.task, spec.to_json(), make_host, later, time.monotonic
    )


def _line(
    name: str, configuration: Configuration, storage: Storage, lanes: Mapping[str, LaneDriver], book: Bookkeeper
) -> Line:
    own_lanes = {model: lanes[model] for model in configuration.cameras[name].models}

    def make_host(handler: Handler) -> Host:
        return Host("camera", name, handler, CAMERA_LIMITS, CAMERA_BACKOFF)

    def slots() -> int:
        return slices.camera_slots(configuration, name, {model: lane.facts for model, lane in own_lanes.items()})

    return Line(
        slices.line_spec(configuration, name),
        storage.ledgers[name],
        storage.excluded[name],
        own_lanes,
        book,
        slots,
        make_host,
        asyncio.get_running_loop().call_later,
        time.monotonic,
    )


def _journal_port(writer: Writer, storage: Storage) -> JournalPort:
    """The journal as one publisher sees it: it acknowledges the stream that it began with, and no other."""
    state, stream_id = storage.journal.state, writer.stream_id

    async def put_aside(seq: int, reason: str) -> bytes | None:
        """What goes out instead says what happened to it."""
        rows = await writer.read(seq, seq, 1)
        substitute = messages.substitute(rows[0].payload) if rows else None
        await writer.dead_letter(seq, reason, substitute)
        return substitute

    def acknowledge(seq: int) -> None:
        writer.ack(stream_id, seq)

    return JournalPort(stream_id, state.acked_seq, state.next_seq - 1, writer.read, acknowledge, put_aside)
