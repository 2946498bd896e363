"""The repair ladder on the true runtime: another device, the way back, and a leaking child that is replaced in time.

Faults come from outside: a `sitecustomize` on PYTHONPATH changes what OpenVINO does in the model's process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.integration.mosquitto import mosquitto
from tests.plant import Audit, Listener, configuration, plant

from inspectd.resources import model_path

RULES = {"rules": [{"id": "any", "model": "defects", "max_count": None, "evaluation": "notOk"}]}
IN_MODEL_CHILD = """
import sys
if "inspectd.worker.child" in sys.orig_argv and "model" in sys.orig_argv:
    import openvino
"""
LEAKS = """
    kept, start = [], openvino.InferRequest.start_async
    def leaking(self, *arguments):
        if len(kept) < 30:  # well below the hard limit, however long the second process takes on a busy host
            kept.append(b"x" * 4_000_000)
        return start(self, *arguments)
    openvino.InferRequest.start_async = leaking
"""
HAS_FASTCPU = """
    from pathlib import Path
    class Core(openvino.Core):
        def __init__(self):
            super().__init__()
            if Path({flag!r}).exists():
                self.register_plugin("openvino_intel_cpu_plugin", "FASTCPU")
    openvino.Core = Core
"""
"""The CPU under another name stands for a device whose driver is there, or not."""


def inject(folder: Path, text: str) -> dict[str, str]:
    """Give the environment of a daemon whose model children are changed so."""
    (folder / "inject").mkdir()
    (folder / "inject" / "sitecustomize.py").write_text(IN_MODEL_CHILD + text, "utf-8")
    paths = [str(folder / "inject"), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def document(folder: Path, port: int, **model: Any) -> dict[str, Any]:
    """One simulated camera whose pictures are all inspected, also on a host that is busy for some seconds."""
    source = {"kind": "simulator", "seed": 3, "width": 320, "height": 320}
    camera = {"source": source, "fps": 6, "deadline_ms": 30000, "models": ["defects"]}
    path = str(model_path("pcb-demo-int8.xml"))
    defects = {"task": "detect", "path": path, "timeout_ms": 20000, "queue_depth": 64, "threads": 1}
    return configuration(folder, port, cameras={"top": camera}, models={"defects": defects | model}, decision=RULES)


def check_all_inspected(audit: Audit, ledger_last: int) -> None:
    """Every number has its row, and in each row the model did its work."""
    audit.check(ledger_last)
    assert audit.runs == []
    assert {document["models"][0]["outcome"] for document in audit.results.values()} == {"done"}


def test_a_device_that_is_absent_is_replaced_by_the_next_and_taken_back_when_it_is_there(tmp_path: Path) -> None:
    """Alarm, `degraded` and a stored event say so; on the way back no picture is lost."""
    flag = tmp_path / "driver is installed"
    environment = inject(tmp_path, HAS_FASTCPU.format(flag=str(flag)))
    with mosquitto() as broker:
        listener = Listener(broker.port)
        wanted = document(tmp_path, broker.port, devices=["FASTCPU", "CPU"], retry_primary_s=2, requests=2)
        with plant(tmp_path, wanted) as line:
            line.start(**environment)
            listener.wait_for_alarm("FallbackDevice/defects", lambda alarm: alarm is not None and alarm["active"])
            listener.wait_for("state", lambda states: states[-1]["ready"] and states[-1]["degraded"])
            assert "model defects: runs on CPU instead of FASTCPU" in listener.of("state")[-1]["reasons"]
            listener.wait_for_more(5)
            assert listener.of("result")[-1]["models"][0]["device"] == "CPU"
            flag.touch()
            listener.wait_for("result", lambda results: results[-1]["models"][0]["device"] == "FASTCPU")
            listener.wait_for("state", lambda states: not states[-1]["degraded"])
            listener.wait_for_alarm("FallbackDevice/defects", lambda alarm: alarm is None)
            assert line.terminate() == 0, line.log
        moves = [event["detail"] for event in listener.of("event") if event["event"] == "ModelChanged"]
        listener.close()
    ways = [(move["from"]["device"], move["to"]["device"]) for move in moves]
    assert ways == [("FASTCPU", "CPU"), ("CPU", "FASTCPU")]
    assert "not registered in the OpenVINO Runtime" in moves[0]["reason"]
    assert moves[1]["reason"] == "FASTCPU works again"
    check_all_inspected(Audit.of(line.state), line.ledger_last())
    assert line.leftovers() == []


def test_a_leaking_child_is_replaced_again_and_again_and_no_picture_is_lost(tmp_path: Path) -> None:
    """Each process takes 120 MB more with its first 30 pictures.

    A second one is warmed while the first one works, and takes over between two pictures.
    """
    environment = inject(tmp_path, LEAKS)
    with mosquitto() as broker:
        listener = Listener(broker.port)
        with plant(tmp_path, document(tmp_path, broker.port, rss_limit_mb=150, requests=2)) as line:
            line.start(**environment)
            first = line.wait_for_child("model defects")
            listener.wait_for("result", lambda _: line.log.count("the second process takes over") >= 2)
            listener.wait_for_more(3)
            assert line.children()["model defects"] != first
            assert line.terminate() == 0, line.log
        unexpected = [e for e in listener.of("event") if e["event"] in ("ModelChanged", "AlarmRaised")]
        listener.close()
    assert unexpected == []
    check_all_inspected(Audit.of(line.state), line.ledger_last())
    assert line.leftovers() == []
