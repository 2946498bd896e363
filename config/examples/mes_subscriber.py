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
import sys
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
DISK_S = 5.0  # after a fault of the database
NOT_FOUND = 7
MESSAGE_FAULTS = (sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError)  # no row can be made of it

log = logging.getLogger("mes")

TABLES = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS results (
    resultId TEXT PRIMARY KEY NOT NULL, streamId TEXT NOT NULL, seq INTEGER NOT NULL, creationTime TEXT, jobId TEXT,
    partId TEXT, resultState INTEGER, resultEvaluation INTEGER, resultEvaluationCode INTEGER, isSimulated INTEGER,
    payload TEXT);
CREATE INDEX IF NOT EXISTS results_by_seq ON results (streamId, seq);
CREATE TABLE IF NOT EXISTS streams (number INTEGER PRIMARY KEY, streamId TEXT NOT NULL UNIQUE, settled INTEGER);
CREATE TABLE IF NOT EXISTS lost (streamId TEXT, first INTEGER, last INTEGER, reason TEXT);
"""
UPSERT = """INSERT INTO results VALUES (:resultId, :streamId, :seq, :creationTime, :jobId, :partId,
    :resultState, :resultEvaluation, :resultEvaluationCode, :isSimulated, :payload)
    ON CONFLICT (resultId) DO UPDATE SET payload = excluded.payload"""


class Store:
    """The database. Up to `settled` every result is here or known to be lost: it changes in the same transaction.

    After a sqlite3.Error nothing that is remembered counts: SQLite may have taken the whole transaction back. `reload`.
    """

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path)
        self._db.executescript(TABLES)
        self.reload()

    def reload(self) -> None:
        """Forget everything but what is on the disk."""
        self._db.rollback()
        self.stream, self.settled, self.newest = "", 0, 0
        self._beyond: list[tuple[int, int]] = []  # settled above the first gap: first and last, in order, apart
        row = self._db.execute("SELECT streamId, settled FROM streams ORDER BY number DESC").fetchone()
        if row is not None:
            self.stream, self.settled = row
            here = self._db.execute("SELECT seq, seq FROM results WHERE streamId = ? AND seq > ?", row)
            lost = self._db.execute("SELECT first, last FROM lost WHERE streamId = ? AND last > ?", row)
            self._settle(*here, *lost)

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
        try:
            self._db.execute(UPSERT, {**result, "payload": payload})
        except MESSAGE_FAULTS as fault:
            raise ValueError(str(fault)) from fault
        is_new = self.see(result["streamId"], result["seq"])
        if result["streamId"] == self.stream:
            self._settle((result["seq"], result["seq"]))
        return is_new

    def lose(self, first: int, last: int, reason: str) -> None:
        """Note that a range cannot be had any more."""
        log.error("results %d to %d of the stream %s are lost: %s", first, last, self.stream, reason)
        self._db.execute("INSERT INTO lost VALUES (?, ?, ?, ?)", (self.stream, first, last, reason))
        self._settle((first, last))

    def missing(self) -> tuple[int, int]:
        """The first range that is not here. Without a result beyond it, it has no end."""
        return self.settled + 1, (self._beyond[0][0] if self._beyond else 2**62) - 1

    def has_any_before(self, seq: int) -> bool:
        """Whether the stream has a result here before this one."""
        text = "SELECT 1 FROM results WHERE streamId = ? AND seq < ? LIMIT 1"
        return self._db.execute(text, (self.stream, seq)).fetchone() is not None

    def commit(self) -> None:
        """Make everything durable, `settled` with it."""
        if self._db.in_transaction:
            self._db.execute("UPDATE streams SET settled = ? WHERE streamId = ?", (self.settled, self.stream))
            self._db.commit()

    def _settle(self, *spans: tuple[int, int]) -> None:
        joined = [(0, self.settled)]
        for first, last in sorted([*self._beyond, *spans]):
            if first <= joined[-1][1] + 1:
                joined[-1] = joined[-1][0], max(joined[-1][1], last)
            else:
                joined.append((first, last))
        self.newest = max(self.newest, joined[-1][1])
        (_, self.settled), *self._beyond = joined


class Subscriber:
    """Hears one station's results, asks for what is missing, gives receipts."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.stopping = threading.Event()
        self._options = options
        self._store = Store(options.database)
        self._listening = False
        self._asked: dict[str, Any] | None = None  # the replay that runs
        self._gap = (0, 0)  # the gap that it is for, as it was then
        self._tail_unknown = True  # whether there may be results beyond the newest that is known of
        self._committed_s = self._heard_s = self._not_before_s = self._receipt_s = 0.0
        self._receipt: dict[str, Any] = {}

    def run(self) -> None:
        """Stay connected until told to stop."""
        while not self.stopping.is_set():
            pause_s = random.uniform(0.5, 2.0)  # not all at once when the broker is back
            try:
                self._store.reload()
                self._one_connection()
                self._store.commit()
            except OSError as fault:
                log.warning("%s:%d: %s", self._options.host, self._options.port, fault)
            except sqlite3.Error as fault:  # a full disk: acknowledge nothing, come back, ask again
                log.error("%s: %s; what is not committed will be asked for again", self._options.database, fault)
                pause_s = DISK_S
            self.stopping.wait(pause_s)

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
        try:
            while not self.stopping.is_set() and client.loop(COMMIT_S) == MQTTErrorCode.MQTT_ERR_SUCCESS:
                self._tick(client, time.monotonic())
        finally:
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
        gap = store.missing()
        if gap[0] <= store.newest or self._tail_unknown:
            first, last = self._part(*gap)
            part = {"streamId": store.stream, "fromSeq": first, "toSeq": last}
            self._asked = {"requestId": str(uuid.uuid4()), "requester": self._options.name, **part}
            self._gap = gap
            self._heard_s = now
            client.publish(f"{self._options.base}/cmd/replay", json.dumps(self._asked), qos=1)

    def _part(self, first: int, last: int) -> tuple[int, int]:
        """Which part of a gap to ask for: the oldest results, which the station gives up next.

        Of a stream that we have nothing of yet the beginning may be gone for long, 10,000 parts of it. If the first
        part is, ask in the middle of the rest, and again, until the oldest that there are have been found.
        """
        end = min(last, self._store.newest)
        if first > 1 and end - first >= 2 * PART and not self._store.has_any_before(first):
            first = (first + end + 1 - PART) // 2
        return first, min(last, first + PART - 1)

    def _answered(self, answer: dict[str, Any]) -> None:
        asked, status, error, detail = self._asked, answer["status"], answer["error"], answer.get("detail", {})
        if asked is None or answer["requestId"] != asked["requestId"]:
            return
        self._heard_s = time.monotonic()
        if status == "accepted":
            return  # the results come now, and another answer behind them
        self._asked, first, last = None, asked["fromSeq"], asked["toSeq"]
        log.info("replay %d to %d: %s %s %s", first, last, status, answer["errorText"], detail)
        ranges = detail.get("lostRanges", ())
        if ranges == [[first, last]]:  # all of it: what was passed over before it is older still
            ranges = [[min(first, self._store.missing()[0]), last]]
        for lost_first, lost_last in ranges:
            self._store.lose(lost_first, lost_last, "the station does not have them any more")
        if error == NOT_FOUND or (status == "completed" and detail["sent"] + detail["lost"] < last - first + 1):
            self._tail_unknown = False  # the station has no more; or another stream, whose first result will say so
        helped = self._store.missing() != self._gap or first > self._store.newest
        if error not in (0, NOT_FOUND) or not helped:
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
        except sqlite3.Error:
            raise  # the connection ends with it: `run`
        except Exception as fault:  # whatever it was: what is not settled will be asked for
            log.warning("not understood: %r in %.200r", fault, message.payload)

    def _take(self, leaf: str, document: dict[str, Any], message: MQTTMessage) -> None:
        if leaf.startswith("rsp/"):
            self._answered(document)
            return
        if leaf == "status":  # online: it has started or come back, and knows of no request from before
            is_new = document["status"] == "online" and not message.retain
        elif [type(document[name]) for name in ("streamId", "seq")] != [str, int] or not 0 < document["seq"] < 2**62:
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
    try:
        subscriber = Subscriber(options)
    except sqlite3.Error as fault:
        sys.exit(f"{options.database}: {fault}; name a file that can be written, on a disk with room")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: subscriber.stopping.set())
    subscriber.run()


if __name__ == "__main__":
    main()
