"""Words the health message: how every part did in the last period. Pure.

What could not be measured is left out; no field ever changes its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from inspectd.publish.messages import Clock
from inspectd.publish.wire import encode, milliseconds

PERIOD_S = 10.0
PERIODS_KEPT = 3
"""A message that is not followed by another expires after so many periods."""


class ModelState(StrEnum):
    """What a model's process does."""

    LOADING = "loading"
    """It starts, or is being replaced."""
    RUNNING = "running"
    """It is admitted."""
    REPAIR = "repair"
    """Several starts failed: frames are answered as not inspected, and it is tried again."""


class Breaker(StrEnum):
    """Whether frames reach the model."""

    CLOSED = "closed"
    OPEN = "open"
    """They are answered at once as unavailable."""
    PROBING = "probing"
    """One frame finds out whether the others may follow."""


@dataclass(frozen=True, slots=True)
class CameraHealth:
    """One camera. Counts of this period."""

    connected: bool
    fps: float
    frames_received: int
    """Pictures that main had."""
    frames_incomplete: int
    """Pictures that came and could not be read."""
    frames_missed: int
    """Numbers that were lost on the way to main: no free slot, no announcement, the camera process died."""
    reconnects: int
    last_frame_age_s: float | None


@dataclass(frozen=True, slots=True)
class ModelHealth:
    """One model. Counts and durations of this period, states of now."""

    state: ModelState
    device: str | None
    requests: int
    requests_busy: int
    submitted: int
    done: int
    timed_out: int
    retried: int
    dropped: int
    failed: int
    unavailable: int
    skipped: int
    skip_every: float
    """Of so many frames one is taken, on average; the most of the model's cameras."""
    utilisation: float
    """0..1 of all requests' time."""
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    wait_p95_s: float | None
    queue_depth: int
    lost_requests: int
    restarts: int
    rss_bytes: int | None
    breaker: Breaker
    last_done_age_s: float | None

    @property
    def completion_rate(self) -> float | None:
        """Done ÷ submitted; None where nothing was submitted."""
        return self.done / self.submitted if self.submitted else None


@dataclass(frozen=True, slots=True)
class MqttHealth:
    """The way to the broker. Counts since the daemon's start."""

    connected: bool
    reconnects: int
    outbox_rows: int
    """Results that are not delivered."""
    outbox_bytes: int
    """What the journal takes on the disk."""
    outage_hours: float | None
    """How long the broker may still be away before results are lost, at the present rate."""
    oldest_unsent_age_s: float | None
    dead_letters: int
    no_subscribers: int
    certificate_days_left: float | None


@dataclass(frozen=True, slots=True)
class StorageHealth:
    """The disk."""

    commit_p95_s: float | None
    free_bytes: int | None
    """None: the disk does not say."""
    evidence_bytes: int


@dataclass(frozen=True, slots=True)
class HostHealth:
    """The PC."""

    cpu_percent: float
    """Of all cores, in this period."""
    memory_bytes: int
    """In use, by everybody."""
    temperature_c: float | None
    """None: there is no sensor."""
    throttled: bool | None
    """The processor was slowed down for its heat in this period. None: it does not say."""


@dataclass(frozen=True, slots=True)
class Health:
    """The whole message."""

    cameras: Mapping[str, CameraHealth]
    models: Mapping[str, ModelHealth]
    mqtt: MqttHealth
    storage: StorageHealth
    host: HostHealth
    clock: Clock
    uptime_s: float
    version: str


def health(now: Health) -> bytes:
    """Word the health."""
    return encode(
        {
            "cameras": {name: _camera(camera) for name, camera in now.cameras.items()},
            "models": {name: _model(model) for name, model in now.models.items()},
            "mqtt": _mqtt(now.mqtt),
            "storage": _known(
                commitP95Ms=_ms(now.storage.commit_p95_s),
                freeBytes=now.storage.free_bytes,
                evidenceBytes=now.storage.evidence_bytes,
            ),
            "host": _known(
                cpuPercent=round(now.host.cpu_percent, 1),
                memoryBytes=now.host.memory_bytes,
                temperatureC=_rounded(now.host.temperature_c, 1),
                throttled=now.host.throttled,
            ),
            "clock": _known(source=now.clock.source, synced=now.clock.synced, maxErrorMs=_ms(now.clock.max_error_s)),
            "uptimeS": round(now.uptime_s, 1),
            "version": now.version,
        }
    )


def _camera(camera: CameraHealth) -> dict[str, Any]:
    return _known(
        connected=camera.connected,
        fps=round(camera.fps, 2),
        framesReceived=camera.frames_received,
        framesIncomplete=camera.frames_incomplete,
        framesMissed=camera.frames_missed,
        reconnects=camera.reconnects,
        lastFrameAgeMs=_ms(camera.last_frame_age_s),
    )


def _model(model: ModelHealth) -> dict[str, Any]:
    return _known(
        state=model.state.value,
        device=model.device,
        requests=model.requests,
        requestsBusy=model.requests_busy,
        submitted=model.submitted,
        done=model.done,
        timedOut=model.timed_out,
        retried=model.retried,
        dropped=model.dropped,
        failed=model.failed,
        unavailable=model.unavailable,
        skipped=model.skipped,
        skipEvery=model.skip_every,
        completionRate=_rounded(model.completion_rate, 4),
        utilisation=round(model.utilisation, 4),
        p50Ms=_ms(model.p50_s),
        p95Ms=_ms(model.p95_s),
        p99Ms=_ms(model.p99_s),
        waitP95Ms=_ms(model.wait_p95_s),
        queueDepth=model.queue_depth,
        lostRequests=model.lost_requests,
        restarts=model.restarts,
        rssBytes=model.rss_bytes,
        breaker=model.breaker.value,
        lastDoneAgeMs=_ms(model.last_done_age_s),
    )


def _mqtt(mqtt: MqttHealth) -> dict[str, Any]:
    return _known(
        connected=mqtt.connected,
        reconnects=mqtt.reconnects,
        outboxRows=mqtt.outbox_rows,
        outboxBytes=mqtt.outbox_bytes,
        outageHours=_rounded(mqtt.outage_hours, 1),
        oldestUnsentAgeMs=_ms(mqtt.oldest_unsent_age_s),
        deadLetters=mqtt.dead_letters,
        noSubscribers=mqtt.no_subscribers,
        certificateDaysLeft=_rounded(mqtt.certificate_days_left, 1),
    )


def _known(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else milliseconds(seconds)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
