"""Keeps every result of one inspectd station in SQLite: the MES side of the delivery promise, to copy from.

    python mes_subscriber.py --host mes-broker --base acme/suzhou/smt/line3/aoi/aoi-01 --database results.sqlite

Needs paho-mqtt 2 and a broker for MQTT 5. One thread does everything. Each connection is a new client with a clean
session; what was missed comes by `replay`, which is needed anyway: a broker can lose what it has acknowledged.
"""
# ruff: noqa: INP001  a program of its own, in no package

from __future__ import annotations

import argparse
import json
import logging
import random
import signal
import socket
import sqlite3
import threading
import time
import uuid
from pathlib import Path
from typing import Any, cast

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

COMMIT_S = 0.25  # one commit for all that came in so long: each waits for the disk
ACK_S = 1.0  # receipts, at most one in so long
PART = 10_000  # results, the most that one replay may ask for
SILENCE_S = 30.0  # a replay from which nothing is heard for so long is asked for again
PAUSE_S = 2.0  # after an answer that settled nothing, such as busy
NOT_FOUND = 7

log = logging.getLogger("mes")

TABLES = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS results (
    resultId TEXT PRIMARY KEY, streamId TEXT NOT NULL, seq INTEGER NOT NULL, creationTime TEXT, jobId TEXT, partId TEXT,
    resultState INTEGER, resultEvaluation INTEGER, resultEvaluationCode INTEGER, isSimulated INTEGER, payload TEXT);
