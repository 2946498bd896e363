"""What is asked of a device, and which devices can run a model. Imports no runtime: it is handed one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from inspectd.engine import ModelSpec
from inspectd.engine.description import DeviceAnswer
from inspectd.engine.faults import FOREIGN, meaning
from inspectd.errors import DeviceError


def settings_for(spec: ModelSpec, known: Collection[str]) -> dict[str, Any]:
    """What the device knows of what we want. Threads are not pinned: several children would share one core."""
    wanted: dict[str, Any] = {
        "PERFORMANCE_HINT": spec.hint.upper(),
        "INFERENCE_NUM_THREADS": spec.threads,
        "ENABLE_CPU_PINNING": False,
    }
    if spec.requests is not None:
        wanted["PERFORMANCE_HINT_NUM_REQUESTS"] = at_most(spec.requests, spec.requests_most)
    if spec.precision != "auto":
        wanted["INFERENCE_PRECISION_HINT"] = spec.precision
    return {key: value for key, value in wanted.items() if key in known}


def at_most(requests: int, most: int | None) -> int:
    """Give the requests that a child really gets."""
    return requests if most is None else min(requests, most)


def full_device_name(core: Any, device: str) -> str:
    """What the maker calls it; empty where the runtime does not tell (AUTO)."""
    try:
        return str(core.get_property(device, "FULL_DEVICE_NAME"))
    except FOREIGN:
        return ""


def devices_for(name: str, core: Any, model: Any) -> tuple[DeviceAnswer, ...]:
    """Ask each device of this PC: it can run the model when it knows every operation in it. Nothing is compiled."""
    operations = {node.get_friendly_name() for node in model.get_ops()}
    answers = []
    for device in core.available_devices:
        reason = ""
        try:
            missing = operations - set(core.query_model(model, device))
            if missing:
                reason = f"{len(missing)} operations are unknown to it, such as {min(missing)}"
        except FOREIGN as error:
            reason = str(meaning(name, f"asking {device}", error, DeviceError))
        answers.append(DeviceAnswer(device, full_device_name(core, device), not reason, reason))
    return tuple(answers)
