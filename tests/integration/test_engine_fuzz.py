"""Damaged model files, on the true runtime: each ends in a clear refusal or in a model that works, never in a hang."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests import fuzz_child
from tests.shared import FOLDER
from tests.tinynet import ir, onnx

FEW, MANY = 20, 200
FILE_LIMIT_S = 30.0
"""One file; tiny models take a tenth of a second."""
SEED = 20260


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Flip, cut, double, exchange or wipe a stretch, one to four times."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(data)) if data else 0
        length = min(rng.choice((1, 1, 2, 4, 16, 200)), len(data) - start)
        match rng.randrange(6):
            case 0:
                for place in range(start, start + length):
                    data[place] ^= 1 << rng.randrange(8)
            case 1:
                del data[start : len(data) if rng.random() < 0.3 else start + length]
            case 2:
                data[start:start] = data[start : start + length]
            case 3:
                data[start : start + length] = rng.randbytes(length)
            case 4:
                data[start : start + length] = rng.choice((b"\x00", b"\xff", b"9", b"-")) * length
            case _:
                other = rng.randrange(len(data)) if data else 0
                data[start : start + length] = data[other : other + length]
    return bytes(data)


def mutants(folder: Path, count: int) -> list[Path]:
    """Give seeded mutants of an .xml, a .bin and an .onnx in turn; each tenth is one of the real detector."""
    real = FOLDER / "models/tinydet-pcb/tinydet_384x640.xml"
    ir(folder / "whole.xml", info={"labels": "open short", "scale_values": "255"})
    onnx(folder / "whole.onnx", {"names": "{0: 'open', 1: 'short'}"})
    paths = []
    for number in range(count):
        rng = random.Random(SEED + number)
        kind = (".xml", ".bin", ".onnx")[number % 3]
        whole = real if number % 10 == 9 and kind != ".onnx" and real.exists() else folder / "whole.xml"
        if kind == ".onnx":
            path = folder / f"m{number}.onnx"
            path.write_bytes(mutate((folder / "whole.onnx").read_bytes(), rng))
        else:
            path = folder / f"m{number}.xml"
            for part in (".xml", ".bin"):
                content = whole.with_suffix(part).read_bytes()
                path.with_suffix(part).write_bytes(mutate(content, rng) if part == kind else content)
        paths.append(path)
    return paths


def run(paths: list[Path]) -> dict[str, str]:
    """Verdict of each file. A child that crashes or hangs has named its file before, and the next one goes on after."""
    verdicts: dict[str, str] = {}
    while rest := [str(path) for path in paths if str(path) not in verdicts]:
        command = [sys.executable, fuzz_child.__file__, *rest[:50]]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        ) as child:
            assert child.stdout is not None
            begun = ""
            alarm = threading.Timer(FILE_LIMIT_S, child.kill)
            alarm.start()
            for line in child.stdout:
                name, _, word = line.rstrip("\n").partition("\t")
                alarm.cancel()
                alarm = threading.Timer(FILE_LIMIT_S, child.kill)
                alarm.start()
                if word == "begin":
                    begun = name
                elif name == begun:
                    verdicts[name] = word
            has_hung = not alarm.is_alive()
            alarm.cancel()
        if begun not in verdicts:
            verdicts[begun or rest[0]] = "HUNG" if has_hung else f"CRASHED {child.returncode}"
    return verdicts


def judge(folder: Path, count: int) -> None:
    verdicts = run(mutants(folder, count))
    assert len(verdicts) == count
    bad = {Path(name).name: word for name, word in verdicts.items() if word not in ("ok", "refused", "device")}
    assert not bad
    assert {"ok", "refused"} <= set(verdicts.values())


def test_a_few_damaged_files_end_in_a_refusal_or_a_model_that_works(tmp_path: Path) -> None:
    judge(tmp_path, FEW)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_damaged_files_end_in_a_refusal_or_a_model_that_works(tmp_path: Path) -> None:
    judge(tmp_path, MANY)
