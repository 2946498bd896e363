"""Faults 1–14, 20–22 and 43: a model's child, its device, its graph, the slots that it reads."""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import Any

from tests.faults import net
from tests.faults.fault import Fault
from tests.faults.inject.orders import Orders
from tests.faults.netstand import (
    CODE,
    DEFECTS,
    DEVICES,
    FEW_SLOTS,
    INSPECTED,
    LIMIT_S,
    OPTIONAL,
    PLAIN,
    REPAIR_S,
    RSS_LIMIT,
    Run,
    codes_above,
    lost,
    obeyed,
    pause,
    proved,
    replaced,
    results,
    words,
)
from tests.faults.slots import restamp_newest
from tests.faults.stand import TOP, Stand

FAULTY_S = 2.5
"""How long a fault "for good" goes on."""
WARM_UP_S = 10.0
"""A child that hangs at its warm-up is found later than one that hangs at work: its first inference may be slow."""
MODEL_ERROR, MODEL_OUTPUT, NO_FREE_SLOT = 500, 503, 304
OUT_OF_RESOURCES = "[GPU] clEnqueueNDRangeKernel, error code: -5 CL_OUT_OF_RESOURCES"
NO_DEVICE = 'Device with "CPU" name is not registered in the OpenVINO Runtime'


def slow(stand: Stand, orders: Orders) -> str:
    """More work than time: frames are given up with a code, the child is not killed for it."""
    above, pid = stand.line.ledger_last(TOP), stand.child(f"model {DEFECTS}")
    orders.give(DEFECTS, "slow", seconds=0.25)
    pause(stand, 4.0)
    orders.withdraw(DEFECTS)
    stand.mark()
    codes = codes_above(stand, above)
    assert codes.total() - sum(codes[code] for code in INSPECTED) > 0, "nothing was too much"
    assert stand.child(f"model {DEFECTS}") == pid, "a slow child was killed"
    return f"given up: {words(codes)}; same process"


def replaced_after(do: str, text: str = "") -> Run:
    """Something happens once that costs the child its life."""

    def run(stand: Stand, orders: Orders) -> str:
        above, pid = stand.line.ledger_last(TOP), stand.child(f"model {DEFECTS}")
        orders.give(DEFECTS, do, times=1, text=text)
        obeyed(stand, orders)
        stand.mark()
        replaced(stand, pid)
        stand.until_inspecting(LIMIT_S * stand.slowness)
        return f"new process; not inspected: {words(codes_above(stand, above))}"

    return run


def signalled(number: signal.Signals) -> Run:
    """A signal from outside."""

    def run(stand: Stand, _orders: Orders) -> str:
        above, pid = stand.line.ledger_last(TOP), stand.child(f"model {DEFECTS}")
        os.kill(pid, number)
        stand.mark()
        replaced(stand, pid)
        stand.until_inspecting(LIMIT_S * stand.slowness)
        return f"new process; not inspected: {words(codes_above(stand, above))}"

    return run


def for_good(do: str, times: int, text: str = "") -> Run:
    """Each inference fails, that of each new child's warm-up too, until the cause is gone: at least so many."""

    def run(stand: Stand, orders: Orders) -> str:
        above = stand.line.ledger_last(TOP)
        orders.give(DEFECTS, do, text=text)
        obeyed(stand, orders)
        begun = stand.line.ledger_last(TOP) + 1  # the frame before may have been in work
        obeyed(stand, orders, times)
        pause(stand, FAULTY_S)
        ended = stand.line.ledger_last(TOP)
        orders.withdraw(DEFECTS)
        stand.mark()
        stand.until_inspecting(REPAIR_S + LIMIT_S * stand.slowness)
        inspected = [
            result["acquisition"]["frameId"]
            for result in results(stand, begun)
            if result["resultEvaluationCode"] in INSPECTED and result["acquisition"]["frameId"] < ended - 10
        ]
        assert not inspected, f"inspected without a sound model: {inspected}"
        return f"obeyed {orders.obeyed(DEFECTS)} times; not inspected: {words(codes_above(stand, above))}"

    return run


def once(do: str, code: int | None, times: int = 1, text: str = "") -> Run:
    """An answer that cannot be used: that frame has its code, or another attempt saves it; nothing else happens."""

    def run(stand: Stand, orders: Orders) -> str:
        above, pid = stand.line.ledger_last(TOP), stand.child(f"model {DEFECTS}")
        orders.give(DEFECTS, do, times=times, text=text)
        obeyed(stand, orders, times)
        stand.mark()
        stand.until_inspecting(LIMIT_S * stand.slowness)
        codes = codes_above(stand, above)
        assert lost(stand, codes) == (Counter[int]() if code is None else Counter({code: times})), codes
        assert stand.child(f"model {DEFECTS}") == pid, "a sound child was replaced"
        attempts = max(run["attempts"] for result in results(stand, above) for run in result["models"])
        return f"not inspected: {words(codes)}; at most {attempts} attempts; same process"

    return run


