"""Stations for faults of inference, with the net that names its picture, and what is proved of every answer.

A verdict on a frame that was not inferred, or on another frame's picture, is found whatever the daemon says of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import psutil
from tests.faults import net, tally
from tests.faults.fault import Setup
from tests.faults.inject.orders import Orders
from tests.faults.stand import MODELS, TOP, Stand
from tests.plant import Audit

DEFECTS, CODE = MODELS[TOP], "code"
TIMEOUT_MS = KILL_AFTER_MS = 500
REPAIR_S = (TIMEOUT_MS + KILL_AFTER_MS) / 1000 + 3
"""DESIGN, Budgets: hang → killed, replaced and inspecting again."""
LIMIT_S = 20.0
"""Of waiting for what must come; how fast it has to be is the budget's business."""
BREAKER = {"failures": 5, "open_s": 1}
"""Closes again within the budget."""
OK, NOT_OK = 1, 2
INSPECTED = {0, 100}
OVERLOAD = {301, 303, 304}
BUSY = 2.0
"""From this slowness on the host has not the time for 10 frames a second."""

Run = Callable[[Stand, Orders], str]


def _faulty(stand: Stand, **changes: Any) -> dict[str, Any]:
    times = {"timeout_ms": TIMEOUT_MS, "kill_after_ms": KILL_AFTER_MS, "retry_s": 0.3, "breaker": dict(BREAKER)}
    path = str(net.save(stand.folder / "faulty.xml"))
    return {**deepcopy(net.MODEL), "path": path, "threads": 1, "requests": 1, **times, **changes}


def _plain(document: dict[str, Any], stand: Stand) -> None:
    """`top` sees the pictures whose numbers the net tells."""
    pictures = str(net.draw(stand.folder / "pictures"))
    document["cameras"][TOP]["source"] = {"kind": "files", "path": pictures, "loop": True}
    document["models"][DEFECTS] = _faulty(stand)
    document["decision"] = {
        "rules": [
            {"id": "defect", "model": DEFECTS, "class": "open", "evaluation": "notOk"},
            {"id": "others", "max_count": None, "evaluation": "notOk"},
        ]
    }


def _optional(document: dict[str, Any], stand: Stand) -> None:
    """A second model looks at the pictures of `top`; it may fail."""
    _plain(document, stand)
    document["models"][CODE] = _faulty(stand, required=False)
    document["cameras"][TOP]["models"].append(CODE)


def _few_slots(document: dict[str, Any], stand: Stand) -> None:
    _plain(document, stand)
    document["cameras"][TOP]["slots"] = 3


def _rss_limit(document: dict[str, Any], stand: Stand) -> None:
    _plain(document, stand)
    document["models"][DEFECTS]["rss_limit_mb"] = 350


def _devices(document: dict[str, Any], stand: Stand) -> None:
    """A GPU that this PC does not have."""
    _plain(document, stand)
    document["models"][DEFECTS]["devices"] = ["GPU", "CPU"]


def _environment(stand: Stand) -> dict[str, str]:
    """No cache: a child that takes its net from there has one descriptor more than the one that compiled it."""
    return Orders(stand.folder / "orders").environment | {"CACHE_DIRECTORY": "/dev/null/no-cache"}


PLAIN = Setup("net", _plain, environment=_environment)
OPTIONAL = Setup("net optional", _optional, environment=_environment)
FEW_SLOTS = Setup("net slots", _few_slots, environment=_environment)
RSS_LIMIT = Setup("net memory", _rss_limit, environment=_environment)
DEVICES = Setup("net devices", _devices, environment=_environment)


def proved(run: Run) -> Callable[[Stand], str]:
    """Bring a fault about and take it away; then look at every answer since."""

    def whole(stand: Stand) -> str:
        above, orders = stand.line.ledger_last(TOP), Orders(stand.folder / "orders")
        try:
            seen = run(stand, orders)
        finally:
            for model in (DEFECTS, CODE):
                orders.withdraw(model)
        stand.until_inspecting(REPAIR_S + LIMIT_S * stand.slowness)
        wrong = wrong_answers(results(stand, above), stand.line.firsts[-1])
        assert not wrong, wrong
        return seen

    return whole


def wrong_answers(results: Sequence[dict[str, Any]], first: int) -> list[str]:
    """Answers that are not of the frame's own picture, and verdicts that do not follow from it."""
    wrong = []
    for result in results:
        frame, evaluation = result["acquisition"]["frameId"], result["resultEvaluation"]
        number = (frame - first) % net.PICTURES
        told = {run["model"]: net.number_in(result, run["model"]) for run in result["models"]}
        wrong += [
            f"frame {frame}, picture {number}: {run['model']} {run['outcome']} tells {told}"
            for run in result["models"]
            if told[run["model"]] != (number if run["outcome"] == "done" else None)
        ]
        allowed = {0}
        if told.get(DEFECTS) == number:
            allowed.add(NOT_OK if net.is_defective(number) else OK)
        if evaluation not in allowed:
            wrong.append(f"frame {frame}, picture {number}: evaluation {evaluation}, the model told {told}")
    return wrong


def results(stand: Stand, above: int) -> list[dict[str, Any]]:
    """Results of `top` above a number."""
    audit = Audit.of(stand.state)
    wanted = [seq for seq, (camera, frame, _) in audit.columns.items() if camera == TOP and frame > above]
    return [audit.results[seq] for seq in wanted]


def codes_above(stand: Stand, above: int) -> Counter[int]:
    """Codes of the frames of `top` above a number, so far."""
    last = stand.line.ledger_last(TOP)
    files = sorted((stand.state / "journal").glob("*.sqlite"))
    return tally.tally(files, TOP, above + 1, last, stand.required(TOP)).codes


def lost(stand: Stand, codes: Counter[int]) -> Counter[int]:
    """Codes of frames that were not inspected; on a busy host without those of its overload."""
    excused = INSPECTED | (OVERLOAD if stand.slowness > BUSY else set())
    return Counter({code: count for code, count in codes.items() if code not in excused})


def words(codes: Counter[int]) -> str:
    """Codes of frames that were not inspected, for the table."""
    return ", ".join(f"{count} × {code}" for code, count in sorted(codes.items()) if code not in INSPECTED) or "none"


def obeyed(stand: Stand, orders: Orders, times: int = 1, model: str = DEFECTS) -> None:
    """Wait until the order has been obeyed so often."""
    stand.until(lambda: orders.obeyed(model) >= times, f"{model} obeys {times} times", LIMIT_S * stand.slowness)


def replaced(stand: Stand, pid: int, model: str = DEFECTS) -> None:
    """Wait until the child is gone and another one stands there."""
    stand.until(lambda: not psutil.pid_exists(pid), f"{model}: process {pid} is gone", LIMIT_S * stand.slowness)
    assert stand.child(f"model {model}") != pid


def pause(stand: Stand, seconds: float) -> None:
    """Let the station run."""
    until_s = stand.wall_s() + seconds
    stand.until(lambda: stand.wall_s() >= until_s, "time passes", seconds + 1)
