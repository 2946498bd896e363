"""The example for MES programmers keeps its promise: away, killed, or asked too much, its table equals the journal."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from tests.contract.schemas import validate
from tests.integration.mosquitto import Mosquitto, mosquitto
from tests.plant import BASE, Audit, configuration, plant

from inspectd.demo.configuration import packaged

PROGRAM = Path(__file__).parents[2] / "config" / "examples" / "mes_subscriber.py"
STREAM = "00000000-0000-4000-8000-000000000001"
NEXT_STREAM = "00000000-0000-4000-8000-000000000002"
WAIT_S = 40.0


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mes_subscriber", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLE = load()


@dataclass
class Mes:
    """The program as a process, and its table read from outside."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, str(PROGRAM), "--port", str(self.port), "--base", BASE, "--name", "mes-1"]
        with (self.folder / "mes.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--database", str(self.database)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """Kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)

    def terminate(self) -> int:
        """SIGTERM, and wait for the end."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(10)

    @property
    def database(self) -> Path:
        return self.folder / "mes.sqlite"

    @property
    def log(self) -> str:
        return (self.folder / "mes.log").read_text("utf-8")

    def rows(self, statement: str) -> list[Any]:
        """What a query of the table gives; nothing while there is no table yet."""
        if not self.database.exists():
            return []
        with closing(sqlite3.connect(self.database)) as connection:
            try:
                return connection.execute(statement).fetchall()
            except sqlite3.OperationalError:
                return []

    def seqs(self) -> list[int]:
        return [seq for (seq,) in self.rows("SELECT seq FROM results ORDER BY seq")]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, lambda: f"{what}; {len(self.seqs())} rows\n{self.log[-3000:]}")


def wait_until(condition: Callable[[], bool], what: Callable[[], str], limit_s: float = WAIT_S) -> None:
    """Look again and again: what is waited for happens in other processes' files."""
    end_s, pause = time.monotonic() + limit_s, threading.Event()
    while not condition():
        if time.monotonic() > end_s:
            pytest.fail(f"not within {limit_s:g} s: {what()}")
        pause.wait(0.05)


@contextmanager
def mes(folder: Path, port: int) -> Iterator[Mes]:
    program = Mes(folder, port)
    try:
        yield program
    finally:
        program.kill()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_away_and_killed_with_broker_and_daemon_killed_too_the_table_equals_the_journal(tmp_path: Path) -> None:
    """Every resultId once, with the committed bytes; what came while it was away comes by replay, the tail as well."""
    camera = {"source": {"kind": "simulator", "count": 300}, "fps": 20, "deadline_ms": 5000, "models": ["defects"]}
    demo = json.loads(json.dumps(packaged()))  # copies: the daemon's YAML knows no anchors
    parts = {"cameras": {"top": camera}, "models": demo["models"], "decision": demo["decision"]}
    with mosquitto() as broker, mes(tmp_path, broker.port) as subscriber:
        with plant(tmp_path, configuration(tmp_path, broker.port, **parts)) as line:
            journal = line.state / "journal"

            def more(count: int) -> None:
                goal = journal_count(journal) + count
                wait_until(lambda: journal_count(journal) >= goal, lambda: f"{goal} results\n{line.log[-2000:]}")

            def catch_up() -> None:
                goal = journal_count(journal)
                subscriber.until(lambda: len(subscriber.seqs()) >= goal, f"{goal} results")

            line.start()
            subscriber.start()
            more(30)
            catch_up()
            subscriber.kill()
            more(40)
            subscriber.start()
            catch_up()
            broker.restart()
            more(20)
            catch_up()
            subscriber.kill()
            assert line.process is not None
            line.process.kill()
            line.process.wait(30)
            broker.restart()
            subscriber.start()
            line.start()
            more(20)
            catch_up()
            os.kill(line.wait_for_child("camera top"), signal.SIGKILL)
            more(10)
            subscriber.kill()
            more(20)
            broker.restart()
            # The line ends while the subscriber is away: nothing live will tell it what it has missed.
            wait_until(lambda: journal_is_at_rest(journal), lambda: "the line's end", 60)
            subscriber.start()
            catch_up()
            assert subscriber.terminate() == 0
            assert line.terminate() == 0, line.log[-3000:]
            audit = Audit.of(line.state)
        audit.check(line.ledger_last())
        found = {seq: json.loads(payload) for seq, payload in subscriber.rows("SELECT seq, payload FROM results")}
        assert found == audit.results
        ids = [result_id for (result_id,) in subscriber.rows("SELECT resultId FROM results")]
        assert sorted(ids) == sorted(document["resultId"] for document in audit.results.values())
        assert subscriber.rows("SELECT settled FROM streams") == [(len(audit.results),)]
        assert subscriber.rows("SELECT * FROM lost") == []