def leak(stand: Stand, orders: Orders) -> str:
    """Replaced between frames, by one that is warm: no frame is lost."""
    above, pid = stand.line.ledger_last(TOP), stand.child(f"model {DEFECTS}")
    orders.give(DEFECTS, "leak")
    obeyed(stand, orders)
    stand.until(lambda: stand.line.children().get(f"model {DEFECTS}", pid) != pid, "recycled", LIMIT_S * stand.slowness)
    orders.withdraw(DEFECTS)
    stand.mark()
    stand.until_inspecting(LIMIT_S * stand.slowness)
    codes = codes_above(stand, above)
    assert not lost(stand, codes), f"frames were lost: {words(codes)}"
    return f"recycled; not inspected: {words(codes)}"


def no_device_for_a_while(stand: Stand, orders: Orders) -> str:
    """Compiling is refused, as for a device that is gone; the alarm stands until it works again."""
    above = stand.line.ledger_last(TOP)
    orders.give(DEFECTS, "refuse", text=NO_DEVICE)
    os.kill(stand.child(f"model {DEFECTS}"), signal.SIGKILL)
    obeyed(stand, orders)
    stand.alarm(f"ModelUnavailable/{DEFECTS}")
    orders.withdraw(DEFECTS)
    stand.mark()
    stand.alarm_over(f"ModelUnavailable/{DEFECTS}")
    return f"alarm ModelUnavailable, raised and cleared; not inspected: {words(codes_above(stand, above))}"


def first_device_absent(stand: Stand, orders: Orders) -> str:
    """The next of `devices` serves, and it is told; so it does after the child was killed."""
    assert orders.obeyed(DEFECTS) == 0
    stand.alarm(f"FallbackDevice/{DEFECTS}")
    pid = stand.child(f"model {DEFECTS}")
    os.kill(pid, signal.SIGKILL)
    stand.mark()
    replaced(stand, pid)
    stand.until_inspecting(LIMIT_S * stand.slowness)
    stand.listener.wait_for("state", lambda states: states[-1]["degraded"])
    devices = {run["device"] for result in results(stand, 0) for run in result["models"] if run["outcome"] == "done"}
    assert devices == {"CPU"}, devices
    return "runs on CPU: alarm FallbackDevice, degraded; the same after a kill"


def pool_exhausted(stand: Stand, orders: Orders) -> str:
    """Every slot is in somebody's hands: the camera goes on, and each frame has its number and its code."""
    above = stand.line.ledger_last(TOP)
    orders.give(DEFECTS, "slow", seconds=0.3)
    limit_s = LIMIT_S * stand.slowness
    stand.until(lambda: codes_above(stand, above)[NO_FREE_SLOT] >= 3, "3 frames without a slot", limit_s)
    orders.withdraw(DEFECTS)
    stand.mark()
    return f"not inspected: {words(codes_above(stand, above))}"


def optional_dead(stand: Stand, orders: Orders) -> str:
    """The required model's frames are decided as if it were not there, each in time."""
    above = stand.line.ledger_last(TOP)
    orders.give(CODE, "abort")
    obeyed(stand, orders, times=2, model=CODE)
    pause(stand, FAULTY_S)
    stand.alarm(f"ModelUnavailable/{CODE}")
    orders.withdraw(CODE)
    stand.mark()
    stand.alarm_over(f"ModelUnavailable/{CODE}")
    codes, inspections = codes_above(stand, above), results(stand, above)
    assert not lost(stand, codes), f"frames were lost: {words(codes)}"
    outcomes = Counter(run["outcome"] for result in inspections for run in result["models"] if run["model"] == CODE)
    assert outcomes.total() > outcomes["done"], outcomes
    slowest_ms = max(result["latencyMs"] for result in inspections)
    return f"every frame decided, the slowest in {slowest_ms:.0f} ms; {CODE}: {_outcomes(outcomes)}"


def both_killed(stand: Stand, _orders: Orders) -> str:
    """Both models of one camera."""
    above = stand.line.ledger_last(TOP)
    pids = {model: stand.child(f"model {model}") for model in (DEFECTS, CODE)}
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    stand.mark()
    for model, pid in pids.items():
        replaced(stand, pid, model)
    stand.until_inspecting(LIMIT_S * stand.slowness)
    return f"two new processes; not inspected: {words(codes_above(stand, above))}"


