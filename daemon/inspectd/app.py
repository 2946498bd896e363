"""Composition root: the only file that names every concrete class. Builds the daemon from its configuration."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspectd import __version__
from inspectd.accounts import Accounts
from inspectd.backoff import Backoff
from inspectd.book import Bookkeeper, Identity, numbers_ahead
from inspectd.camera.sources import SIMULATED_KINDS
from inspectd.config.load import Loaded, digest
from inspectd.config.modelfile import hashes_of
from inspectd.config.plan import ASSUMED_REQUESTS, slots_needed, threads_per_model
from inspectd.config.rules import decision_plan
from inspectd.config.schema import Camera, Configuration, FilesSource, Model
from inspectd.engine import ModelSpec
from inspectd.health.clock import read_clock
from inspectd.lane.driver import LaneDriver
from inspectd.lane.inbox import CameraShare, WhenFull
from inspectd.lane.lane import Lane, LanePolicy
from inspectd.line import Line, LineSpec
from inspectd.publish import messages, reports
from inspectd.publish.announcer import Announcer, Wording
from inspectd.publish.broker import BrokerSettings
from inspectd.publish.journal import Encode
from inspectd.publish.journal_door import Journal as JournalPort
from inspectd.publish.publisher import Publisher
from inspectd.publish.reporter import Parts, Reporter
from inspectd.publish.reports import RecipeFacts
from inspectd.publish.retention import Limits as JournalLimits
from inspectd.publish.writer import Writer
from inspectd.records import ConfigurationId, Inspection
from inspectd.storage import Storage, StorageSettings, open_storage
from inspectd.worker.host import Handler, Host, Limits

CAMERA_BACKOFF = Backoff(first_s=0.2, limit_s=10.0)
CAMERA_LIMITS = Limits(ready_s=60.0, stall_s=5.0)
"""A source answers every 0.1 s; one that does not for 5 s hangs in native code."""
MODEL_FIRST_BACKOFF_S = 0.2
LOSSLESS_FPS = 100.0
"""Rate of a source that waits for slots, for what is reserved ahead; a faster one reserves more often."""
AUTO_SHARE_OF_DISK = 4
"""`outbox.max_gb: auto` is a quarter of the disk."""


@dataclass(slots=True)
class Daemon:
    """Everything that lives."""

    loaded: Loaded
    storage: Storage
    writer: Writer
    announcer: Announcer
    book: Bookkeeper
    lanes: dict[str, LaneDriver]
    lines: dict[str, Line]
    reporter: Reporter
    publisher: Publisher
    make_publisher: Callable[[], Publisher]
    boot_id: str
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time

    def status_message(self, reason: Any) -> bytes:
        """Word the status topic's message."""
        return reports.status(reason, self.boot_id, self.wall())


class Context:
    """What every result says of the station; the clock's state is refreshed once a second."""

    def __init__(self, station_id: str, clock_source: Any, boot_id: str, started_s: float) -> None:
        self._station_id, self._clock_source, self._boot_id, self._started_s = (
            station_id,
            clock_source,
            boot_id,
            started_s,
        )
        self.refresh_clock()

    def refresh_clock(self) -> None:
        """Ask the kernel whether the wall clock is right."""
        state = read_clock()
        self._clock = messages.Clock(self._clock_source, state.synced, state.max_error_s)

    def encoder(self, stream_id: str) -> Encode:
        """How results of a stream are worded; called in the writer's thread."""

        def encode(inspection: Inspection, seq: int) -> bytes:
            return messages.result(inspection, self._station(stream_id), seq, self._uptime_ms(inspection))

        return encode

    def last_result(self, stream_id: str, inspection: Inspection, seq: int) -> bytes:
        """Word the last result."""
        return messages.last_result(inspection, self._station(stream_id), seq, self._uptime_ms(inspection))

    def _uptime_ms(self, inspection: Inspection) -> int:
        return max(0, round((inspection.closed_s - self._started_s) * 1000))

    def _station(self, stream_id: str) -> messages.Station:
        return messages.Station(self._station_id, stream_id, self._boot_id, __version__, self._clock)


