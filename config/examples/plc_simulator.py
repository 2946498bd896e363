"""Plays the PLC of a line with a continuous camera: a board passes only by a verdict that fulfils every condition.

    python plc_simulator.py --base acme/suzhou/smt/line3/aoi/aoi-01 --camera top --rate 10

Needs paho-mqtt 2, a broker for MQTT 5, and `mqtt.verdict.enabled: always` with `format: json`. A continuous camera
has no trigger; its own count (`trig`, never `meas`) at the line's rate stands for it. Board n + 1 follows board n by
one period, and its verdict has to arrive in the window around the moment when it is due. The board with which the
feed starts is rejected whatever its verdict: where and when it was seen is where the count begins. The windows do not
follow verdicts that come later and later; when the two have lost step, the feed stops and starts again. A real line
counts by its encoder.
"""
# ruff: noqa: INP001, T201  a program of its own, in no package, that prints what it does

from __future__ import annotations

import argparse
import json
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

HEARTBEAT_LIMIT_S = 3.0  # it comes once a second
SILENT_WINDOWS = 3  # so many in a row stop the feed
NUMBERS = 2**31  # where `trig` begins again
TICK_S = 0.02
FIELDS = ("v", "trig", "rcp", "eval", "state", "code", "sim", "late")
WARNING = (
    "!!! --accept-simulated: simulated boards PASS here. For a demonstration only, never on a line with parts. !!!"
)


@dataclass(frozen=True)
class Line:
    """What a PLC knows of its line."""

    camera: str
    period_s: float
    window_s: float
    recipe: int
    accept_simulated: bool


@dataclass
class Plc:
    """The rule, without a clock of its own: `now` is in seconds of a monotonic clock and never goes back."""

    line: Line
    tell: Callable[[dict[str, Any]], None]
    is_fed: bool = False
    strays: int = 0  # verdicts that no window waited for: too early, too late, twice, retained
    _beat: int | None = None
    _beat_s: float = 0.0
    _is_ready: bool = False
    _first: int = 0  # number of the board with which the feed started
    _first_s: float = 0.0  # when its verdict was due
    _oldest: int = 1  # boards after it: the first whose window has not closed
    _answered: set[int] = field(default_factory=set)  # those from there on that have their verdict
    _silent: int = 0

    def heartbeat(self, beat: dict[str, Any], now: float) -> None:
        """Take a heartbeat. The same number again is no sign of life."""
        if beat["n"] != self._beat:
            self._beat, self._beat_s = beat["n"], now
        self._is_ready = beat["ready"] == 1

    def verdict(self, verdict: dict[str, Any], now: float) -> None:
        """Take a verdict: it decides the board of its number, if that board's window is open, and no other."""
        self.tick(now)
        if verdict["cam"] != self.line.camera:
            return
        if any(type(verdict[name]) is not int for name in FIELDS):
            raise TypeError("a number of the verdict is none")
        if not self.is_fed:
            if verdict["state"] == 1 and verdict["late"] == 0 and not self._lacks_heartbeat(now):
                self._start(verdict["trig"], now)
            return
        board = (verdict["trig"] - self._first) % NUMBERS
        is_open = board >= self._oldest and abs(self._due_s(board) - now) <= self.line.window_s / 2
        if not is_open or board in self._answered:
            self.strays += 1
            return
        self._answered.add(board)
        self._decide(board, ", ".join(self._objections(verdict, now)))

    def tick(self, now: float) -> None:
        """Close the windows that are over; a board without a verdict is rejected."""
        while self.is_fed and now > self._due_s(self._oldest) + self.line.window_s / 2:
            if self._oldest in self._answered:
                self._answered.remove(self._oldest)
                self._silent = 0
            else:
                self._silent += 1
                self._decide(self._oldest, "no verdict in its window")
            self._oldest += 1
            if self._silent == SILENT_WINDOWS:
                self._stop(now)

    def _objections(self, verdict: dict[str, Any], now: float) -> list[str]:
        """Everything that stands against a pass."""
        wanted = {"v": 1, "eval": 1, "state": 1, "late": 0, "rcp": self.line.recipe, "sim": 0}
        found = [f"{name} {verdict[name]}" for name, value in wanted.items() if verdict[name] != value]
        if self.line.accept_simulated and verdict["sim"] == 1:
            found.remove("sim 1")
        if verdict["code"] != 0:
            found.append(f"code {verdict['code']}")
        if fault := self._lacks_heartbeat(now):
            found.append(fault)
        return found

    def _lacks_heartbeat(self, now: float) -> str:
        """What is wrong with the heartbeat; empty if it is alive."""
        if self._beat is None or now - self._beat_s > HEARTBEAT_LIMIT_S:
            return f"no heartbeat for {HEARTBEAT_LIMIT_S:g} s"
        return "" if self._is_ready else "the station is not ready"

    def _due_s(self, board: int) -> float:
        return self._first_s + board * self.line.period_s

    def _decide(self, board: int, reason: str) -> None:
        self.tell({"board": (self._first + board) % NUMBERS, "passed": not reason, "reason": reason})

    def _start(self, number: int, now: float) -> None:
        self.is_fed, self._first, self._first_s, self._oldest, self._silent = True, number, now, 1, 0
        self._answered.clear()
        self.tell({"feed": "started", "reason": f"the count begins with board {number}"})
        self._decide(0, "the count begins with it")

    def _stop(self, now: float) -> None:
        """Stop the feed. Boards that are under way have no verdict yet, and do not wait for one."""
        self.is_fed = False
        board = self._oldest
        while now >= self._due_s(board) - self.line.window_s / 2:
            if board not in self._answered:
                self._decide(board, "the feed was stopped")
            board += 1
        self.tell({"feed": "stopped", "reason": f"{SILENT_WINDOWS} windows in a row without a verdict"})


