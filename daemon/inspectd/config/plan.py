"""What a configuration will take: frame slots and MB, processes, threads, expected load. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from inspectd.config.schema import Camera, Configuration, Model

ASSUMED_REQUESTS = 2
"""What `requests: auto` is at least; the true number is measured when the model warms up."""
_SPARE_SLOTS = 2
"""One that the camera writes, one that was just answered."""
_CHANNELS = 3


@dataclass(frozen=True, slots=True)
class CameraPlan:
    """What one camera takes."""

    camera: str
    slots: int
    size_px: tuple[int, int] | None
    """Width, height; None: not known before the first picture."""

    @property
    def pool_mb(self) -> float | None:
        """Memory for its frames."""
        return None if self.size_px is None else self.slots * math.prod(self.size_px) * _CHANNELS / 2**20


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """What one model takes."""

    model: str
    device: str
    """The preferred one, and those to which it falls back."""
    requests: int | None
    """None: measured at warm-up."""
    threads: int
    rates: tuple[float | None, ...]
    """Pictures a second of each camera that feeds it; None: as fast as it goes."""
    inference_ms: float | None

    @property
    def load_text(self) -> str:
        """As `4 × 30 × 7 ms = 84 % of one core`; a rate is in pictures per second."""
        known = [rate for rate in self.rates if rate is not None]
        if not self.rates:
            return "none: no camera uses it"
        if len(known) < len(self.rates):
            return "as much as it can take (`pace: lossless` waits for it)"
        groups = [f"{known.count(rate)} × {rate:g}" for rate in dict.fromkeys(known)]
        rate_text = groups[0] if len(groups) == 1 else f"({' + '.join(groups)})"
        if self.inference_ms is None:
            return f"{rate_text} pictures/s × the ms of one, measured at warm-up"
        return f"{rate_text} × {self.inference_ms:g} ms = {sum(known) * self.inference_ms / 10:.0f} % of one core"


@dataclass(frozen=True, slots=True)
class Plan:
    """What the whole configuration takes."""

    cameras: tuple[CameraPlan, ...]
    models: tuple[ModelPlan, ...]
    cores: int

    @property
    def processes(self) -> int:
        """Main, and a child per camera and per model."""
        return 1 + len(self.cameras) + len(self.models)

    def text(self) -> str:
        """Give the plan for a person."""
        known_mb = [camera.pool_mb for camera in self.cameras if camera.pool_mb is not None]
        at_least = "at least " if len(known_mb) < len(self.cameras) else ""
        threads = sum(model.threads for model in self.models)
        together = (
            f"{self.processes} processes, {at_least}{sum(known_mb):.0f} MB for frames, {threads} inference "
            f"{'thread' if threads == 1 else 'threads'} on {self.cores} {'core' if self.cores == 1 else 'cores'}"
        )
        cameras = (f"  camera {camera.camera}: {_camera_text(camera)}" for camera in self.cameras)
        models = (f"  model {model.model}: {_model_text(model)}" for model in self.models)
        return "\n".join(["plan", *cameras, *models, f"  together: {together}"])


def _camera_text(plan: CameraPlan) -> str:
    if plan.size_px is None or plan.pool_mb is None:
        return f"{plan.slots} slots, size not known before the first picture"
    width_px, height_px = plan.size_px
    return f"{plan.slots} slots × {width_px} × {height_px} × {_CHANNELS} = {plan.pool_mb:.0f} MB"


def _model_text(plan: ModelPlan) -> str:
    requests = "measured at warm-up" if plan.requests is None else str(plan.requests)
    return f"{plan.device}; requests {requests}; threads {plan.threads}; load {plan.load_text}"


def slots(camera: Camera, models: Sequence[Model], requests: Sequence[int]) -> int:
    """How many frame slots a camera gets: `slots`, or what is needed. `requests` in flight, one for each model."""
    return slots_needed(camera, models, requests) if camera.slots == "auto" else camera.slots


def slots_needed(camera: Camera, models: Sequence[Model], requests: Sequence[int]) -> int:
    """min(queue_depth, ceil(fps × deadline)) + requests + 2, with the deepest queue and the sum of the requests.

    Lossless without a rate: the queue alone counts.
    """
    waiting = max((model.queue_depth for model in models), default=1)
    if camera.fps is not None:
        # rounded: 10 × 0.3 is a little more than 3 in floating point
        waiting = min(waiting, math.ceil(round(camera.fps * camera.deadline_s, 6)))
    return waiting + sum(requests) + _SPARE_SLOTS


def threads_per_model(configuration: Configuration, cores: int) -> dict[str, int]:
    """Divide the cores among models whose `threads` is auto; one that prefers another device takes no share of them.

    Such a model gets what a CPU model would, for the time that it has to fall back.
    """
    models = configuration.models
    fixed = {name: model.threads for name, model in models.items() if model.threads != "auto"}
    pinned = {name: len(model.cpus) for name, model in models.items() if model.cpus and name not in fixed}
    given = {**fixed, **pinned}
    sharing = [name for name, model in models.items() if model.devices[0] == "CPU" and name not in given]
    left = cores - sum(count for name, count in given.items() if models[name].devices[0] == "CPU")
    share = max(1, left // max(1, len(sharing)))
    extra = max(0, left - share * len(sharing)) if sharing else 0
    more = dict.fromkeys(sharing[:extra], 1)
    return {name: given.get(name, share + more.get(name, 0)) for name in models}


def plan(
    configuration: Configuration,
    sizes: Mapping[str, tuple[int, int] | None],
    *,
    cores: int,
    inference_ms: Mapping[str, float] | None = None,
    own_fps: Mapping[str, float] | None = None,
) -> Plan:
    """Work out the plan.

    `sizes`: width and height in px by camera; `inference_ms` by model, where it is known; `own_fps`: the rate of a
    camera that keeps its own, where it is known.
    """
    threads = threads_per_model(configuration, cores)
    cameras = [
        CameraPlan(
            name,
            slots(camera, _models_of(configuration, name), _requests(_models_of(configuration, name))),
            sizes.get(name),
        )
        for name, camera in configuration.cameras.items()
    ]
    models = [
        ModelPlan(
            name,
            ", else ".join(model.devices),
            None if model.requests == "auto" else model.requests,
            threads[name],
            tuple(
                (own_fps or {}).get(camera_id) or camera.expected_fps
                for camera_id, camera in configuration.cameras.items()
                if name in camera.models
            ),
            (inference_ms or {}).get(name),
        )
        for name, model in configuration.models.items()
    ]
    return Plan(tuple(cameras), tuple(models), cores)


def _models_of(configuration: Configuration, camera_id: str) -> list[Model]:
    return list(configuration.models_of(camera_id).values())


def _requests(models: Iterable[Model]) -> list[int]:
    return [ASSUMED_REQUESTS if model.requests == "auto" else model.requests for model in models]
