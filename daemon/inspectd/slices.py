"""Each part's own slice of the configuration: what it needs, in seconds and plain values. Opens nothing."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from inspectd import __version__
from inspectd.book import Identity, numbers_ahead
from inspectd.camera.sources import SIMULATED_KINDS
from inspectd.config.load import Loaded, digest
from inspectd.config.modelfile import hashes_of
from inspectd.config.plan import ASSUMED_REQUESTS, slots
from inspectd.config.rules import decision_plan
from inspectd.config.schema import Configuration, Model
from inspectd.engine import ModelSpec
from inspectd.errors import OutsideError
from inspectd.lane.breaker import BreakerPolicy
from inspectd.lane.inbox import CameraShare, WhenFull
from inspectd.lane.policy import LanePolicy
from inspectd.lane.skip import SkipPolicy
from inspectd.lineports import LineSpec
from inspectd.publish import reports
from inspectd.publish.broker import BrokerSettings, TlsFiles
from inspectd.publish.reports import RecipeFacts
from inspectd.publish.retention import Limits
from inspectd.records import ConfigurationId, ModelFacts
from inspectd.storage import CameraNumbers, StorageSettings
from inspectd.worker.crewports import RepairPolicy

LOSSLESS_FPS = 100.0
"""Rate of a source that waits for slots, for what is reserved ahead; a faster one reserves more often."""
AUTO_SHARE_OF_DISK = 4
"""`outbox.max_gb: auto` is a quarter of the disk."""
_UNBOUNDED = 1_000_000
"""Depth of a lossless camera's inbox: its slots are the bound."""


def camera_rate(configuration: Configuration, camera: str) -> float:
    """Give the frames a second to expect."""
    return configuration.cameras[camera].expected_fps or LOSSLESS_FPS


def camera_numbers(configuration: Configuration) -> dict[str, CameraNumbers]:
    """Give what numbering needs to know of each camera."""
    return {
        name: CameraNumbers(numbers_ahead(camera_rate(configuration, name)), _is_simulated(configuration, name))
        for name in configuration.cameras
    }


def line_spec(configuration: Configuration, name: str) -> LineSpec:
    """Give a line's slice."""
    camera = configuration.cameras[name]
    options = camera.source.model_dump(mode="json") | {"fps": camera.supply_fps, "max_fps": camera.max_fps}
    return LineSpec(
        camera=name,
        source=options,
        simulated=_is_simulated(configuration, name),
        lossless=camera.is_lossless,
        fps=camera.expected_fps,
        deadline_s=camera.deadline_s,
        plan=decision_plan(configuration, name),
    )


def camera_slots(configuration: Configuration, name: str, admitted: Mapping[str, ModelFacts | None]) -> int:
    """Give how many frame slots a camera gets, by what its models measured at their admission."""
    models = configuration.models_of(name)
    requests: list[int] = []
    for model_name, model in models.items():
        facts = admitted[model_name]
        measured = ASSUMED_REQUESTS if facts is None else facts.requests
        requests.append(measured if model.requests == "auto" else model.requests)
    return slots(configuration.cameras[name], list(models.values()), requests)


def lane_policy(configuration: Configuration, name: str) -> LanePolicy:
    """Give a lane's slice."""
    model = configuration.models[name]
    shares = {
        camera_id: CameraShare(
            _UNBOUNDED if camera.is_lossless else model.queue_depth,
            camera.priority,
            may_skip=not camera.is_lossless,
        )
        for camera_id, camera in configuration.cameras.items()
        if name in camera.models
    }
    return LanePolicy(
        model=name,
        timeout_s=model.timeout_s,
        kill_after_s=model.kill_after_s,
        retries=model.retries,
        when_full=WhenFull(model.when_full),
        shares=shares,
        breaker=BreakerPolicy(model.breaker.failures, model.breaker.open_s),
        skip=SkipPolicy(model.skip.most, model.skip.rise_after_ms / 1000, model.skip.fall_after_ms / 1000),
        demotes=model.on_timeout == "demote",
    )


