"""Engines: what runs one model in its child, and the values that cross to it. Imports no runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from inspectd.records import Detection, ModelFacts

if TYPE_CHECKING:  # main hands specs on and touches no pixel: it does without NumPy, which the decoders load
    import numpy as np
    from numpy.typing import NDArray

    from inspectd.decode.preparation import Color, Resize, Triple

DEFAULT_CONFIDENCE = 0.10
DEFAULT_IOU = 0.5


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model as its child is to run it: configuration with every `auto` but `requests` worked out."""

    name: str
    path: Path
    task: str = "detect"
    layout: str | None = None
    """None: recognised from the file."""
    classes: tuple[str, ...] | None = None
    """None: from the file."""
    color: Color | None = None
    scale: float | None = None
    """The net gets (x / scale - mean) / std, with x in 0..255; None where the file tells."""
    mean: Triple | None = None
    std: Triple | None = None
    resize: Resize | None = None
    """None, like every key of the input: from the file, else as the layout's maker does it."""
    pad: int | None = None
    device: str = "CPU"
    threads: int = 1
    cpus: tuple[int, ...] | None = None
    """Set by the child (`sched_setaffinity`) before the runtime is imported; the engine does not look at it."""
    precision: Literal["auto", "f32", "f16", "bf16"] = "auto"
    hint: Literal["latency", "throughput"] = "throughput"
    requests: int | None = None
    """None: worked out from `fps_total` at warm-up."""
    requests_most: int | None = None
    """Never more: the device has no memory for them, or another child runs as many."""
    confidence: float | None = None
    """None: 0.10. What the file gives is only told: it is its maker's threshold for a verdict, not for a record."""
    iou: float | None = None
    """None: the file's, else 0.5."""
    fps_total: float = 0.0
    """Pictures a second from all cameras that feed the model."""
    sha256: str | None = None
    cache_dir: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """Give plain values for the channel."""
        document = asdict(self)
        document["path"] = str(self.path)
        document["cache_dir"] = None if self.cache_dir is None else str(self.cache_dir)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_json` gave, also after a trip through JSON text (lists for tuples)."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in document.items()}
        cache_dir = values["cache_dir"]
        values |= {"path": Path(values["path"]), "cache_dir": None if cache_dir is None else Path(cache_dir)}
        return cls(**values)


Step = Literal["compiling", "warmingUp"]


class Engine(Protocol):
    """One compiled model with a fixed number of requests. Each request is used by one thread at a time."""

    requests: int
    """So many; while `open` runs, as many as it has come to try."""
    on_step: Callable[[Step], None]
    """Called by `open` when it begins something that takes its time."""

    def open(self) -> ModelFacts:
        """Load, compile, check, warm up, and decide the number of requests.

        Raises ModelRefused (found, expected, cure; DeviceRefused if another device may do) or DeviceError (OutOfMemory
        with the requests that were tried).
        """

    def infer(
        self, request: int, pixels: NDArray[np.uint8], on_letterboxed: Callable[[], None]
    ) -> tuple[Detection, ...]:
        """Run one picture (H × W × 3 BGR, may lie in shared memory) through request `request`; blocks.

        `on_letterboxed` is called when the pixels have been copied out and are not looked at again; what it raises
        (StaleSlot) goes through, and nothing is inferred. Returns the detections best first. Raises EngineError
        (this attempt), OutputError (this frame) or DeviceError (this child).
        """

    def cancel(self, request: int) -> None:
        """Make the running `infer` of that request raise EngineError as soon as the runtime gives it back.

        Called from another thread. Between two pictures it does nothing.
        """

    def close(self) -> None:
        """Give the device back. No `infer` may be running."""
