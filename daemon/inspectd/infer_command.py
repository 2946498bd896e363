"""Composition root of `inspectd infer`: from a configuration or a bare model file to engines, without a daemon."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inspectd.config.load import load
from inspectd.engine import ModelSpec
from inspectd.engine.openvino import OpenVinoEngine
from inspectd.engine.slot import Canvas
from inspectd.errors import UsageError
from inspectd.infer import run_infer
from inspectd.infer_saving import annotated_into, net_inputs_into
from inspectd.slices import model_spec


def infer_pictures(
    images: Sequence[Path],
    config: Path | None,
    model_path: Path | None,
    environment: Mapping[str, str],
    *,
    as_json: bool,
    chosen: Mapping[str, Any],
    save: Path | None = None,
    save_input: Path | None = None,
) -> int:
    """Detect on pictures and print; `chosen` overrides fields of the model specs. Returns the exit code.

    `save` and `save_input`: folders for annotated pictures, and for pictures as the net gets them. Raises UsageError,
    ConfigurationError, OutsideError (ModelRefused too) and DeviceError.
    """
    if (config is None) == (model_path is None):
        raise UsageError("infer: give either -c FILE or --model MODEL")
    if save is not None and save_input is not None and save.resolve() == save_input.resolve():
        raise UsageError(f"infer: --save and --save-input are both {save}: give two folders")
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
    return run_infer(
        images,
        specs,
        as_json=as_json,
        out=sys.stdout,
        err=sys.stderr,
        make_engine=OpenVinoEngine,
        save=None if save is None else annotated_into(save, images),
        save_input=None if save_input is None else net_inputs_into(save_input, images, _canvases(specs)),
    )


def _canvases(specs: Sequence[ModelSpec]) -> dict[str, Canvas]:
    """Give each model's empty input; its file is read once more for it, not compiled. Raises ModelRefused."""
    described = [OpenVinoEngine(spec).describe() for spec in specs]
    return {
        model.name: Canvas(
            model.name,
            model.input_width_px,
            model.input_height_px,
            model.preprocessing.resize.value,
            model.preprocessing.pad.value,
        )
        for model in described
    }