def journal_count(journal: Path) -> int:
    """How many results the running daemon has committed."""
    count = 0
    for path in journal.glob("????????.sqlite"):
        with closing(sqlite3.connect(path)) as connection:
            count += connection.execute("SELECT COUNT(*) FROM results").fetchone()[0]
    return count


def journal_is_at_rest(journal: Path) -> bool:
    """Whether a second of the line brings nothing new."""
    before = journal_count(journal)
    threading.Event().wait(1.5)
    return journal_count(journal) == before


@dataclass
class Station:
    """A stand-in for the daemon that answers as the test says: what a real one says only on bad days."""

    port: int
    requests: list[dict[str, Any]] = field(default_factory=list)
    receipts: list[dict[str, Any]] = field(default_factory=list)
    receipt_times_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        subscribed = threading.Event()
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.on_message = self._take
        self._client.connect("127.0.0.1", self.port)
        self._client.loop_start()
        self._client.subscribe([(f"{BASE}/cmd/replay", 1), (f"{BASE}/ack", 1)])
        assert subscribed.wait(WAIT_S)

    def say(self, leaf: str, document: dict[str, Any] | bytes, *, retain: bool = False) -> None:
        payload = document if isinstance(document, bytes) else json.dumps(document)
        self._client.publish(f"{BASE}/{leaf}", payload, 1, retain).wait_for_publish(WAIT_S)

    def request(self, number: int) -> dict[str, Any]:
        """Wait for the request of this number, from 0."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.requests) > number, WAIT_S), self.requests
            return self.requests[number]

    def receipt(self, up_to_seq: int) -> None:
        """Wait for a receipt up to this seq."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: any(r["upToSeq"] == up_to_seq for r in self.receipts), WAIT_S)
            assert arrived, self.receipts

    def receipt_or_request(self, up_to_seq: int, number: int) -> dict[str, Any] | None:
        """Wait for the receipt up to this seq (None) or the request of this number."""

        def has_receipt() -> bool:
            return any(receipt["upToSeq"] == up_to_seq for receipt in self.receipts)

        with self._changed:
            arrived = self._changed.wait_for(lambda: has_receipt() or len(self.requests) > number, WAIT_S)
            assert arrived, (self.receipts, self.requests)
            return None if has_receipt() else self.requests[number]

    def answer(self, request: dict[str, Any], status: str, error: int = 0, **detail: Any) -> None:
        document = {"requestId": request["requestId"], "status": status, "error": error, "errorText": "said so"}
        self.say(f"rsp/{request['requester']}", {**document, "detail": detail} if detail else document)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _take(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        is_receipt = message.topic.endswith("/ack")
        document = validate("ack" if is_receipt else "cmd-replay", bytes(message.payload))
        with self._changed:
            if is_receipt:
                self.receipts.append(document)
                self.receipt_times_s.append(time.monotonic())
            else:
                self.requests.append(document)
            self._changed.notify_all()


def result(seq: int, stream: str = STREAM) -> dict[str, Any]:
    """The fields that the table has, and one of a later version."""
    return {
        "resultId": f"{stream[-1]}-{seq}",
        "streamId": stream,
        "seq": seq,
        "creationTime": "2026-01-01T00:00:00.000Z",
        "jobId": "j",
        "partId": None,
        "resultState": 1,
        "resultEvaluation": 1,
        "resultEvaluationCode": 0,
        "isSimulated": False,
        "fieldOfVersion1.7": {"new": [1]},
    }


@dataclass
class Stage:
    """The program between a real broker and a station that the test plays."""

    broker: Mosquitto
    station: Station
    program: Mes


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with mosquitto() as broker, mes(tmp_path, broker.port) as program:
        station = Station(broker.port)
        try:
            yield Stage(broker, station, program)
        finally:
            station.close()


def test_a_gap_is_asked_for_and_busy_lost_and_silent_answers_are_lived_with(stage: Stage) -> None:
    """Busy: again later. Lost ranges: noted, never asked for again. `online` while it waits: the station forgot it."""
    station, program = stage.station, stage.program
    station.say("lastresult", result(10), retain=True)
    program.start()
    first = station.request(0)
    assert (first["streamId"], first["fromSeq"], first["toSeq"]) == (STREAM, 1, 10_000)
    station.answer(first, "rejected", 10)
    second = station.request(1)
    assert second["requestId"] != first["requestId"]
    station.answer(second, "accepted")
    for seq in (1, 2, 2, 5):
        station.say("replay/mes-1", result(seq))
    station.say("status", {"status": "online", "reason": "start"})  # it was killed in the middle
    third = station.request(2)
    assert (third["fromSeq"], third["toSeq"]) == (3, 4)
    station.answer(second, "completed", sent=10, lost=0, lostRanges=[])  # of a request that is not waited for any more
    station.say("replay/mes-1", result(4))
    station.answer(third, "completed", sent=1, lost=1, lostRanges=[[3, 3]])
    fourth = station.request(3)
    assert (fourth["fromSeq"], fourth["toSeq"]) == (6, 10_005)
    for seq in range(6, 13):
        station.say("replay/mes-1", result(seq))
    station.answer(fourth, "completed", sent=7, lost=0, lostRanges=[])
    station.receipt(12)
    station.say("result", result(13))
    station.receipt(13)
    assert len(station.requests) == 4
    assert program.seqs() == [1, 2, *range(4, 14)]
    assert program.rows("SELECT streamId, first, last FROM lost") == [(STREAM, 3, 3)]
    gaps_s = [later - earlier for earlier, later in pairwise(station.receipt_times_s)]
    assert all(gap_s > 0.9 for gap_s in gaps_s), gaps_s


def test_a_long_gap_is_asked_for_in_parts_one_after_the_other(stage: Stage) -> None:
    """25,000 results behind: 10,000 at a time, the next part after the answer to the last, the end left open."""
    station, program = stage.station, stage.program
    station.say("lastresult", result(25_000), retain=True)
    program.start()
    for number, (first, last) in enumerate([(1, 10_000), (10_001, 20_000)]):
        request = station.request(number)
        assert (request["fromSeq"], request["toSeq"]) == (first, last)
        assert len(station.requests) == number + 1
        station.answer(request, "completed", sent=0, lost=10_000, lostRanges=[[first, last]])
    request = station.request(2)
    assert (request["fromSeq"], request["toSeq"]) == (20_001, 30_000)
    station.answer(request, "completed", sent=0, lost=5_000, lostRanges=[[20_001, 25_000]])
    station.receipt(25_000)
    assert len(station.requests) == 3


def test_a_new_stream_begins_at_1_and_what_the_old_one_still_owed_is_noted_as_lost(stage: Stage) -> None:
    station, program = stage.station, stage.program
    program.start()
    program.until(lambda: "subscribed" in program.log, "its subscription")
    station.say("result", result(1))
    station.say("result", result(4))
    assert station.request(0)["fromSeq"] == 2
    station.say("result", result(3, NEXT_STREAM))
    request = station.request(1)
    assert (request["streamId"], request["fromSeq"], request["toSeq"]) == (NEXT_STREAM, 1, 2)
    station.answer(request, "completed", sent=0, lost=2, lostRanges=[[1, 2]])
    station.say("lastresult", result(4))  # the old stream's, late: nothing begins anew
    station.receipt(3)
    assert station.receipts[-1] == {"subscriber": "mes-1", "streamId": NEXT_STREAM, "upToSeq": 3}
    assert program.rows("SELECT streamId, first, last FROM lost") == [(STREAM, 2, 3), (NEXT_STREAM, 1, 2)]


def test_what_is_not_a_result_is_ignored_and_the_next_one_is_kept(stage: Stage) -> None:
    """Not JSON, no object, wrong types, numbers beyond 64 bits, half of a surrogate pair, NUL, nothing at all."""
    station, program = stage.station, stage.program
    program.start()
    program.until(lambda: "subscribed" in program.log, "its subscription")
    hostile = [b"", b"\0", b"\xff", b"[]", b"7", b"{}", b"[" * 60_000, b'{"seq":1}']
    wrong: list[dict[str, Any]] = [
        {"seq": True},
        {"seq": "1"},
        {"seq": -1},
        {"seq": 2**70},
        {"streamId": None},
        {"jobId": {}},
    ]
    for leaf in ("result", "lastresult", "replay/mes-1", "rsp/mes-1", "status"):
        for payload in hostile:
            station.say(leaf, payload)
    wrong += [{"resultId": None}, {"resultId": ["x"]}, {"partId": 2**70}]
    for change in wrong:
        station.say("result", {**result(1), **change})
    station.say("result", {name: value for name, value in result(1).items() if name != "isSimulated"})
    station.say("result", json.dumps({**result(1), "jobId": "\ud800"}).encode())
    station.say("result", result(1))
    station.receipt(1)
    assert program.seqs() == [1]
    assert "disconnected" not in program.log, "the database is in order: the connection stays"
    assert program.terminate() == 0


def test_a_receipt_counts_only_what_survives_a_kill(stage: Stage) -> None:
    """Kill -9 right after each receipt: everything that it counts is in the table."""
    station, program = stage.station, stage.program
    for up_to in (5, 10, 15):
        program.start()
        begin = program.log.count("subscribed")
        program.until(lambda: program.log.count("subscribed") > begin, "its subscription")  # noqa: B023  it is called here
        for seq in range(up_to - 4, up_to + 1):
            station.say("result", result(seq))
        station.receipt(up_to)
        program.kill()
        assert program.seqs() == list(range(1, up_to + 1))


def test_the_beginning_of_an_old_stations_stream_is_found_in_a_few_steps(stage: Stage) -> None:
    """It is at 100 million and keeps the last 500: nobody walks 10,000 parts that are lost."""
    station, program = stage.station, stage.program
    last, kept_from = 10**8, 10**8 - 499
    station.say("lastresult", result(last), retain=True)
    program.start()
    answered = 0
    while request := station.receipt_or_request(last, answered):
        answered += 1
        assert answered < 30, [one["fromSeq"] for one in station.requests]
        first, end = request["fromSeq"], min(request["toSeq"], last)
        there = range(max(first, kept_from), end + 1)
        for seq in there:
            station.say("replay/mes-1", result(seq))
        lost = [[first, min(end, kept_from - 1)]] if first < kept_from else []
        count = sum(to - begin + 1 for begin, to in lost)
        station.answer(request, "completed", sent=len(there), lost=count, lostRanges=lost)
    assert program.seqs() == list(range(kept_from, last + 1))
    ranges = program.rows("SELECT first, last FROM lost ORDER BY first")
    assert [ranges[0][0], ranges[-1][1]] == [1, kept_from - 1]
    assert all(later == earlier + 1 for (_, earlier), (later, _) in pairwise(ranges)), ranges


def test_what_a_full_disk_takes_back_is_settled_no_more(tmp_path: Path) -> None:
    """SQLite undoes the whole transaction, also the results before the one that did not fit."""
    store = EXAMPLE.Store(tmp_path / "mes.sqlite")
    payload = "x" * 3000
    for seq in range(1, 11):
        store.keep(result(seq), payload)
    store.commit()
    [pages] = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages + 8}")

    def fill() -> None:
        for seq in range(11, 100):
            store.keep(result(seq), payload)

    with pytest.raises(sqlite3.OperationalError, match="full"):
        fill()
    assert store.settled > 10
    store.reload()
    assert (store.settled, store.newest, store.missing()[0]) == (10, 10, 11)
    store._db.execute("PRAGMA max_page_count = 1000000")
    store.keep(result(30), payload)
    store.commit()
    assert (store.settled, store.missing()) == (10, (11, 29))
    assert EXAMPLE.Store(tmp_path / "mes.sqlite").missing() == (11, 29)


