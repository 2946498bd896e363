"""For processes under libfaketime, whose clock_nanosleep refuses (EINVAL) the absolute times of `time.sleep`.

Python imports this by its name from PYTHONPATH; select's timeout is relative and of the same clock.
"""

import select
import time
from typing import SupportsIndex


def _sleep(seconds: float | SupportsIndex, /) -> None:
    select.select((), (), (), max(float(seconds), 0.0))


time.sleep = _sleep
