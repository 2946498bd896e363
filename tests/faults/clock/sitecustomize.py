"""For processes under libfaketime: what it breaks is left alone.

Its clock_nanosleep refuses (EINVAL) the absolute times of `time.sleep`; select's timeout is relative and of the same
clock. A step of the clock leaves waits of the inference runtime's threads hanging; the model children, which look at no
wall clock, are executed again without it. Python imports this by its name from PYTHONPATH.
"""

import os
import select
import sys
import time
from typing import SupportsIndex

_MODEL_CHILD = "-m inspectd.worker.child model "


def _sleep(seconds: float | SupportsIndex, /) -> None:
    select.select((), (), (), max(float(seconds), 0.0))


time.sleep = _sleep
if _MODEL_CHILD in " ".join(sys.orig_argv) and os.environ.pop("LD_PRELOAD", ""):
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - our own interpreter, the same words