def test_a_number_far_ahead_costs_nothing(tmp_path: Path) -> None:
    """What is settled are ranges: a set of a hundred million numbers would need gigabytes."""
    store = EXAMPLE.Store(tmp_path / "mes.sqlite")
    store.keep(result(3), "")
    store.see(STREAM, 10**15)
    store.keep(result(1), "")
    assert (store.settled, store.missing()) == (1, (2, 2))
    store.keep(result(1, NEXT_STREAM), "")
    rows = store._db.execute("SELECT streamId, first, last FROM lost").fetchall()
    assert rows == [(STREAM, 2, 2), (STREAM, 4, 10**15)]
    assert (store.stream, store.settled, store.newest) == (NEXT_STREAM, 1, 1)


def test_a_disk_that_was_full_costs_no_result_and_no_receipt_was_wrong(stage: Stage) -> None:
    """Files may not grow for a while. The connection ends, and what is not in the table is asked for again."""
    station, program = stage.station, stage.program
    big = "x" * 5000
    program.start()
    program.until(lambda: "subscribed" in program.log, "its subscription")
    station.say("result", {**result(1), "details": big})
    station.receipt(1)
    assert program.process is not None
    sizes = [path.stat().st_size for path in program.folder.glob("mes.*")]
    _, hard = resource.prlimit(program.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(program.process.pid, resource.RLIMIT_FSIZE, (max(sizes) + 40_000, hard))
    for seq in range(2, 42):
        station.say("result", {**result(seq), "details": big})
    program.until(lambda: "asked for again" in program.log, "the fault of the database")
    kept = program.seqs()
    assert len(kept) < 41
    assert max((receipt["upToSeq"] for receipt in station.receipts), default=0) <= len(kept)
    resource.prlimit(program.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    station.say("lastresult", result(41), retain=True)
    answered = len(station.requests)
    while request := station.receipt_or_request(41, answered):
        answered += 1
        there = range(request["fromSeq"], 42)
        for seq in there:
            station.say("replay/mes-1", {**result(seq), "details": big})
        station.answer(request, "completed", sent=len(there), lost=0, lostRanges=[])
    assert program.seqs() == list(range(1, 42))
    assert program.rows("SELECT * FROM lost") == []
    assert program.terminate() == 0


def test_a_database_that_cannot_be_written_ends_it_with_a_clear_text(tmp_path: Path) -> None:
    (tmp_path / "mes.sqlite").mkdir()
    program = Mes(tmp_path, 1)
    program.start()
    assert program.process is not None
    assert program.process.wait(10) == 1
    assert "name a file that can be written" in program.log
    assert "Traceback" not in program.log