CREATE INDEX IF NOT EXISTS results_by_seq ON results (streamId, seq);
CREATE TABLE IF NOT EXISTS streams (number INTEGER PRIMARY KEY, streamId TEXT NOT NULL UNIQUE, settled INTEGER);
CREATE TABLE IF NOT EXISTS lost (streamId TEXT, first INTEGER, last INTEGER, reason TEXT);
"""
UPSERT = """INSERT INTO results VALUES (:resultId, :streamId, :seq, :creationTime, :jobId, :partId,
    :resultState, :resultEvaluation, :resultEvaluationCode, :isSimulated, :payload)
    ON CONFLICT (resultId) DO UPDATE SET payload = excluded.payload"""


class Store:
    """The database. Up to `settled` every result is here or known to be lost: it changes in the same transaction."""

    def __init__(self, path: Path) -> None:
        self.stream, self.settled, self.newest = "", 0, 0
        self._beyond: set[int] = set()  # settled above the first gap
        self._db = sqlite3.connect(path)
        self._db.executescript(TABLES)
        row = self._db.execute("SELECT streamId, settled FROM streams ORDER BY number DESC").fetchone()
        if row is not None:
            self.stream, self.settled = row
            self.newest = self.settled
            here = self._db.execute("SELECT seq, seq FROM results WHERE streamId = ? AND seq > ?", row)
            lost = self._db.execute("SELECT first, last FROM lost WHERE streamId = ? AND last > ?", row)
            for first, last in [*here, *lost]:
                self._settle(first, last)

    def see(self, stream: str, seq: int) -> bool:
        """Note that a result exists. True if it is the first of a new stream: the journal of the old one is gone."""
        known = self._db.execute("SELECT 1 FROM streams WHERE streamId = ?", (stream,)).fetchone()
        if known is None:
            while self.settled < self.newest:
                first, last = self.missing()
                self.lose(first, min(last, self.newest), f"the station has begun the stream {stream}")
            self.commit()
            self.stream, self.settled, self.newest = stream, 0, 0
            self._beyond.clear()
            self._db.execute("INSERT INTO streams (streamId, settled) VALUES (?, 0)", (stream,))
        if stream == self.stream:
            self.newest = max(self.newest, seq)
        return known is None

    def keep(self, result: dict[str, Any], payload: str) -> bool:
        """Insert a result; the same one again makes no second row. True as for `see`."""
        self._db.execute(UPSERT, {**result, "payload": payload})
        is_new = self.see(result["streamId"], result["seq"])
        if result["streamId"] == self.stream:
            self._settle(result["seq"], result["seq"])
        return is_new

    def lose(self, first: int, last: int, reason: str) -> None:
        """Note that a range cannot be had any more."""
        log.error("results %d to %d of the stream %s are lost: %s", first, last, self.stream, reason)
        self._db.execute("INSERT INTO lost VALUES (?, ?, ?, ?)", (self.stream, first, last, reason))
        self._settle(first, last)

    def missing(self) -> tuple[int, int]:
        """The first range that is not here. Without a result beyond it, it has no end."""
        return self.settled + 1, min(self._beyond, default=2**62) - 1

    def commit(self) -> None:
        """Make everything durable, `settled` with it."""
        if self._db.in_transaction:
            self._db.execute("UPDATE streams SET settled = ? WHERE streamId = ?", (self.settled, self.stream))
            self._db.commit()

    def _settle(self, first: int, last: int) -> None:
        self.newest = max(self.newest, last)
        self._beyond.update(range(max(first, self.settled + 1), last + 1))
        while self.settled + 1 in self._beyond:
            self.settled += 1
            self._beyond.remove(self.settled)


class Subscriber:
    """Hears one station's results, asks for what is missing, gives receipts."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.stopping = threading.Event()
        self._options = options
        self._store = Store(options.database)
        self._listening = False
        self._asked: dict[str, Any] | None = None  # the replay that runs
        self._tail_unknown = True  # whether there may be results beyond the newest that is known of
        self._committed_s = self._heard_s = self._not_before_s = self._receipt_s = 0.0
        self._receipt: dict[str, Any] = {}

    def run(self) -> None:
        """Stay connected until told to stop."""
        while not self.stopping.is_set():
            try:
                self._one_connection()
            except OSError as fault:
                log.warning("%s:%d: %s", self._options.host, self._options.port, fault)
            self._store.commit()
            self.stopping.wait(random.uniform(0.5, 2.0))  # not all at once when the broker is back

    def _one_connection(self) -> None:
        options = self._options
        client = Client(CallbackAPIVersion.VERSION2, f"mes-{options.name}", protocol=MQTTProtocolVersion.MQTTv5)
        if options.ca_file:
            client.tls_set(options.ca_file, options.cert_file)
        if options.user:
            client.username_pw_set(options.user, options.password_file.read_text("utf-8").strip())
        client.on_connect = self._on_connect
        client.on_subscribe = lambda *told: log.info("subscribed: %s", ", ".join(map(str, told[3])))
        client.on_message = self._on_message
        client.connect(options.host, options.port, keepalive=10, clean_start=True)
        cast("socket.socket", client.socket()).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else 40 ms a hop
        while not self.stopping.is_set() and client.loop(COMMIT_S) == MQTTErrorCode.MQTT_ERR_SUCCESS:
            self._tick(client, time.monotonic())
        self._listening = False
        log.info("disconnected")
        client.disconnect()

    def _tick(self, client: Client, now: float) -> None:
        store = self._store
        if now - self._committed_s >= COMMIT_S:
            store.commit()
            self._committed_s = now
            receipt = {"subscriber": self._options.name, "streamId": store.stream, "upToSeq": store.settled}
            if self._listening and store.settled and receipt != self._receipt and now - self._receipt_s >= ACK_S:
                self._receipt, self._receipt_s = receipt, now
                client.publish(f"{self._options.base}/ack", json.dumps(receipt), qos=1)
        if self._asked is not None and now - self._heard_s > SILENCE_S:
            log.warning("no answer to %s", self._asked)
            self._asked = None
        if not self._listening or not store.stream or self._asked is not None or now < self._not_before_s:
            return
        first, last = store.missing()
        if first <= store.newest or self._tail_unknown:
            part = {"streamId": store.stream, "fromSeq": first, "toSeq": min(last, first + PART - 1)}
            self._asked = {"requestId": str(uuid.uuid4()), "requester": self._options.name, **part}
            self._heard_s = now
            client.publish(f"{self._options.base}/cmd/replay", json.dumps(self._asked), qos=1)

    def _answered(self, answer: dict[str, Any]) -> None:
        asked, status, error, detail = self._asked, answer["status"], answer["error"], answer.get("detail", {})
        if asked is None or answer["requestId"] != asked["requestId"]:
            return
        self._heard_s = time.monotonic()
        if status == "accepted":
            return  # the results come now, and another answer behind them
        self._asked, first, last = None, asked["fromSeq"], asked["toSeq"]
        log.info("replay %d to %d: %s %s %s", first, last, status, answer["errorText"], detail)
        for lost_first, lost_last in detail.get("lostRanges", ()):
            self._store.lose(lost_first, lost_last, "the station does not have them any more")
        if error == NOT_FOUND or (status == "completed" and detail["sent"] + detail["lost"] < last - first + 1):
            self._tail_unknown = False  # the station has no more; or another stream, whose first result will say so
        if error not in (0, NOT_FOUND) or self._store.settled < first <= self._store.newest:  # it did not help
            self._not_before_s = self._heard_s + (SILENCE_S if error == NOT_FOUND else PAUSE_S)

    def _on_connect(self, client: Client, _data: Any, _flags: Any, reason: ReasonCode, _properties: Any) -> None:
        if reason.is_failure:
            log.error("the broker refuses: %s", reason)
            return
        leaves = ("result", "lastresult", "status", f"rsp/{self._options.name}", f"replay/{self._options.name}")
        client.subscribe([(f"{self._options.base}/{leaf}", 1) for leaf in leaves])
        self._listening, self._asked, self._tail_unknown, self._not_before_s = True, None, True, 0.0

    def _on_message(self, _client: Any, _data: Any, message: MQTTMessage) -> None:
        try:
            self._take(message.topic.removeprefix(f"{self._options.base}/"), json.loads(message.payload), message)
        except Exception as fault:  # whatever it was: what is not settled will be asked for
            log.warning("not understood: %r in %.200r", fault, message.payload)

    def _take(self, leaf: str, document: dict[str, Any], message: MQTTMessage) -> None:
        if leaf.startswith("rsp/"):
            self._answered(document)
            return
        if leaf == "status":  # online: it has started or come back, and knows of no request from before
            is_new = document["status"] == "online" and not message.retain
        elif type(document["streamId"]) is not str or type(document["seq"]) is not int or document["seq"] < 1:
            raise TypeError("streamId must be a text, and seq a number from 1")
        elif leaf == "lastresult":  # the stored one tells how far the station was; a live one overtakes its result
            is_new = message.retain and self._store.see(document["streamId"], document["seq"])
        else:
            is_new = self._store.keep(document, message.payload.decode())
            self._heard_s = time.monotonic() if leaf != "result" else self._heard_s
        if is_new:
            self._asked, self._tail_unknown, self._receipt = None, True, {}
        if leaf == "result":
            self._tail_unknown = False  # what follows a live one will be live


def main() -> None:
    """Run until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--base", required=True, help="the station's base topic")
    parser.add_argument("--database", type=Path, default=Path("results.sqlite"))
    parser.add_argument("--name", default="mes-1", help="one for each program: requester, subscriber, client id")
    parser.add_argument("--ca-file", help="TLS: who signed the broker's certificate")
    parser.add_argument("--cert-file", help="TLS: our own certificate and its key, if the broker wants one")
    parser.add_argument("--user")
    parser.add_argument("--password-file", type=Path)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    subscriber = Subscriber(options)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: subscriber.stopping.set())
    subscriber.run()


if __name__ == "__main__":
    main()
