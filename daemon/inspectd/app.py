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

from inspectd import slices
from inspectd.accounts import Accounts
from inspectd.backoff import Backoff
from inspectd.book import Bookkeeper
from inspectd.config.load import Loaded
from inspectd.config.plan import threads_per_model
from inspectd.config.schema import Configuration
from inspectd.context import Context
from inspectd.door.place import socket_path
from inspectd.health.assess import Stage
from inspectd.health.census import Census, Sources
from inspectd.health.host import HostWatch
from inspectd.lane.driver import LaneDriver
from inspectd.lane.lane import Lane
from inspectd.line import Line
from inspectd.publish import messages, reports
from inspectd.publish.alarmdesk import AlarmDesk
from inspectd.publish.announcer import Announcer, Wording
from inspectd.publish.commands import Answer
from inspectd.publish.eventsender import EventSender
from inspectd.publish.handlers import Ports, handlers
from inspectd.publish.journal_door import Journal as JournalPort
from inspectd.publish.memo import Memo
from inspectd.publish.publisher import Publisher
from inspectd.publish.reporter import Parts, Reporter
from inspectd.publish.writer import Writer
from inspectd.stages import stages
from inspectd.station import Identity, Station
from inspectd.storage import Storage, open_storage
from inspectd.worker.crewports import Move, Place
from inspectd.worker.host import Host, Limits
from inspectd.worker.ports import Handler

CAMERA_BACKOFF = Backoff(first_s=0.2, limit_s=10.0)
CAMERA_LIMITS = Limits(ready_s=60.0, stall_s=5.0)
"""A source answers every 0.1 s; one that does not for 5 s hangs in native code."""
MODEL_FIRST_BACKOFF_S = 0.2
WARM_UP_MIN_S, WARM_UP_TIMEOUTS = 10.0, 20
"""A warm-up has so long, and at least so many times what one inference may take: on a busy host, several of them."""
LONGEST_REPLY_LEAF = f"rsp/{'x' * 64}"
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
    station: Station
    context: Context
    publisher: Publisher
    make_publisher: Callable[[], Publisher]
    stages: list[Stage]
    """What has to make progress."""
    boot_id: str
    socket_path: Path
    """Of the local door."""
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time

    def status_message(self, reason: StatusReason) -> bytes:
        """Word the status topic's message."""
        return reports.status(reason, self.boot_id, self.wall())

    def required_lanes(self, camera: str) -> list[LaneDriver]:
        """Lanes without which the camera's frames cannot be OK."""
        configuration = self.loaded.configuration
        return [self.lanes[name] for name, model in configuration.models_of(camera).items() if model.required]


class Recipe:
    """The recipe that runs: rules and model files, as results and `state` name it."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._hashes = slices.model_hashes(configuration)
        self.facts, self.identity = slices.identity(configuration, self._hashes)

    def hash_of(self, model: str) -> str:
        """Hash of a model's files."""
        return self._hashes[model]

    def note_file(self, model: str, sha256: str) -> None:
        """A model that was mended since the start is another recipe."""
        self._hashes[model] = sha256
        self.facts, self.identity = slices.identity(self._configuration, self._hashes)


def build(loaded: Loaded, environment: Mapping[str, str], cache_dir: Path | None) -> Daemon:
    """Open the storage and put every part together; nothing runs yet. Raises OutsideError and StorageError."""
    configuration, boot_id = loaded.configuration, str(uuid.uuid4())
    context = Context(configuration, boot_id, time.monotonic())
    recipe = Recipe(configuration)
    storage = open_storage(slices.storage_settings(loaded), slices.camera_numbers(configuration), context.encoder)
    used = {name: configuration.models[name] for camera in configuration.cameras.values() for name in camera.models}
    lanes = {name: _lane(name, configuration, cache_dir) for name in used}
    accounts: dict[str, Accounts] = {}
    announcer = Announcer(
        lambda: daemon.publisher,
        accounts,
        storage.journal.state.counters,
        Wording(context.verdict_wording(), lambda *record: context.last_result(writer.stream_id, *record)),
        time.monotonic,
    )
    writer = Writer(storage.journal, context.encoder, announcer, asyncio.get_running_loop(), boot_id=boot_id)
    skipped_as_results = configuration.mqtt.skipped_results == "all"
    book = Bookkeeper(writer, recipe.identity, time.time, skipped_as_results=skipped_as_results)

    def note_file(name: str, sha256: str) -> None:
        before, device = recipe.hash_of(name), lanes[name].crew.serving.device
        recipe.note_file(name, sha256)
        book.identity = recipe.identity
        if before != sha256:
            reason = "the model file was replaced between the start and the first admission"
            station.model_moved(Move(name, Place(device, before), Place(device, sha256), reason))

    for name, lane in lanes.items():
        lane.crew.on_first_file = partial(note_file, name)
        lane.crew.on_moved = lambda move: station.model_moved(move)  # noqa: PLW0108  made below
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
    parts = Parts(
        lines=lines,
        lanes=lanes,
        required=frozenset(name for name, model in used.items() if model.required),
        labels={name: model.labels for name, model in used.items()},
        retired=retired,
        survivors=storage.survivors,
        announcer=announcer,
        writer=writer,
        publisher=lambda: daemon.publisher,
        recipe=lambda: recipe.facts,
        configuration_hash=loaded.sha256,
        boot_id=boot_id,
        is_clock_right=lambda: context.is_clock_right,
    )
    reporter = Reporter(parts, time.monotonic, time.time)
    station = _station(loaded, storage, parts, reporter, context)
    make_publisher = partial(_publisher, configuration, storage, parts, reporter, station, context)
    daemon = Daemon(
        loaded=loaded,
        storage=storage,
        writer=writer,
        announcer=announcer,
        book=book,
        lanes=lanes,
        lines=lines,
        reporter=reporter,
        station=station,
        context=context,
        publisher=make_publisher(),
        make_publisher=make_publisher,
        stages=stages(parts, station.events, configuration.mqtt.keepalive_s),
        boot_id=boot_id,
        socket_path=socket_path(loaded.storage_path, environment),
    )
    return daemon