class Report:
    """Says what happens, a line each, and sums it up."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self.passed, self.stops = 0, 0
        self.reasons: Counter[str] = Counter()

    def tell(self, document: dict[str, Any]) -> None:
        """Print one decision, or one change of the feed."""
        if "board" not in document:
            self.stops += document["feed"] == "stopped"
            text = f"FEED {document['feed']}: {document['reason']}"
        elif document["passed"]:
            self.passed += 1
            text = f"board {document['board']}: pass"
        else:
            self.reasons[document["reason"]] += 1
            text = f"board {document['board']}: REJECT, {document['reason']}"
        print(json.dumps(document) if self._as_json else text, flush=True)

    def end(self, strays: int) -> None:
        """Print the summary."""
        rejected = self.reasons.total()
        summary = {"passed": self.passed, "rejected": rejected, "feedStops": self.stops, "strays": strays}
        if self._as_json:
            print(json.dumps({"summary": {**summary, "reasons": dict(self.reasons)}}))
            return
        print(f"\npassed {self.passed}, rejected {rejected}, feed stopped {self.stops} times, stray verdicts {strays}")
        for reason, count in self.reasons.most_common():
            print(f"  {count:6} {reason}")


class Wire:
    """The PLC's connection: clean sessions, one client for each, and nothing kept from one to the next."""

    def __init__(self, options: argparse.Namespace, plc: Plc) -> None:
        self.stopping = threading.Event()
        self._options, self._plc = options, plc

    def run(self) -> None:
        """Stay connected until told to stop. Windows close as well while there is no connection."""
        end_s = time.monotonic() + (self._options.seconds or float("inf"))
        while not self.stopping.is_set() and time.monotonic() < end_s:
            try:
                client = self._connected()
            except OSError as fault:
                print(f"{self._options.host}:{self._options.port}: {fault}", file=sys.stderr)
                self.stopping.wait(0.2)
                self._plc.tick(time.monotonic())
                continue
            code = MQTTErrorCode.MQTT_ERR_SUCCESS
            while code == MQTTErrorCode.MQTT_ERR_SUCCESS and not self.stopping.is_set() and time.monotonic() < end_s:
                code = client.loop(TICK_S)
                self._plc.tick(time.monotonic())
            client.disconnect()

    def _connected(self) -> Client:
        options = self._options
        client = Client(CallbackAPIVersion.VERSION2, f"plc-{options.name}", protocol=MQTTProtocolVersion.MQTTv5)
        client.connect_timeout = 1.0
        if options.ca_file:
            client.tls_set(options.ca_file, options.cert_file)
        if options.user:
            client.username_pw_set(options.user, options.password_file.read_text("utf-8").strip())
        client.on_connect = self._on_connect
        client.on_message = self._on_message
        client.connect(options.host, options.port, keepalive=3, clean_start=True)
        cast("socket.socket", client.socket()).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def _on_connect(self, client: Client, _data: Any, _flags: Any, reason: ReasonCode, _properties: Any) -> None:
        print(f"{self._options.host}:{self._options.port}: {reason}", file=sys.stderr)
        client.subscribe([(f"{self._options.base}/{leaf}", 1) for leaf in ("verdict", "heartbeat")])

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        now = time.monotonic()
        take = self._plc.heartbeat if message.topic.endswith("/heartbeat") else self._plc.verdict
        if message.retain:  # it may be of any time
            self._plc.strays += 1
            return
        try:
            take(json.loads(message.payload), now)
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as fault:
            self._plc.strays += 1
            print(f"{message.topic}: ignored: {fault!r}", file=sys.stderr)


def main() -> None:
    """Run for `--seconds`, or until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--base", required=True, help="the station's base topic")
    parser.add_argument("--camera", required=True)
    parser.add_argument("--rate", type=float, required=True, help="boards a second: the camera's fps")
    parser.add_argument("--window-ms", type=float, default=500.0, help="half before, half after a verdict is due")
    parser.add_argument("--recipe", type=int, default=0, help="number of the recipe asked for; 0: it has none")
    parser.add_argument("--accept-simulated", action="store_true", help="for a demonstration: sim 1 is no objection")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--json", action="store_true", help="a document a line instead of text")
    parser.add_argument("--name", default="1", help="one for each program: its client id is plc-NAME")
    parser.add_argument("--ca-file", help="TLS: who signed the broker's certificate")
    parser.add_argument("--cert-file", help="TLS: our own certificate and its key, if the broker wants one")
    parser.add_argument("--user")
    parser.add_argument("--password-file", type=Path)
    options = parser.parse_args()
    report = Report(as_json=options.json)
    line = Line(options.camera, 1 / options.rate, options.window_ms / 1000, options.recipe, options.accept_simulated)
    plc = Plc(line, report.tell)
    wire = Wire(options, plc)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: wire.stopping.set())
    if options.accept_simulated:
        print(WARNING, file=sys.stderr)
    wire.run()
    report.end(plc.strays)
    if options.accept_simulated:
        print(WARNING, file=sys.stderr)


if __name__ == "__main__":
    main()
