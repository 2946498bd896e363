"""Faults of the broker: killed, frozen, away for long, refusing, too narrow, or with another station of our name."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from tests.faults.fault import Fault, Setup
from tests.faults.stand import FPS, MODELS, TOP, Stand, camera
from tests.plant import BASE

AWAY_FRAMES = 3 * FPS
"""So many pictures are taken while the broker is away."""
RATE = 30
BACKLOG = 300
LONG_BACKLOG = 18000
"""10 minutes at 30 results a second."""
LONG_LIMIT_S = 600
SENT_AGAIN_S = 5.0
EVERYBODY = "topic readwrite #\n"
NO_RESULTS = f"{EVERYBODY}topic deny {BASE}/result\n"
NARROW = "max_packet_size 6000"
"""Health and meta pass, and results with few findings."""


# Stands


def _verdicts(document: dict[str, Any], _stand: Stand) -> None:
    """`top` at 30 a second, verdicts of all."""
    document["cameras"][TOP] |= {"fps": RATE}
    document["mqtt"]["verdict"] = {"enabled": "always"}


def _talkative(document: dict[str, Any], stand: Stand) -> None:
    """The net of `top` finds something in every cell: its results are larger than some brokers take."""
    document["models"][MODELS[TOP]] |= {"confidence": 0.001}
    document["cameras"][TOP] = camera(MODELS[TOP])
    del stand


OUTAGE = Setup("outage", _verdicts)
LISTED = Setup("access list", acl=EVERYBODY)
TALKATIVE = Setup("oversize", _talkative)


# Faults


def killed(stand: Stand) -> str:
    """Killed without a goodbye; what is inspected meanwhile is sent when it is back."""
    stand.broker.kill()
    _while_away(stand)
    stand.broker.start()
    stand.mark()
    stand.listener.wait_subscribed()
    stand.listener.wait_for_more(AWAY_FRAMES)
    return "inspection goes on, results wait in the outbox and are sent"


def frozen(stand: Stand) -> str:
    """It keeps the connection and answers nothing: our own deadline ends it."""
    begin = len(stand.line.log)
    with stand.broker.stop_cont():
        stand.saw("trying again", begin)
        _while_away(stand)
    stand.mark()
    stand.listener.wait_subscribed()
    stand.listener.wait_for_more(AWAY_FRAMES)
    said = next(line for line in stand.line.log[begin:].splitlines() if "trying again" in line)
    return f"{said.rpartition(f'{stand.broker.port}: ')[2]}; results are sent when it moves again"


def long_away(stand: Stand) -> str:
    """Verdicts of the parts that pass now come before the backlog, and in time."""
    stand.broker.kill()
    first = stand.line.ledger_last(TOP)
    stand.until(lambda: stand.line.ledger_last(TOP) >= first + BACKLOG, f"{BACKLOG} pictures without a broker")
    stand.broker.start()
    stand.mark()
    stand.listener.wait_subscribed()
    begun_s, heard = time.monotonic(), len(stand.listener.of("verdict"))
    begin = stand.line.ledger_last(TOP)
    stand.listener.wait_for(
        "result", lambda results: any(_is_of(result, TOP, begin + 3 * RATE) for result in results[-5:])
    )
    took_s = time.monotonic() - begun_s
    live = {result["seq"] for result in stand.listener.of("result") if _is_of(result, TOP, begin + RATE)}
    told = {verdict["seq"] for verdict in stand.listener.of("verdict")[heard:]}
    assert live, "no result of a part that passed after the broker's return"
    assert live <= told, f"{len(live - told)} of {len(live)} live parts without a verdict in time"
    return f"{BACKLOG} results sent in {took_s:.1f} s; each live part had its verdict meanwhile ({len(live)} looked at)"


def very_long_away(stand: Stand) -> str:
    """The whole 10 minutes, at the outbox's own door: the real writer, journal and publisher without cameras."""
    test = "tests/integration/test_outbox_door.py"
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", test, "-k", "long_outage"]
    environment = os.environ | {"INSPECTD_OUTAGE_RESULTS": str(LONG_BACKLOG)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LONG_LIMIT_S, check=False, env=environment, cwd=_root()
    )
    assert done.returncode == 0, done.stdout[-2000:]
    del stand
    return next(line for line in done.stdout.splitlines() if "caught up" in line)


