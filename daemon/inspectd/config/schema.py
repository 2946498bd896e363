"""What may stand in the YAML: frozen models, unknown keys refused, units in the names. No I/O.

A value keeps the unit of its YAML key; properties give seconds. Paths are as written until `load` has made them
absolute. Adding a key here is all that a new option needs: reading, faults, `show` and the JSON Schema follow.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from inspectd.config.fields import (
    AutoCount,
    AutoGb,
    AutoMb,
    ClockTime,
    Devices,
    FilePath,
    Fraction,
    Id,
    LayoutName,
    Level,
    Millis,
    Mode,
    Part,
    Positive,
    Resize,
    Sha256,
    Text,
    TopicBase,
    TopicPrefix,
    Triple,
)
from inspectd.config.schema_rules import Decision

_DEFAULT_BASE = "{enterprise}/{site}/{area}/{line}/{cell}/{id}"
_TLS_PORT = 8883
_KILL_AFTER_MS = (200, 5000)
"""Bounds of the default for `kill_after_ms`, 2 × timeout."""


class Station(Part):
    """Who and where this PC is: the levels of its topics, its clock and its shifts."""

    enterprise: Id
    site: Id
    area: Id
    line: Id
    cell: Level = ""
    id: Id
    time_zone: Text = "UTC"
    shifts: Annotated[tuple[ClockTime, ...], Field(strict=False)] = ()
    """When shifts begin, local time."""
    clock: Literal["ntp", "ptp", "none"] = "ntp"


class Outbox(Part):
    """How much of results is kept."""

    max_gb: AutoGb = "auto"
    """`auto`: a quarter of the disk."""
    keep_days: Annotated[int, Field(ge=1, le=3650)] = 30


class Storage(Part):
    """Where the daemon keeps what must survive."""

    path: FilePath | None = None
    """Default: systemd's StateDirectory, else XDG state; `load` fills it in."""
    reserve_mb: Annotated[int, Field(ge=0, le=1_048_576)] = 256
    outbox: Outbox = Outbox()


class Verdict(Part):
    """The short message for a PLC."""

    enabled: Literal["triggered", "always", "never"] = "triggered"
    format: Literal["json", "csv"] = "json"


class Tls(Part):
    """Encryption to the broker; `{}`: with the authorities that this PC trusts. The broker's name is always checked."""

    ca_file: FilePath | None = None
    """Who may have signed the broker's certificate."""
    cert_file: FilePath | None = None
    """Our own certificate, if the broker wants one …"""
    key_file: FilePath | None = None
    """… and its key; may be the same file."""


class Mqtt(Part):
    """The broker, and what goes to it."""

    host: Text = "127.0.0.1"
    tls: Tls | None = None
    port: Annotated[int, Field(ge=1, le=65535)] = 1883
    """With `tls` the default is 8883."""
    version: Literal[5, "3.1.1"] = 5
    base: TopicBase = _DEFAULT_BASE
    username: Text | None = None
    password_file: FilePath | None = None
    insecure: bool = False
    """True: a broker elsewhere without encryption is meant."""
    verdict: Verdict = Verdict()
    skipped_results: Literal["summary", "all"] = "summary"
    reply_prefixes: Annotated[tuple[TopicPrefix, ...], Field(strict=False)] = ()
    """Where else than below `{base}/rsp/` answers may be asked to go: the beginnings of topics."""
    keepalive_s: Annotated[int, Field(ge=1, le=3600)] = 10

    @model_validator(mode="before")
    @classmethod
    def _usual_port(cls, values: Any) -> Any:
        has_tls = isinstance(values, dict) and values.get("tls") is not None
        return {"port": _TLS_PORT, **values} if has_tls else values


class FilesSource(Part):
    """Pictures from a folder or a glob."""

    kind: Literal["files"]
    path: FilePath
    fps: Positive | None = None
    """How fast pictures are handed over; default the camera's `fps`."""
    loop: bool = False
    pace: Literal["fps", "lossless"] = "fps"

    @property
    def is_finite(self) -> bool:
        """Whether it is used up at some time."""
        return not self.loop