def build(loaded: Loaded, cache_dir: Path | None) -> tuple[Daemon, Context]:
    """Open the storage and put every part together; nothing runs yet. Raises OutsideError and StorageError."""
    configuration, loop = loaded.configuration, asyncio.get_running_loop()
    boot_id = str(uuid.uuid4())
    station = configuration.station
    context = Context(station.id, station.clock, boot_id, time.monotonic())
    rates = {name: camera.fps or LOSSLESS_FPS for name, camera in configuration.cameras.items()}
    storage = open_storage(
        _storage_settings(loaded),
        configuration.cameras,
        context.encoder,
        lambda camera: numbers_ahead(rates.get(camera, 0.0)),
    )
    recipe, identity = _identity(configuration)

    lanes = {name: _lane(name, configuration, cache_dir, loop) for name in configuration.models}
    accounts: dict[str, Accounts] = {}
    announcer = Announcer(
        lambda: daemon.publisher,
        accounts,
        storage.recovered.counters,
        Wording(_verdict_wording(configuration), lambda *item: context.last_result(writer.stream_id, *item)),
        time.monotonic,
    )
    announcer.counters = storage.journal.state.counters
    writer = Writer(storage.journal, context.encoder, announcer, loop)
    skipped_as_results = configuration.mqtt.skipped_results == "all"
    book = Bookkeeper(writer, identity, time.time, skipped_as_results=skipped_as_results)
    lines = {name: _line(name, configuration, storage, lanes, book, loop) for name in configuration.cameras}
    retired = {
        name: (ledger, Accounts(ledger.last, storage.excluded[name]))
        for name, ledger in storage.ledgers.items()
        if name not in lines
    }
    accounts |= {name: line.accounts for name, line in lines.items()}
    accounts |= {name: account for name, (_, account) in retired.items()}
    for name, line in lines.items():
        book.expect(name, line.ledger.last, rates[name])

    def make_publisher() -> Publisher:
        state = storage.journal.state
        journal = JournalPort(
            writer.stream_id, state.acked_seq, state.next_seq - 1, writer.read, writer.ack, _dead_letters(writer)
        )
        return Publisher(_broker(configuration, boot_id), journal, answer, on_change=lambda: daemon.reporter.publish_changes())

    def answer(given: Any) -> bytes:
        return reports.response(given, daemon.reporter.vision, time.time())

    reporter = Reporter(
        Parts(
            lines=lines,
            lanes=lanes,
            required=frozenset(name for name, model in configuration.models.items() if model.required),
            labels={name: model.labels for name, model in configuration.models.items()},
            retired=retired,
            announcer=announcer,
            writer=writer,
            publisher=lambda: daemon.publisher,
            recipe=recipe,
            configuration_hash=loaded.sha256,
            boot_id=boot_id,
        ),
        time.monotonic,
        time.time,
    )
    daemon = Daemon(
        loaded, storage, writer, announcer, book, lanes, lines, reporter, make_publisher(), make_publisher, boot_id
    )
    return daemon, context


def model_spec(
    name: str, configuration: Configuration, *, threads: int, fps_total: float, cache_dir: Path | None
) -> ModelSpec:
    """One model's slice of the configuration, as its child needs it."""
    model = configuration.models[name]
    return ModelSpec(
        name=name,
        path=model.path,
        task=model.task,
        layout=model.layout,
        classes=model.classes,
        color=model.input.color,
        scale=model.input.scale,
        mean=model.input.mean,
        std=model.input.std,
        pad=model.input.pad,
        device=model.devices[0],
        threads=threads,
        cpus=model.cpus,
        precision=model.precision,
        hint="throughput" if model.hint == "auto" else model.hint,
        requests=None if model.requests == "auto" else model.requests,
        confidence=model.confidence,
        iou=model.iou,
        fps_total=fps_total,
        sha256=model.sha256,
        cache_dir=cache_dir,
    )


def _lane(
    name: str, configuration: Configuration, cache_dir: Path | None, loop: asyncio.AbstractEventLoop
) -> LaneDriver:
    model = configuration.models[name]
    cameras = {camera_id: camera for camera_id, camera in configuration.cameras.items() if name in camera.models}
    shares = {
        camera_id: CameraShare(_inbox_depth(configuration, camera_id, model), camera.priority)
        for camera_id, camera in cameras.items()
    }
    policy = LanePolicy(name, model.timeout_s, model.kill_after_s, model.retries, WhenFull(model.when_full), shares)
    threads = threads_per_model(configuration, len(os.sched_getaffinity(0)))[name]
    fps_total = sum(camera.supply_fps or 0.0 for camera in cameras.values())
    spec = model_spec(name, configuration, threads=threads, fps_total=fps_total, cache_dir=cache_dir)
    backoff = Backoff(MODEL_FIRST_BACKOFF_S, max(model.retry_s, MODEL_FIRST_BACKOFF_S))
    return LaneDriver(
        Lane(policy),
        model.task,
        spec.to_json(),
        lambda handler: Host("model", name, handler, Limits(), backoff),
        loop.call_later,
        time.monotonic,
    )


