"""Holds up the main thread when SIGUSR2 comes, as a call that blocks in the event loop would.

Python imports this by its name from PYTHONPATH. Other threads go on; the signal is sent to main alone.
"""

import os
import signal
import time


def _block(_number: int, _frame: object) -> None:
    until_s = time.monotonic() + float(os.environ["FAULT_BLOCK_S"])
    while (left_s := until_s - time.monotonic()) > 0:
        time.sleep(left_s)


signal.signal(signal.SIGUSR2, _block)