def stamp_changes(stand: Stand, orders: Orders) -> str:
    """What was read under one stamp and ends under another is an error, whatever the net made of it."""
    above = stand.line.ledger_last(TOP)
    orders.give(DEFECTS, "letterbox", times=1, seconds=0.3)
    obeyed(stand, orders)
    frame = restamp_newest(stand.pid, TOP, net.SIDE_PX, net.SIDE_PX)
    stand.mark()
    assert frame > above
    stand.until_inspecting(LIMIT_S * stand.slowness)
    [result] = [r for r in results(stand, above) if r["acquisition"]["frameId"] == frame]
    assert (result["resultEvaluationCode"], result["resultState"]) == (MODEL_ERROR, 4), result
    assert "carries frame" in result["resultEvaluationDetails"], result
    return f"not inspected: {words(codes_above(stand, above))}: the slot carries another stamp"


def _outcomes(outcomes: Counter[str]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())


def _fault(number: int, title: str, injected: str, run: Run, **options: Any) -> Fault:
    return Fault(number, title, injected, proved(run), **{"budget_s": REPAIR_S, "setup": PLAIN, **options})


_OPERATION = "an operation in the graph"
_HANGS, _RAISES = f"{_OPERATION} never returns", f"{_OPERATION} raises"
_LOCKS = f"{_OPERATION} holds Python's lock and never returns"
_SHAPED = "InferRequest.get_output_tensor gives [1, 8, 5]"
_REFUSED = "compile_model refuses, and the child is killed"
_STAMPED = "the memfd is written through /proc while cv2.resize waits"
_SLOW: dict[str, Any] = {"is_slow": True}
FAULTS: tuple[Fault, ...] = (
    _fault(1, "inference far slower for 4 s", f"{_OPERATION} sleeps 0.25 s", slow),
    _fault(2, "inference hangs once", _HANGS, replaced_after("hang")),
    _fault(2, "… and holds the interpreter", _LOCKS, replaced_after("freeze"), variant="-lock", **_SLOW),
    _fault(
        3, "inference hangs for good", f"{_HANGS}, at warm-up too", for_good("hang", 2), budget_s=REPAIR_S + WARM_UP_S
    ),
    _fault(4, "inference raises once", _RAISES, once("raise", None, text="broken")),
    _fault(5, "inference raises for good", f"{_RAISES}, at warm-up too", for_good("raise", 6, "broken")),
    _fault(6, "out of resources", f"{_RAISES} CL_OUT_OF_RESOURCES", replaced_after("raise", OUT_OF_RESOURCES)),
    _fault(7, "NaN in the output", f"{_OPERATION} writes NaN", once("nan", MODEL_OUTPUT, times=2)),
    _fault(
        7,
        "noise in the output",
        f"{_OPERATION} writes noise",
        once("noise", MODEL_OUTPUT, 2),
        variant="-noise",
        **_SLOW,
    ),
    _fault(8, "output of another shape", f"{_OPERATION} gives [1, 8, 5]", once("narrow", None)),
    _fault(8, "… that the plugin lets pass", _SHAPED, once("reshape", MODEL_OUTPUT), variant="-tensor"),
    _fault(9, "model child SIGSEGV", f"{_RAISES} the signal", replaced_after("crash")),
    _fault(9, "model child aborts", f"{_OPERATION} calls abort()", replaced_after("abort"), variant="-abort", **_SLOW),
    _fault(10, "model child SIGKILL", "kill -9", signalled(signal.SIGKILL)),
    _fault(11, "model child SIGSTOP", "kill -STOP", signalled(signal.SIGSTOP)),
    _fault(12, "model child leaks 50 MB a second", f"{_OPERATION} keeps memory", leak, setup=RSS_LIMIT),
    _fault(13, "model child cannot start, then can", _REFUSED, no_device_for_a_while),
    _fault(14, "first device absent", "devices: [GPU, CPU] without a GPU", first_device_absent, setup=DEVICES),
    _fault(20, "frame pool exhausted", f"slots: 3, {_OPERATION} sleeps", pool_exhausted, setup=FEW_SLOTS),
    _fault(21, "optional model dead for good", f"{_OPERATION} of it calls abort()", optional_dead, setup=OPTIONAL),
    _fault(22, "both models' children killed at once", "kill -9 of both", both_killed, setup=OPTIONAL),
    _fault(43, "slot's stamp changes during the letterbox", _STAMPED, stamp_changes),
)
