"""An engine without a runtime, for tests of lanes and children: gives scripted answers, can fail and hang."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inspectd.engine import ModelSpec, Step
from inspectd.errors import EngineError
from inspectd.records import Detection, ModelFacts


@dataclass(frozen=True, slots=True)
class Hang:
    """The inference does not end before it is cancelled."""


Answer = tuple[Detection, ...] | EngineError | Hang


class FakeEngine:
    """Answers `script` in the order in which inferences begin, then nothing found for ever."""

    def __init__(self, spec: ModelSpec, script: Iterable[Answer] = ()) -> None:
        self._spec = spec
        self._script = iter(script)
        self._lock = threading.Lock()
        self.requests = spec.requests or 2
        self.on_step: Callable[[Step], None] = lambda _: None
        self._cancelled = [threading.Event() for _ in range(self.requests)]

    def open(self) -> ModelFacts:
        """Claim to be what the configuration asks for."""
        spec = self._spec
        return ModelFacts(
            model=spec.name,
            task=spec.task,
            device=spec.device,
            precision="f32",
            hash="0" * 64,
            classes=spec.classes or (),
            requests=len(self._cancelled),
            input_width_px=640,
            input_height_px=640,
            layout=spec.layout or "yolo",
            warmup_p95_s=0.001,
        )

    def infer(
        self, request: int, pixels: NDArray[np.uint8], on_letterboxed: Callable[[], None]
    ) -> tuple[Detection, ...]:
        """Give the next answer of the script; the pixels are only touched."""
        self._cancelled[request].clear()
        pixels.max(initial=0)
        on_letterboxed()
        with self._lock:
            answer = next(self._script, ())
        if isinstance(answer, Hang):
            self._cancelled[request].wait()
            raise EngineError(f"{self._spec.name}: cancelled")
        if isinstance(answer, EngineError):
            raise answer
        return answer

    def cancel(self, request: int) -> None:
        """Let a hanging inference go."""
        self._cancelled[request].set()

    def close(self) -> None:
        """Nothing to give back."""
