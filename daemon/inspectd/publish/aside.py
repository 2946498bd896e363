"""Runs a blocking call beside the event loop, in a thread that may be left behind when its time is over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


async def aside(work: Callable[[], None], undo: Callable[[], None], limit_s: float, name: str) -> None:
    """Wait at most `limit_s` for `work`; whatever it raises is raised here. Raises TimeoutError.

    If nobody waits any more when `work` is done, the thread calls `undo` and ends. This is not `asyncio.to_thread`: a
    name server that does not answer would hold a thread of the shared pool, and the end of the process with it.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    lock = threading.Lock()
    abandoned = False

    def report(fault: Exception | None) -> None:
        if done.done():
            undo()  # given up while this call was on its way to the loop
        elif fault is None:
            done.set_result(None)
        else:
            done.set_exception(fault)

    def thread() -> None:
        fault: Exception | None = None
        try:
            work()
        except Exception as error:
            fault = error
        with lock:
            if not abandoned:
                loop.call_soon_threadsafe(report, fault)
                return
        undo()

    threading.Thread(target=thread, name=name, daemon=True).start()
    try:
        async with asyncio.timeout(limit_s):
            await done
    finally:
        with lock:
            abandoned = True
