"""`inspectd infer`: detections of pictures, without a daemon. One picture and one answer at a time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from inspectd.camera import Pixels
from inspectd.camera.files import read_picture
from inspectd.engine import Engine, ModelSpec
from inspectd.errors import DeviceError, EngineError, SourceError
from inspectd.records import Detection, ModelFacts

Save = Callable[[Path, Pixels, Sequence[Detection]], None]
"""Keeps a judged picture with all that every model found in it."""
SaveInput = Callable[[Path, Pixels, str], None]
"""Keeps a picture as the net of the model of this name gets it."""

EXIT_DONE = 0
EXIT_OUTSIDE = 69
"""A picture could not be read, or gave no answer: the others were done."""


def run_infer(
    pictures: Sequence[Path],
    specs: Sequence[ModelSpec],
    *,
    as_json: bool,
    out: TextIO,
    err: TextIO,
    make_engine: Callable[[ModelSpec], Engine],
    save: Save | None = None,
    save_input: SaveInput | None = None,
) -> int:
    """Run each picture through each model and write what was found; give the exit code.

    With `as_json` one document a line, per picture and model: `{image, widthPx, heightPx, model, detections}`. A
    picture that cannot be read, or that the model has no answer for, is told on `err` and the next one follows; it is
    not given to `save`, since it would look like one without a defect. Raises ModelRefused and DeviceError: there is
    no next one then; and what the two `save` raise.
    """
    is_whole = True
    engines: list[tuple[ModelSpec, Engine]] = []
    try:
        for spec in specs:
            engine = make_engine(spec)
            engines.append((spec, engine))
            facts = engine.open()
            if not as_json:
                out.write(_headline(facts))
        for path in pictures:
            try:
                pixels = read_picture(path)
                found: list[Detection] = []
                for spec, engine in engines:
                    if save_input is not None:
                        save_input(path, pixels, spec.name)
                    found += _answer(path, pixels, spec.name, engine, as_json=as_json, out=out)
                if save is not None:
                    save(path, pixels, found)
            except DeviceError:
                raise
            except SourceError as error:
                is_whole = False
                err.write(f"{error}\n")
            except EngineError as error:
                is_whole = False
                err.write(f"{path}: {error}\n")
    finally:
        for _, engine in engines:
            engine.close()
    return EXIT_DONE if is_whole else EXIT_OUTSIDE


def _answer(
    path: Path, pixels: Pixels, model: str, engine: Engine, *, as_json: bool, out: TextIO
) -> tuple[Detection, ...]:
    begin_s = time.monotonic()
    found = engine.infer(0, pixels, _nothing)
    duration_s = time.monotonic() - begin_s
    out.write(_line(path, pixels, model, found) if as_json else _table(path, pixels, model, found, duration_s))
    out.flush()
    return found


def _line(path: Path, pixels: Pixels, model: str, found: tuple[Detection, ...]) -> str:
    document = {
        "image": str(path),
        "widthPx": pixels.shape[1],
        "heightPx": pixels.shape[0],
        "model": model,
        "detections": [_document(number, detection) for number, detection in enumerate(found)],
    }
    return json.dumps(document, ensure_ascii=False) + "\n"


def _document(number: int, found: Detection) -> dict[str, Any]:
    """The contract's detection object, with all digits: models are compared by it."""
    return {
        "detectionId": number,
        "classId": found.class_id,
        "className": found.class_name,
        "confidence": found.confidence,
        "bbox": asdict(found.box),
        "model": found.model,
    }


def _headline(facts: ModelFacts) -> str:
    count = len(facts.classes)
    classes = f"{count} class{'' if count == 1 else 'es'}" if count else "classes without names"
    return (
        f"{facts.model}: {facts.layout}, {facts.input_width_px} x {facts.input_height_px} px, {classes}, "
        f"{facts.device} {facts.precision}, {facts.warmup_p95_s * 1000:.1f} ms at warm-up\n"
    )


def _table(path: Path, pixels: Pixels, model: str, found: tuple[Detection, ...], duration_s: float) -> str:
    height_px, width_px = pixels.shape[:2]
    lines = [f"{path}  {width_px} x {height_px} px  {model}  {len(found)} found  {duration_s * 1000:.1f} ms"]
    width = max((len(detection.class_name) for detection in found), default=0)
    for detection in found:
        box = detection.box
        lines.append(
            f"  {detection.class_name:<{width}}  {detection.confidence:6.3f}"
            f"  x {box.x:8.1f}  y {box.y:8.1f}  w {box.w:7.1f}  h {box.h:7.1f}"
        )
    return "\n".join(lines) + "\n"


def _nothing() -> None:
    """The picture is ours alone: no stamp to check."""
