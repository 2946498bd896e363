"""What alarms there are: for each code how grave it is, who can have it, its cause and its cure. Values only, pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

CAMERA, MODEL = "a camera", "a model"
"""Kinds of sources; the others are named themselves."""
MQTT, STORAGE, CLOCK, STATION = "mqtt", "storage", "clock", "station"


class AlarmCode(StrEnum):
    """MQTT-CONTRACT "alarm"."""

    CAMERA_LOST = "CameraLost"
    CAMERA_CHANGED = "CameraChanged"
    MODEL_UNAVAILABLE = "ModelUnavailable"
    FALLBACK_DEVICE = "FallbackDevice"
    WORKER_UNKILLABLE = "WorkerUnkillable"
    OUTBOX_FULL = "OutboxFull"
    OUTBOX_DAMAGED = "OutboxDamaged"
    STORAGE_FULL = "StorageFull"
    BROKER_REFUSED = "BrokerRefused"
    DUPLICATE_CLIENT = "DuplicateClient"
    DEAD_LETTER = "DeadLetter"
    CLOCK_UNSYNCHRONISED = "ClockUnsynchronised"
    CONFIGURATION_REJECTED = "ConfigurationRejected"
    WATCHDOG_RESTART = "WatchdogRestart"
    CERTIFICATE_EXPIRING = "CertificateExpiring"
    GOLDEN_FAILED = "GoldenFailed"
    CHALLENGE_FAILED = "ChallengeFailed"


@dataclass(frozen=True, slots=True)
class AlarmKind:
    """What all alarms of one code have in common."""

    severity: int
    """1…1000 as in OPC UA: to 333 low, to 666 medium, above high."""
    sources: tuple[str, ...]
    cause: str
    cure: str
    latched: bool = False
    """It stays, no longer active, until somebody confirms it: what happened is not undone when it is over."""
    raise_after_s: float = 0.0
    """The condition must have held so long."""
    clear_after_s: float = 5.0
    """The condition must have been gone for so long: one that comes and goes is one alarm."""


KINDS: Mapping[AlarmCode, AlarmKind] = MappingProxyType(
    {
        AlarmCode.CAMERA_LOST: AlarmKind(
            800,
            (CAMERA,),
            "The camera cannot be opened, its process ended, or it gives no pictures any more.",
            "Check the camera's power, cable and network. It is opened again by itself.",
        ),
        AlarmCode.CAMERA_CHANGED: AlarmKind(
            700,
            (CAMERA,),
            "Another camera than the adopted one is connected (other serial number).",
            "Connect the right camera, or take the new one with the command adopt-camera.",
        ),
        AlarmCode.MODEL_UNAVAILABLE: AlarmKind(
            800,
            (MODEL,),
            "The model's file cannot be used, its process ends again and again, or it only fails or is too slow.",
            "Read the text: mend the file or the device that it names. It is tried again by itself.",
        ),
        AlarmCode.FALLBACK_DEVICE: AlarmKind(
            400,
            (MODEL,),
            "The preferred device does not work; the model runs on a later one of its devices, perhaps too slowly.",
            "Check the preferred device and its driver. It is tried again by itself.",
        ),
        AlarmCode.WORKER_UNKILLABLE: AlarmKind(
            600,
            (CAMERA, MODEL),
            "A process was killed and does not end: a driver holds it. Its memory is not given back.",
            "Restart the PC at the next break of production; update the driver if it comes back.",
        ),
        AlarmCode.OUTBOX_FULL: AlarmKind(
            900,
            (STORAGE,),
            "The outbox was full, and results that were not sent yet had to be given up.",
            "Bring the broker back; give the outbox more room (storage.outbox.max_gb). Then confirm.",
            latched=True,
        ),
        AlarmCode.OUTBOX_DAMAGED: AlarmKind(
            900,
            (STORAGE,),
            "The journal was damaged and set aside; a new stream has begun, counters begin at 0.",
            "Check the disk (smartctl -a). Keep the file that was set aside. Then confirm.",
            latched=True,
        ),
        AlarmCode.STORAGE_FULL: AlarmKind(
            900,
            (STORAGE,),
            "Results cannot be written: the disk is full, read-only or does not answer.",
            "Make room on the disk or check it; nothing is inspected until it can be written.",
            clear_after_s=10.0,
        ),
        AlarmCode.BROKER_REFUSED: AlarmKind(
            700,
            (MQTT,),
            "The broker refuses the connection, the subscription or our messages.",
            "Give the user the rights on the broker that the text names; check user name, password and certificate.",
            raise_after_s=2.0,
        ),
        AlarmCode.DUPLICATE_CLIENT: AlarmKind(
            700,
            (MQTT,),
            "Another client has signed in with this station's client id; they throw each other out.",
            "Give every station its own base topic (mqtt.base or station.id). Then confirm.",
            latched=True,
        ),
        AlarmCode.DEAD_LETTER: AlarmKind(
            500,
            (MQTT,),
            "A result was too large for the broker or refused by it; a small substitute went out in its place.",
            "Raise the broker's message size limit to 64 KiB and more; look at its log. Then confirm.",
            latched=True,
        ),
        AlarmCode.CLOCK_UNSYNCHRONISED: AlarmKind(
            300,
            (CLOCK,),
            "The wall clock is not synchronised, though station.clock says that it should be.",
            "Check the time server (chronyc sources, or timedatectl) and the network to it.",
            raise_after_s=60.0,
            clear_after_s=30.0,
        ),
        AlarmCode.CONFIGURATION_REJECTED: AlarmKind(
            500,
            (STATION,),
            "A new configuration was refused; the one before goes on working.",
            "Run inspectd check on the file, mend what it names, reload. Then confirm.",
            latched=True,
        ),
        AlarmCode.WATCHDOG_RESTART: AlarmKind(
            700,
            (STATION,),
            "The daemon stood still and systemd started it again.",
            "Send the journal of that time (journalctl -u inspectd) to support. Then confirm.",
            latched=True,
        ),
        AlarmCode.CERTIFICATE_EXPIRING: AlarmKind(
            400,
            (MQTT,),
            "A certificate of the connection to the broker ends within 30 days, or has ended.",
            "Put the new certificate in place; it is read at the next connection, without a restart.",
        ),
        AlarmCode.GOLDEN_FAILED: AlarmKind(
            900,
            (MODEL,),
            "The model does not give the known answer to its golden picture.",
            "Check model file, device and driver; do not go on with production before the picture passes.",
        ),
        AlarmCode.CHALLENGE_FAILED: AlarmKind(
            800,
            (CAMERA, STATION),
            "A challenge part was not judged as expected.",
            "Check light and focus, repeat the challenge; parts since the last good one are in doubt. Then confirm.",
            latched=True,
        ),
    }
)

UNKNOWN = AlarmKind(500, (), "", "", clear_after_s=0.0)
"""An alarm that a newer release left behind: it is cleared."""


def kind_of(code: str) -> AlarmKind:
    """Give the kind, for any code."""
    return KINDS[AlarmCode(code)] if code in KINDS else UNKNOWN


def possible(cameras: Iterable[str], models: Iterable[str]) -> set[tuple[str, str]]:
    """Give every pair of code and source that a station with these cameras and models can ever raise."""
    names = {CAMERA: tuple(cameras), MODEL: tuple(models)}
    return {
        (code.value, name)
        for code, kind in KINDS.items()
        for source in kind.sources
        for name in names.get(source, (source,))
    }


def table() -> str:
    """Write the kinds as a Markdown table, for the documentation."""
    rows = ["| code | source | severity | stays until confirmed | cause | cure |", "|---|---|---|---|---|---|"]
    for code, kind in KINDS.items():
        sources = " or ".join(source if source in (CAMERA, MODEL) else f"`{source}`" for source in kind.sources)
        latched = "yes" if kind.latched else "no"
        rows.append(f"| `{code}` | {sources} | {kind.severity} | {latched} | {kind.cause} | {kind.cure} |")
    return "\n".join(rows) + "\n"