class VideoSource(Part):
    """Pictures of a video file."""

    kind: Literal["video"]
    path: FilePath
    fps: Positive | None = None
    """Another rate than the file's own (`pace: own`) or the camera's `fps` (`pace: fps`)."""
    loop: bool = False
    pace: Literal["own", "fps", "lossless"] = "own"

    @property
    def is_finite(self) -> bool:
        """Whether it is used up at some time."""
        return not self.loop


class SimulatorSource(Part):
    """A drawn production line of circuit boards."""

    kind: Literal["simulator"]
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 1
    width: Annotated[int, Field(ge=64, le=8192)] = 640
    height: Annotated[int, Field(ge=64, le=8192)] = 640
    pace: Literal["fps", "lossless"] = "fps"
    count: Annotated[int, Field(ge=1)] | None = None
    """How many pictures; without it the line never ends."""

    @property
    def is_finite(self) -> bool:
        """Whether it is used up at some time."""
        return self.count is not None


Source = Annotated[FilesSource | VideoSource | SimulatorSource, Field(discriminator="kind")]


class Camera(Part):
    """One camera, and which models see its pictures."""

    source: Source
    mode: Mode = "continuous"
    fps: Positive | None = None
    """Expected rate, for the stall limit and for sizes."""
    max_fps: Positive | None = None
    deadline_ms: Millis = 1000
    """From capture to the decision."""
    models: Annotated[tuple[Id, ...], Field(strict=False, min_length=1)]
    priority: Annotated[int, Field(ge=1, le=100)] = 1
    slots: AutoCount = "auto"

    @model_validator(mode="after")
    def _has_a_rate(self) -> Self:
        if self.fps is None and self.source.pace == "fps":
            raise PydanticCustomError(
                "needs_fps",
                "is missing; give the expected pictures per second, or `pace: lossless` in `source`",
                {"at": "fps"},
            )
        if len(set(self.models)) < len(self.models):
            raise PydanticCustomError("twice", "names a model twice; it runs once on every picture", {"at": "models"})
        return self

    @property
    def deadline_s(self) -> float:
        """From capture to the decision."""
        return self.deadline_ms / 1000

    @property
    def is_lossless(self) -> bool:
        """Whether the source waits for a free slot instead of keeping a rate."""
        return self.source.pace == "lossless"

    @property
    def supply_fps(self) -> float | None:
        """The rate at which its source is to hand pictures over.

        None: as fast as slots come free, or at a video's own rate, which only the opened file tells.
        """
        if self.is_lossless:
            return None
        given = self.source.fps if isinstance(self.source, FilesSource | VideoSource) else None
        rate = given or (None if self.source.pace == "own" else self.fps)
        return None if rate is None else self.limited_fps(rate)

    @property
    def expected_fps(self) -> float | None:
        """What sizes are worked out from: `supply_fps`, or what is expected of it. None: unknown, or lossless."""
        if self.is_lossless or self.fps is None:
            return self.supply_fps
        return self.supply_fps or self.limited_fps(self.fps)

    def limited_fps(self, fps: float) -> float:
        """At most `max_fps`."""
        return fps if self.max_fps is None else min(fps, self.max_fps)


class InputSpec(Part):
    """How the net wants its picture; each only where the model file does not tell."""

    color: Literal["rgb", "bgr"] | None = None
    scale: Positive | None = None
    mean: Triple | None = None
    std: Annotated[tuple[Positive, Positive, Positive], Field(strict=False)] | None = None
    resize: Resize | None = None
    pad: Annotated[int, Field(ge=0, le=255)] | None = None


class Skip(Part):
    """Overload of a continuous camera: of n frames one is taken; n follows the load, in steps of a quarter."""

    most: Annotated[int, Field(ge=1, le=1000)] = 16
    """Largest n; 1: no frame is ever skipped, and what is late is late."""
    rise_after_ms: Millis = 500
    """So long frames must have waited too long, again and again."""
    fall_after_ms: Millis = 2000
    """So long they must have waited hardly at all."""


class Breaker(Part):
    """When a model that only fails is not asked any more."""

    failures: Annotated[int, Field(ge=1, le=1000)] = 5
    """In a row."""
    open_s: Positive = 5.0
    """So long every frame is answered at once as unavailable; then one finds out."""


