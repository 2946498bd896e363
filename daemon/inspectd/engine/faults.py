"""What an exception of the inference runtime means to the caller: one table. Pure."""

from __future__ import annotations

from inspectd.errors import DeviceError, EngineError, InspectdError, OutOfMemory

FOREIGN = (RuntimeError, ValueError, TypeError, MemoryError)
"""What OpenVINO's binding raises; ValueError also where the text of an error is not UTF-8."""

_MEANINGS: tuple[tuple[str, type[EngineError]], ...] = (
    ("was canceled", EngineError),
    ("out of resources", DeviceError),
    ("out of memory", OutOfMemory),
    ("out of host memory", OutOfMemory),
    ("out of device memory", OutOfMemory),
    ("bad alloc", OutOfMemory),
    ("memory object allocation failure", OutOfMemory),
    ("mem object allocation failure", OutOfMemory),
    ("device lost", DeviceError),
    ("device removed", DeviceError),
    ("clwaitforevents", DeviceError),
    ("clfinish", DeviceError),
    ("clflush", DeviceError),
    ("not registered in the openvino runtime", DeviceError),
    ("cannot load library", DeviceError),
    ("no available device", DeviceError),
)
"""Words in the message (lower case, `_` = space) → what the caller may do. OpenVINO gives no codes; the first that
occurs counts."""
_TEXT_MAX = 400


def meaning(name: str, doing: str, error: BaseException, otherwise: type[InspectdError]) -> InspectdError:
    """Make our error of the runtime's; its places in the C++ source are left out."""
    words = "out of memory" if isinstance(error, MemoryError) else str(error).lower().replace("_", " ")
    kind = next((kind for mark, kind in _MEANINGS if mark in words), otherwise)
    lines = (line.strip() for line in str(error).splitlines() if not line.startswith("Exception from"))
    text = " ".join(line.removeprefix("Caught exception: ") for line in lines if line)
    return kind(f"{name}: {doing}: {text[:_TEXT_MAX] or type(error).__name__}")
