"""Composition root of `inspectd model`: what the daemon makes of a model file, without a daemon."""

from __future__ import annotations

import json
import logging
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from inspectd.camera import Pixels
from inspectd.camera.files import read_picture
from inspectd.config.load import load
from inspectd.config.suggest import or_choice
from inspectd.decode import DECODERS
from inspectd.decode.layouts import LayoutRefused
from inspectd.engine import ModelSpec
from inspectd.engine.description import ModelDescription
from inspectd.engine.openvino import OpenVinoEngine
from inspectd.engine.slot import Canvas
from inspectd.errors import DeviceError, EngineError, ModelRefused, UsageError
from inspectd.model_report import Inspected, document, refusal_document, report
from inspectd.model_trial import WAYS, Score, Trial, Trials, Way, score
from inspectd.model_yaml import model_yaml
from inspectd.slices import model_spec

EXIT_DONE = 0
EXIT_OUTSIDE = 69
_WIDTH = 100
"""Columns where there is no terminal."""


def inspect_model(
    model: str,
    config: Path | None,
    environment: Mapping[str, str],
    *,
    images: Sequence[Path] = (),
    chosen: Mapping[str, Any],
    as_json: bool,
    out: TextIO,
    err: TextIO,
) -> int:
    """Show a model file, or model `model` of a configuration; give the exit code.

    It is run as the daemon would, once, so that nothing is shown here that would be refused there. `chosen` overrides
    fields of the spec. Raises UsageError, ConfigurationError, and SourceError where a picture cannot be read.
    """
    spec = replace(_spec(model, config, environment), **chosen)
    pictures = [(str(path), read_picture(path)) for path in images]
    try:
        seen = _inspected(spec, pictures)
    except (ModelRefused, DeviceError) as error:
        candidates = error.candidates if isinstance(error, LayoutRefused) else ()
        text = str(error)
        if isinstance(error, DeviceError) and spec.device != "CPU":
            text += "; install what the device needs, or give another --device (CPU is always there)"
        if as_json:
            _write_document(out, refusal_document(spec.name, str(spec.path), text, candidates))
        else:
            err.write(f"{text}\n{_what_to_try(spec, model, config, candidates)}")
        return EXIT_OUTSIDE
    if as_json:
        _write_document(out, document(seen))
    else:
        console = Console(file=out, highlight=False)
        if not console.is_terminal:
            console = Console(file=out, highlight=False, width=_WIDTH)
        console.print(report(seen))
        others = "" if config is None else "; the model's other keys stay as they are"
        console.print(f"\n[bold]to paste[/bold]  with all that was assumed: correct what is wrong{others}")
        out.write(seen.yaml)
    return EXIT_DONE


def _spec(model: str, config: Path | None, environment: Mapping[str, str]) -> ModelSpec:
    threads = len(os.sched_getaffinity(0))
    if config is None:
        return ModelSpec(name=Path(model).stem, path=Path(model), threads=threads, requests=1)
    configuration = load(config, env=environment).configuration
    if model not in configuration.models:
        raise UsageError(f"{config} has no model {model!r}{or_choice(model, configuration.models)}")
    spec = model_spec(model, configuration, threads=threads, fps_total=0.0, cache_dir=None)
    return replace(spec, requests=1)


def _inspected(spec: ModelSpec, pictures: Sequence[tuple[str, Pixels]]) -> Inspected:
    """Raises ModelRefused and DeviceError."""
    engine = OpenVinoEngine(spec)
    with _warnings() as said:
        try:
            facts = engine.open()
            described = engine.describe()
            tried = _tried(engine, described, pictures) if pictures else None
        finally:
            engine.close()
    path = os.path.abspath(spec.path)  # noqa: PTH100  not resolve(): a link to the file is meant where it lies
    yaml = model_yaml(described, path=path, device=spec.device, precision=spec.precision)
    notes = {f"{spec.name}: {note}" for note in described.notes}
    warnings = tuple(text.removeprefix(f"{spec.name}: ") for text in said if text not in notes)
    return Inspected(described, facts, yaml, warnings, tried)


def _tried(engine: OpenVinoEngine, described: ModelDescription, pictures: Sequence[tuple[str, Pixels]]) -> Trials:
    prepared = described.preprocessing
    color, resize, pad = prepared.color, prepared.resize, prepared.pad.value
    canvases = {
        way: Canvas(described.name, described.input_width_px, described.input_height_px, way.resize, pad)
        for way in WAYS
    }

    def confidences(way: Way, pixels: Pixels) -> Score:
        """A picture of the input's size goes in as it is; with its channels exchanged it is of the other colour."""
        canvases[way].fill(pixels)
        picture = canvases[way].pixels[0]
        found = engine.infer(0, picture if way.color == color.value else picture[:, :, ::-1].copy(), _nothing)
        return score([detection.confidence for detection in found])

    trials = tuple(_trial(way, [pixels for _, pixels in pictures], confidences) for way in WAYS)
    return Trials(tuple(name for name, _ in pictures), described.confidence.value, color, resize, trials)


def _trial(way: Way, pictures: Sequence[Pixels], score_of: Callable[[Way, Pixels], Score]) -> Trial:
    try:
        return Trial(way, tuple(score_of(way, pixels) for pixels in pictures))
    except DeviceError:
        raise
    except EngineError as error:
        return Trial(way, (), str(error))


def _what_to_try(spec: ModelSpec, model: str, config: Path | None, candidates: Sequence[str]) -> str:
    """Where several layouts can be meant: how to see what each makes of it."""
    readable = [layout for layout in candidates if layout in DECODERS]
    if len(readable) < 2 or spec.layout is not None:
        return ""
    where = f" -c {shlex.quote(str(config))}" if config else ""
    lines = [f"  inspectd model {shlex.quote(model)}{where} --layout {layout} --try PICTURE" for layout in readable]
    return "\n".join(["see what each makes of a picture:", *lines]) + "\n"


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect what the engine logs, instead of its going to the terminal in the middle of a table."""
    said: list[str] = []
    handler = _Collector(said)
    logger = logging.getLogger("inspectd")
    was_propagating, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.propagate = was_propagating


class _Collector(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        """Keep each text once."""
        if record.getMessage() not in self._said:
            self._said.append(record.getMessage())


def _write_document(out: TextIO, values: Mapping[str, Any]) -> None:
    out.write(json.dumps(values, ensure_ascii=False, indent=2) + "\n")


def _nothing() -> None:
    """The picture is ours alone: no stamp to check."""
