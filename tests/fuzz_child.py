"""Opens model files one after the other and says a line about each; run as a program, since native code may crash.

Prints `PATH<TAB>begin` before and `PATH<TAB>ok | refused | device | WRONG …` after each.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import numpy as np

from inspectd.engine import ModelSpec
from inspectd.engine.openvino import OpenVinoEngine
from inspectd.errors import DeviceError, EngineError, ModelRefused


def verdict(path: Path) -> str:
    """Open the file and run one picture through it."""
    engine = OpenVinoEngine(ModelSpec("fuzzed", path, threads=1, precision="f32", requests=1))
    try:
        engine.open()
        engine.infer(0, np.full((50, 70, 3), 90, np.uint8), lambda: None)
    except ModelRefused as error:
        text = str(error)
        return "refused" if text.startswith("fuzzed: ") and len(text) > 30 else f"WRONG unclear: {text}"
    except DeviceError:
        return "device"
    except EngineError:
        return "ok"  # an error on one picture is an answer
    except Exception as error:
        return f"WRONG {type(error).__name__}: {error}"
    finally:
        engine.close()
    return "ok"


def main() -> None:
    """Do the files named on the command line."""
    logging.disable()
    for name in sys.argv[1:]:
        print(name, "begin", sep="\t", flush=True)
        print(name, verdict(Path(name)).replace("\n", " "), sep="\t", flush=True)


if __name__ == "__main__":
    main()