def _inbox_depth(configuration: Configuration, camera_id: str, model: Model) -> int:
    """A source that waits for slots must never overflow a queue: then every one of its slots may wait."""
    camera = configuration.cameras[camera_id]
    if not camera.is_lossless:
        return model.queue_depth
    return max(model.queue_depth, _slots(configuration, camera_id, {}))


def _slots(configuration: Configuration, camera_id: str, lanes: Mapping[str, LaneDriver]) -> int:
    camera = configuration.cameras[camera_id]
    if camera.slots != "auto":
        return camera.slots
    models = configuration.models_of(camera_id)
    measured = {name: lane.facts.requests for name, lane in lanes.items() if lane.facts is not None}
    requests = [
        measured.get(name, ASSUMED_REQUESTS) if model.requests == "auto" else model.requests
        for name, model in models.items()
    ]
    return slots_needed(camera, list(models.values()), requests)


def _line(
    name: str,
    configuration: Configuration,
    storage: Storage,
    lanes: Mapping[str, LaneDriver],
    book: Bookkeeper,
    loop: asyncio.AbstractEventLoop,
) -> Line:
    camera = configuration.cameras[name]
    spec = LineSpec(
        camera=name,
        source=_source(camera),
        simulated=camera.source.kind in SIMULATED_KINDS,
        lossless=camera.is_lossless,
        deadline_s=camera.deadline_s,
        plan=decision_plan(configuration, name),
    )
    own_lanes = {model: lanes[model] for model in camera.models}

    def make_host(handler: Handler) -> Host:
        return Host("camera", name, handler, CAMERA_LIMITS, CAMERA_BACKOFF)

    return Line(
        spec,
        storage.ledgers[name],
        storage.excluded[name],
        own_lanes,
        book,
        lambda: _slots(configuration, name, own_lanes),
        make_host,
        loop.call_later,
        time.monotonic,
    )


def _source(camera: Camera) -> dict[str, Any]:
    """What the camera child needs to make its source."""
    source = camera.source
    options = source.model_dump(mode="json")
    options["fps"] = camera.supply_fps
    if isinstance(source, FilesSource):
        options["path"] = str(source.path)
    return options


def _identity(configuration: Configuration) -> tuple[RecipeFacts, Identity]:
    """The recipe is rules and models, their files included; the configuration is the station and its cameras."""
    models = {
        name: {**model.model_dump(mode="json", exclude={"path"}), "files": hashes_of(model.path)[-1]}
        for name, model in configuration.models.items()
    }
    recipe_text = digest(configuration, "decision") + json.dumps(models, sort_keys=True)
    recipe_hash = hashlib.sha256(recipe_text.encode()).hexdigest()
    recipe = ConfigurationId("default", __version__, recipe_hash)
    settings_hash = digest(configuration, "station", "cameras")
    settings = ConfigurationId(configuration.station.id, __version__, settings_hash)
    return RecipeFacts("default", 0, recipe_hash), Identity(recipe, dict.fromkeys(configuration.cameras, settings))


def _storage_settings(loaded: Loaded) -> StorageSettings:
    outbox = loaded.configuration.storage.outbox
    path = loaded.storage_path
    if outbox.max_gb == "auto":
        existing = next(folder for folder in (path, *path.parents) if folder.exists())
        disk = os.statvfs(existing)
        max_bytes = disk.f_frsize * disk.f_blocks // AUTO_SHARE_OF_DISK
    else:
        max_bytes = int(outbox.max_gb * 1e9)
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return StorageSettings(path, JournalLimits(max_bytes, outbox.keep_days), boot_id, __version__)


def _broker(configuration: Configuration, boot_id: str) -> BrokerSettings:
    mqtt = configuration.mqtt
    return BrokerSettings(
        host=mqtt.host,
        port=mqtt.port,
        base=configuration.base_topic,
        will=lambda: reports.status("connectionLost", boot_id, time.time()),
        version=mqtt.version,
        username=mqtt.username,
        password_file=mqtt.password_file,
        keepalive_s=mqtt.keepalive_s,
    )


def _verdict_wording(configuration: Configuration) -> Callable[[Inspection, int], bytes] | None:
    """Verdicts of continuous cameras go out by option only."""
    verdict = configuration.mqtt.verdict
    if verdict.enabled != "always":
        return None
    return lambda inspection, seq: messages.verdict(inspection, seq, form=verdict.format)


def _dead_letters(writer: Writer) -> Callable[[int, str], Any]:
    """Put a result aside that the broker will never take; what goes out instead says what happened to it."""

    async def put_aside(seq: int, reason: str) -> bytes | None:
        [*rows] = await writer.read(seq, seq, 1)
        substitute = messages.substitute(rows[0].payload) if rows else None
        await writer.dead_letter(seq, reason, substitute)
        return substitute

    return put_aside