def _station(loaded: Loaded, storage: Storage, parts: Parts, reporter: Reporter, context: Context) -> Station:
    configuration, recovered, writer = loaded.configuration, storage.recovered, parts.writer
    identity = Identity(
        station_id=configuration.station.id,
        base=configuration.base_topic,
        boot_id=parts.boot_id,
        time_zone=configuration.station.time_zone,
        configuration_path=loaded.path,
        started_s=time.monotonic(),
    )
    memo = Memo(recovered.memo, writer.keep_memo)
    alarms = AlarmDesk(memo, parts.publisher, writer.event, time.monotonic, time.time)
    last_event = recovered.next_event - 1
    events = EventSender(parts.publisher, writer.read_events, writer.ack_event, recovered.acked_event, last_event)
    sources = Sources(
        lines=parts.lines,
        lanes=parts.lanes,
        wire=parts.publisher,
        journal=writer,
        storage_path=loaded.storage_path,
        outbox_limit_bytes=slices.storage_settings(loaded).limits.max_bytes,
        commits_s=parts.announcer.commits_s,
        clock_state=lambda: context.clock,
        certificate_days=lambda: parts.publisher().certificate_days_left(time.time()),
    )
    census = Census(sources, HostWatch(), time.monotonic, time.time)
    return Station(
        identity, parts, reporter, alarms, events, census, parts.announcer.skips, memo, time.monotonic, time.time
    )


def _publisher(
    configuration: Configuration,
    storage: Storage,
    parts: Parts,
    reporter: Reporter,
    station: Station,
    context: Context,
) -> Publisher:
    """A publisher for the stream of the moment."""

    def answer(given: Answer) -> bytes:
        return reports.response(given, reporter.vision, time.time())

    def changed() -> None:
        reporter.publish_changes()
        station.broker_changed()

    ports = Ports(
        state=station.state,
        find=station.find,
        reset=station.reset_counters,
        confirm_all=station.alarms.confirm_all,
        acknowledge=station.alarms.acknowledge,
        payload_limit_bytes=lambda: parts.publisher().payload_limit_bytes(LONGEST_REPLY_LEAF),
    )
    return Publisher(
        slices.broker_settings(configuration, parts.boot_id),
        _journal_port(parts.writer, storage, station),
        answer,
        handlers=handlers(ports),
        reply_prefixes=configuration.reply_prefixes,
        audit=station.audit,
        is_clock_right=lambda: context.is_clock_right,
        on_receipt=station.receipt,
        on_change=changed,
    )


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
    limits = Limits(warm_up_s=max(WARM_UP_MIN_S, WARM_UP_TIMEOUTS * model.timeout_s))

    def make_host(handler: Handler) -> Host:
        return Host("model", name, handler, limits, backoff)

    later = asyncio.get_running_loop().call_later
    return LaneDriver(
        Lane(slices.lane_policy(configuration, name)),
        model.task,
        spec.to_json(),
        make_host,
        later,
        time.monotonic,
        slices.repair_policy(model),
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


def _journal_port(writer: Writer, storage: Storage, station: Station) -> JournalPort:
    """The journal as one publisher sees it: it acknowledges the stream that it began with, and no other."""
    state, stream_id = storage.journal.state, writer.stream_id

    async def put_aside(seq: int, reason: str) -> bytes | None:
        """What goes out instead says what happened to it."""
        rows = await writer.read(seq, seq, 1)
        substitute = messages.substitute(rows[0].payload) if rows else None
        await writer.dead_letter(seq, reason, substitute)
        station.dead_letter(seq, reason)
        return substitute

    def acknowledge(seq: int) -> None:
        writer.ack(stream_id, seq)

    return JournalPort(stream_id, state.acked_seq, state.next_seq - 1, writer.read, acknowledge, put_aside)