class Model(Part):
    """One model: its file, where and how it runs, and what of it is recorded."""

    task: Literal["detect"]
    path: FilePath
    sha256: Sha256 | None = None
    layout: LayoutName | None = None
    """Only where the file cannot be told."""
    input: InputSpec = InputSpec()
    classes: Annotated[tuple[Text, ...], Field(strict=False, min_length=1)] | None = None
    """Order = class index; only where the file does not tell."""
    labels: dict[Text, dict[Text, Text]] = Field(default_factory=dict)
    """Class → language → what people read; the wire keeps the model's own names."""
    devices: Devices = ("CPU",)
    """In order of preference: a later one is used when those before it fail."""
    requests: AutoCount = "auto"
    queue_depth: Annotated[int, Field(ge=1, le=1024)] = 8
    """Waiting frames per camera."""
    when_full: Literal["drop_oldest", "drop_newest"] = "drop_oldest"
    timeout_ms: Millis = 500
    """One attempt."""
    on_timeout: Literal["give_up", "demote"] = "give_up"
    """`demote`: a camera whose frames take too long also gives way to the others until its frames are in time again."""
    kill_after_ms: Millis | None = None
    retries: Annotated[int, Field(ge=0, le=10)] = 1
    skip: Skip = Skip()
    breaker: Breaker = Breaker()
    confidence: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.10
    """Lowest score that is recorded; the rules decide."""
    iou: Fraction | None = None
    """Boxes of one class that overlap more are one object; default: the file's, else 0.5."""
    required: bool = True
    threads: AutoCount = "auto"
    cpus: Annotated[tuple[Annotated[int, Field(ge=0, le=4095)], ...], Field(strict=False, min_length=1)] | None = None
    precision: Literal["auto", "f32", "f16", "bf16"] = "auto"
    hint: Literal["auto", "latency", "throughput"] = "auto"
    retry_s: Positive = 30.0
    """Longest pause between two tries while no device works."""
    retry_primary_s: Positive = 600.0
    """On a later device: how often the first one is tried, by a second process beside the one that serves."""
    rss_limit_mb: AutoMb = "auto"
    """Memory of its process (RssAnon) from which it is replaced by a fresh one; auto: half more than a fresh one has,
    at least 256 MB more."""

    @property
    def timeout_s(self) -> float:
        """One attempt."""
        return self.timeout_ms / 1000

    @property
    def kill_after_s(self) -> float:
        """How long a cancelled request may stay out before the child is killed; default 2 × timeout in 0.2…5 s."""
        if self.kill_after_ms is not None:
            return self.kill_after_ms / 1000
        least_ms, most_ms = _KILL_AFTER_MS
        return min(max(2 * self.timeout_ms, least_ms), most_ms) / 1000


class Configuration(Part):
    """The whole file."""

    version: Literal[1]
    station: Station
    storage: Storage = Storage()
    mqtt: Mqtt = Mqtt()
    cameras: Annotated[dict[Id, Camera], Field(min_length=1)]
    models: Annotated[dict[Id, Model], Field(min_length=1)]
    decision: Decision = Decision()

    @property
    def base_topic(self) -> str:
        """`mqtt.base` filled in from `station`; an empty level is left out."""
        levels = self.station.model_dump(include={"enterprise", "site", "area", "line", "cell", "id"})
        filled = re.sub(r"\{(\w+)\}", lambda match: str(levels[match[1]]), self.mqtt.base)
        return "/".join(level for level in filled.split("/") if level)

    @property
    def client_id(self) -> str:
        """MQTT client id: unique in the plant because the base topic is."""
        return "inspectd-" + self.base_topic.replace("/", "-")

    @property
    def reply_prefixes(self) -> tuple[str, ...]:
        """Below these topics answers to commands may go, besides `{base}/rsp/`."""
        return tuple(f"{prefix.rstrip('/')}/" for prefix in self.mqtt.reply_prefixes)

    def models_of(self, camera_id: str) -> dict[str, Model]:
        """Give the models of a camera, in its own order."""
        return {name: self.models[name] for name in self.cameras[camera_id].models}
