"""Makes the paths of a configuration absolute, and finds where state is kept. Pure: the environment is passed in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inspectd.config.schema import Camera, Configuration, FilesSource, Mqtt, VideoSource


def storage_path(configuration: Configuration, base: Path, env: Mapping[str, str]) -> Path | None:
    """Give `storage.path`, else systemd's StateDirectory, else XDG state. None: `env` tells none of them."""
    if configuration.storage.path is not None:
        return base / configuration.storage.path
    if given := env.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0])  # systemd divides several by colons; the first is ours
    state = env.get("XDG_STATE_HOME") or (f"{env['HOME']}/.local/state" if env.get("HOME") else "")
    return Path(state) / "inspectd" if state else None


def with_absolute_paths(configuration: Configuration, base: Path, env: Mapping[str, str]) -> Configuration:
    """Give the configuration with every path made absolute and `storage.path` filled in."""
    cameras = {name: _camera_with_absolute_path(camera, base) for name, camera in configuration.cameras.items()}
    models = {
        name: model.model_copy(update={"path": _absolute(base, model.path)})
        for name, model in configuration.models.items()
    }
    changes: dict[str, Any] = {
        "storage": configuration.storage.model_copy(update={"path": storage_path(configuration, base, env)}),
        "cameras": cameras,
        "models": models,
        "mqtt": _mqtt_with_absolute_paths(configuration.mqtt, base),
    }
    return configuration.model_copy(update=changes)


def _mqtt_with_absolute_paths(mqtt: Mqtt, base: Path) -> Mqtt:
    changes: dict[str, Any] = {}
    if mqtt.password_file is not None:
        changes["password_file"] = _absolute(base, mqtt.password_file)
    if mqtt.tls is not None:
        files = {name: value for name, value in mqtt.tls if value is not None}
        changes["tls"] = mqtt.tls.model_copy(update={name: _absolute(base, value) for name, value in files.items()})
    return mqtt.model_copy(update=changes)


def _camera_with_absolute_path(camera: Camera, base: Path) -> Camera:
    if not isinstance(camera.source, FilesSource | VideoSource):
        return camera
    source = camera.source.model_copy(update={"path": _absolute(base, camera.source.path)})
    return camera.model_copy(update={"source": source})


def _absolute(base: Path, path: Path) -> Path:
    return Path(os.path.normpath(base / path))