def refused(stand: Stand) -> str:
    """The plant's administrator takes the right to publish results away, and gives it back."""
    stand.broker.write_acl(NO_RESULTS)
    stand.broker.reload()
    text = stand.alarm("BrokerRefused/mqtt")["text"]
    stand.broker.write_acl(EVERYBODY)
    stand.broker.reload()
    stand.mark()
    stand.alarm_over("BrokerRefused/mqtt")
    stand.listener.wait_for_more(AWAY_FRAMES)
    return f"alarm BrokerRefused ({text}), raised and cleared; nothing is lost"


def oversize(stand: Stand) -> str:
    """The broker's limit is lowered below what the results of `top` need: small substitutes go out in their place."""
    stand.broker.kill()
    stand.broker.configure(NARROW)
    stand.broker.start()
    stand.listener.wait_subscribed()
    stand.alarm("DeadLetter/mqtt")
    stand.listener.wait_for("result", lambda results: results[-1]["resultContent"]["contentTruncated"])
    stand.broker.kill()
    stand.broker.configure()
    stand.broker.start()
    stand.mark()
    stand.listener.wait_subscribed()
    stand.confirm("DeadLetter/mqtt")
    stand.listener.wait_for("result", lambda results: not results[-1]["resultContent"]["contentTruncated"])
    return "alarm DeadLetter; substitutes go out, the others' results too; whole ones when the limit is gone"


def same_name(stand: Stand) -> str:
    """A second station with our base topic: both are told, the first goes on working, and nothing is lost."""
    folder = stand.folder / "second"
    folder.mkdir()
    document = stand.line.document | {"storage": stand.line.document["storage"] | {"path": str(folder / "state")}}
    path = folder / "inspectd.yaml"
    path.write_text(yaml.safe_dump(document), "utf-8")
    command = [sys.executable, "-m", "inspectd", "run", "-c", str(path)]
    with (
        (folder / "daemon.log").open("wb") as log,
        subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, env=os.environ | stand.environment
        ) as second,
    ):
        stand.groups.add(second.pid)
        try:
            text = stand.alarm("DuplicateClient/mqtt")["text"]
        finally:
            second.terminate()
            second.wait(30)
    stand.mark()
    stand.confirm("DuplicateClient/mqtt")
    return f"alarm DuplicateClient ({text})"


def _while_away(stand: Stand) -> None:
    first = stand.line.ledger_last(TOP)
    stand.until(lambda: stand.line.ledger_last(TOP) >= first + AWAY_FRAMES, f"{AWAY_FRAMES} pictures without a broker")


def _is_of(result: dict[str, Any], name: str, above: int) -> bool:
    acquisition = result["acquisition"]
    return bool(acquisition["cameraId"] == name and acquisition["frameId"] > above)


def _root() -> Path:
    return Path(__file__).resolve().parents[2]


FAULTS = (
    Fault(26, "broker killed and back", "kill -9 of mosquitto, started again", killed, budget_s=1),
    Fault(27, "broker frozen", "kill -STOP of mosquitto, then -CONT", frozen, budget_s=1),
    Fault(
        28,
        f"broker away for {BACKLOG} results",
        f"no mosquitto for {BACKLOG // RATE} s at {RATE} results a second",
        long_away,
        budget_s=1,
        setup=OUTAGE,
    ),
    Fault(
        28,
        "broker away for 10 min at 30 results/s",
        f"{LONG_BACKLOG} results in the outbox, then mosquitto starts",
        very_long_away,
        budget_s=1,
        variant="-long",
        is_slow=True,
        of_host=True,
    ),
    Fault(
        29,
        "broker refuses by its access list",
        "topic deny …/result, mosquitto reloads; then allowed again",
        refused,
        budget_s=1,
        setup=LISTED,
    ),
    Fault(30, "oversize result", f"mosquitto with {NARROW}, then without", oversize, budget_s=1, setup=TALKATIVE),
    Fault(
        37,
        "two daemons with one station id",
        "a second daemon, its own storage, same base topic",
        same_name,
        budget_s=1,
    ),
)
