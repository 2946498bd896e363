"""Composition root of `inspectd infer`: from a configuration or a bare model file to engines, without a daemon."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inspectd.app import model_spec
from inspectd.config.load import load
from inspectd.engine import ModelSpec
from inspectd.engine.openvino import OpenVinoEngine
from inspectd.errors import UsageError
from inspectd.infer import run_infer


def infer_pictures(
    images: Sequence[Path],
    config: Path | None,
    model_path: Path | None,
    environment: Mapping[str, str],
    *,
    as_json: bool,
    chosen: Mapping[str, Any],
) -> int:
    """Detect on pictures and print; `chosen` overrides fields of the model specs. Returns the exit code.

    Raises UsageError, ConfigurationError, ModelRefused and DeviceError.
    """
    if (config is None) == (model_path is None):
        raise UsageError("infer: give either -c FILE or --model MODEL")
    threads = len(os.sched_getaffinity(0))
    if model_path is not None:
        specs = [ModelSpec(name=model_path.stem, path=model_path, threads=threads, requests=1)]
    else:
        configuration = load(Path(str(config)), env=environment).configuration
        specs = [
            dataclasses.replace(
                model_spec(name, configuration, threads=threads, fps_total=0.0, cache_dir=None), requests=1
            )
            for name in configuration.models
        ]
    specs = [dataclasses.replace(spec, **chosen) for spec in specs]
    return run_infer(images, specs, as_json=as_json, out=sys.stdout, err=sys.stderr, make_engine=OpenVinoEngine)