def repair_policy(model: Model) -> RepairPolicy:
    """Give what a model's repair needs."""
    limit_bytes = None if model.rss_limit_mb == "auto" else model.rss_limit_mb * 2**20
    return RepairPolicy(model.devices, model.retry_primary_s, limit_bytes)


def fps_total(configuration: Configuration, name: str) -> float:
    """Give the pictures a second that a model gets from all its cameras; those that wait for it count as none."""
    return sum(camera.expected_fps or 0.0 for camera in configuration.cameras.values() if name in camera.models)


def model_spec(
    name: str,
    configuration: Configuration,
    *,
    threads: int,
    fps_total: float,
    cache_dir: Path | None,
) -> ModelSpec:
    """Give what a model's child needs."""
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
        resize=model.input.resize,
        pad=model.input.pad,
        device=model.devices[0],
        threads=threads,
        cpus=model.cpus,
        precision=model.precision,
        hint="throughput" if model.hint == "auto" else model.hint,
        requests=None if model.requests == "auto" else model.requests,
        confidence=model.confidence if "confidence" in model.model_fields_set else None,
        iou=model.iou,
        fps_total=fps_total,
        sha256=model.sha256,
        cache_dir=cache_dir,
    )


def model_hashes(configuration: Configuration) -> dict[str, str]:
    """Give the SHA-256 of each model's files as they are now. Raises OutsideError."""
    try:
        return {name: hashes_of(model.path)[-1] for name, model in configuration.models.items()}
    except OSError as error:
        raise OutsideError(f"{error.filename}: {error.strerror}; the model file was there a moment ago") from error


def identity(configuration: Configuration, hashes: Mapping[str, str]) -> tuple[RecipeFacts, Identity]:
    """The recipe is rules and models, their files included; the configuration is the station and its cameras."""
    models = {
        name: {**model.model_dump(mode="json", exclude={"path"}), "files": hashes[name]}
        for name, model in configuration.models.items()
    }
    recipe_text = digest(configuration, "decision") + json.dumps(models, sort_keys=True)
    recipe_hash = hashlib.sha256(recipe_text.encode()).hexdigest()
    recipe = ConfigurationId("default", __version__, recipe_hash)
    settings = ConfigurationId(configuration.station.id, __version__, digest(configuration, "station", "cameras"))
    return RecipeFacts("default", 0, recipe_hash), Identity(recipe, dict.fromkeys(configuration.cameras, settings))


def storage_settings(loaded: Loaded) -> StorageSettings:
    """Give the storage's slice, for this disk and this boot of the machine."""
    storage, path = loaded.configuration.storage, loaded.storage_path
    if storage.outbox.max_gb == "auto":
        existing = next(folder for folder in (path, *path.parents) if folder.exists())
        disk = os.statvfs(existing)
        max_bytes = disk.f_frsize * disk.f_blocks // AUTO_SHARE_OF_DISK
    else:
        max_bytes = int(storage.outbox.max_gb * 1e9)
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    limits = Limits(max_bytes, storage.outbox.keep_days)
    return StorageSettings(path, limits, boot_id, __version__, storage.reserve_mb * 1_000_000)


def broker_settings(configuration: Configuration, boot_id: str) -> BrokerSettings:
    """Give the publisher's slice."""
    mqtt = configuration.mqtt
    tls = None if mqtt.tls is None else TlsFiles(mqtt.tls.ca_file, mqtt.tls.cert_file, mqtt.tls.key_file)
    return BrokerSettings(
        host=mqtt.host,
        port=mqtt.port,
        base=configuration.base_topic,
        will=lambda: reports.status("connectionLost", boot_id, time.time()),
        version=mqtt.version,
        username=mqtt.username,
        password_file=mqtt.password_file,
        keepalive_s=mqtt.keepalive_s,
        tls=tls,
    )


def _is_simulated(configuration: Configuration, camera: str) -> bool:
    return configuration.cameras[camera].source.kind in SIMULATED_KINDS
