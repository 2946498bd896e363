"""Compiled models on disk, with the true runtime: a cache only ever saves time, whatever happens to it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tinynet import ir

from inspectd.engine import ModelSpec, cache
from inspectd.engine.openvino import OpenVinoEngine

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")


@pytest.fixture
def spec(tmp_path: Path) -> ModelSpec:
    path = ir(tmp_path / "tiny.xml", class_count=2, info={"labels": "open short"})
    folder = tmp_path / "cache"
    return ModelSpec("defects", path, threads=2, precision="f32", confidence=0.5, requests=1, cache_dir=folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 KiB: the blob does not fit."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", folder], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def spot() -> tuple[Any, ...]:
    picture = np.zeros((64, 64, 3), np.uint8)
    picture[44, 20, 2] = 255
    return (picture, lambda: None)


def works(spec: ModelSpec) -> bool:
    """Open it, and see that it finds the one box that is there."""
    engine = OpenVinoEngine(spec)
    engine.open()
    (found,) = engine.infer(0, *spot())
    return (found.class_name, found.box.x, found.box.y) == ("open", 16, 40)


def entries(spec: ModelSpec) -> list[Path]:
    assert spec.cache_dir is not None
    return sorted(path for path in spec.cache_dir.glob("*/*") if path.is_dir())


def blob_of(spec: ModelSpec) -> Path:
    (entry,) = entries(spec)
    (blob,) = entry.glob("*.blob")
    return blob


def test_the_second_start_takes_what_the_first_compiled(spec: ModelSpec) -> None:
    assert works(spec)
    written = blob_of(spec).stat()
    assert works(spec)
    assert blob_of(spec).stat().st_mtime_ns == written.st_mtime_ns
    assert blob_of(spec).stat().st_ino == written.st_ino


@pytest.mark.parametrize(
    "changes", [{"precision": "bf16"}, {"threads": 1}, {"color": "bgr"}, {"resize": "stretch"}], ids=str
)
def test_every_option_has_its_own_entry(spec: ModelSpec, changes: dict[str, Any]) -> None:
    OpenVinoEngine(spec).open()
    OpenVinoEngine(replace(spec, **changes)).open()
    assert len(entries(spec)) == 2


def test_another_file_has_its_own_entry(spec: ModelSpec) -> None:
    """Retrained: the same .xml with another .bin."""
    assert works(spec)
    ir(spec.path, class_count=2, fault=0.001, info={"labels": "open short"})
    assert works(spec)
    assert len(entries(spec)) == 2


@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied"])
def test_a_damaged_blob_is_never_loaded_and_made_again(spec: ModelSpec, damage: str) -> None:
    """One with random bytes flipped used to load without an error, and could have answered anything."""
    works(spec)
    blob = blob_of(spec)
    good = blob.read_bytes()
    bad = bytearray(good)
    rng = np.random.default_rng(3)
    for place in rng.integers(0, len(bad), 200):
        bad[place] ^= 0xFF
    blob.write_bytes({"flipped": bytes(bad), "cut": good[: len(good) // 2], "emptied": b""}[damage])
    assert works(spec)
    assert len(blob_of(spec).read_bytes()) == len(good)


def test_a_blob_that_answers_otherwise_than_at_first_is_made_again(
    spec: ModelSpec, caplog: pytest.LogCaptureFixture
) -> None:
    """The file is whole, and yet the answer is not that of the first compile: another driver, another processor."""
    works(spec)
    entry = blob_of(spec).parent
    with np.load(entry / "answer.npz") as stored:
        answer = [stored[name] for name in stored.files]
    np.savez_compressed(entry / "answer.npz", *[output + 0.5 for output in answer])
    seal = json.loads((entry / "seal.json").read_text(encoding="ascii"))
    (entry / "seal.json").write_text(json.dumps(seal | cache._sums(entry, only="answer.npz")), encoding="ascii")
    written = blob_of(spec).stat().st_mtime_ns
    with caplog.at_level(logging.WARNING):
        assert works(spec)
    assert "answers otherwise than when it was compiled; made again" in caplog.text
    assert blob_of(spec).stat().st_mtime_ns != written
    with np.load(entry / "answer.npz") as stored:
        assert np.allclose(stored["arr_0"], answer[0])


def test_a_compile_that_was_killed_half_way_leaves_nothing_that_is_believed(spec: ModelSpec) -> None:
    works(spec)
    blob = blob_of(spec)
    (blob.parent / "seal.json").unlink()
    blob.write_bytes(blob.read_bytes()[:1000])
    assert works(spec)
    assert blob_of(spec).stat().st_size > 1000


def test_a_file_where_the_folder_should_be_only_costs_time(spec: ModelSpec, caplog: pytest.LogCaptureFixture) -> None:
    assert spec.cache_dir is not None
    spec.cache_dir.write_bytes(b"")
    assert works(spec)
    assert "works without the cache" in caplog.text


@needs_root
def test_a_full_disk_only_costs_time(spec: ModelSpec, small_disk: Path) -> None:
    """At the first start and at the next, when a torso may lie there."""
    full = replace(spec, cache_dir=small_disk)
    assert works(full)
    assert works(full)


@needs_root
def test_a_read_only_disk_only_costs_time(spec: ModelSpec, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert works(replace(spec, cache_dir=small_disk))


def test_old_entries_go(spec: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used ones, by number and by size; the newest stays even if it is too large alone."""
    monkeypatch.setattr(cache, "ENTRIES_MAX", 2)
    for threads in (1, 2, 3):
        OpenVinoEngine(replace(spec, threads=threads)).open()
        for age, entry in enumerate(entries(spec)):
            times = entry.stat().st_mtime - 10 * (age + 1)
            os.utime(entry, (times, times))
    assert len(entries(spec)) == 2
    monkeypatch.setattr(cache, "BYTES_MAX", 10)
    OpenVinoEngine(replace(spec, threads=4)).open()
    assert len(entries(spec)) == 1
