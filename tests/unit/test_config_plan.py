"""Slots, memory, threads and load, as `check` prints them and the daemon uses them."""

from __future__ import annotations

from typing import Any

import pytest

from inspectd.config.plan import plan, slots, threads_per_model
from inspectd.config.schema import Camera, Configuration, Model


def camera(**changes: Any) -> Camera:
    return Camera.model_validate({"source": {"kind": "simulator"}, "fps": 30.0, "models": ["m"], **changes})


def model(**changes: Any) -> Model:
    return Model.model_validate({"task": "detect", "path": "m.xml", **changes})


def configuration(cameras: dict[str, Camera], models: dict[str, Model]) -> Configuration:
    station = dict.fromkeys(("enterprise", "site", "area", "line", "id"), "x")
    return Configuration.model_validate({"version": 1, "station": station, "cameras": cameras, "models": models})


@pytest.mark.parametrize(
    ("fps", "deadline_ms", "queue_depth", "requests", "wanted"),
    [
        (30.0, 1000, 8, [3], 8 + 3 + 2),
        (30.0, 100, 8, [3], 3 + 3 + 2),
        (10.0, 300, 8, [2], 3 + 2 + 2),
        (0.5, 1000, 8, [2], 1 + 2 + 2),
        (30.0, 1000, 8, [3, 2], 8 + 5 + 2),
    ],
)
def test_slots_hold_what_can_wait_run_and_be_written(
    fps: float, deadline_ms: int, queue_depth: int, requests: list[int], wanted: int
) -> None:
    """min(queue_depth, ceil(fps × deadline)) + requests + 2; several models: the deepest queue, the sum of requests."""
    models = [model(queue_depth=queue_depth - place) for place in range(len(requests))]
    assert slots(camera(fps=fps, deadline_ms=deadline_ms), models, requests) == wanted


def test_a_lossless_source_without_a_rate_gets_slots_for_its_queue() -> None:
    lossless = camera(source={"kind": "simulator", "pace": "lossless"}, fps=None)
    assert slots(lossless, [model()], [2]) == 8 + 2 + 2


def test_given_slots_are_taken() -> None:
    assert slots(camera(slots=5), [model()], [2]) == 5


@pytest.mark.parametrize(
    ("models", "cores", "wanted"),
    [
        ({"a": {}}, 4, {"a": 4}),
        ({"a": {}, "b": {}}, 4, {"a": 2, "b": 2}),
        ({"a": {}, "b": {}}, 5, {"a": 3, "b": 2}),
        ({"a": {}, "b": {}, "c": {}}, 2, {"a": 1, "b": 1, "c": 1}),
        ({"a": {"threads": 3}, "b": {}}, 4, {"a": 3, "b": 1}),
        ({"a": {"cpus": [0, 1]}, "b": {}}, 4, {"a": 2, "b": 2}),
        ({"a": {"devices": ["GPU"]}, "b": {}}, 4, {"a": 4, "b": 4}),
    ],
)
def test_auto_threads_divide_the_cores(models: dict[str, dict[str, Any]], cores: int, wanted: dict[str, int]) -> None:
    """Two processes that each take every core pin each other down: the sum stays within the cores, each has one."""
    made = {name: model(**changes) for name, changes in models.items()}
    assert threads_per_model(configuration({"top": camera(models=list(models))}, made), cores) == wanted


def test_the_plan_is_readable() -> None:
    cameras = {name: camera(deadline_ms=100) for name in ("a", "b", "c", "d")}
    made = plan(
        configuration(cameras, {"m": model(devices=["GPU", "CPU"])}),
        {"a": (640, 640), "b": (640, 640), "c": (1920, 1080)},
        cores=2,
        inference_ms={"m": 7},
    )
    assert made.text() == (
        "plan\n"
        "  camera a: 7 slots × 640 × 640 × 3 = 8 MB\n"
        "  camera b: 7 slots × 640 × 640 × 3 = 8 MB\n"
        "  camera c: 7 slots × 1920 × 1080 × 3 = 42 MB\n"
        "  camera d: 7 slots, size not known before the first picture\n"
        "  model m: GPU, else CPU; requests measured at warm-up; threads 2; load 4 × 30 × 7 ms = 84 % of one core\n"
        "  together: 6 processes, at least 58 MB for frames, 2 inference threads on 2 cores"
    )


def test_a_load_that_is_not_known_yet_is_said_to_be_measured() -> None:
    cameras = {"a": camera(), "b": camera(fps=10.0)}
    (made,) = plan(configuration(cameras, {"m": model(requests=4)}), {}, cores=2).models
    assert made.load_text == "(1 × 30 + 1 × 10) pictures/s × the ms of one, measured at warm-up"
    assert made.requests == 4


def test_a_lossless_camera_loads_the_model_as_much_as_it_takes() -> None:
    cameras = {"a": camera(), "b": camera(source={"kind": "simulator", "pace": "lossless"})}
    (made,) = plan(configuration(cameras, {"m": model()}), {}, cores=2).models
    assert made.load_text == "as much as it can take (`pace: lossless` waits for it)"


def test_a_model_without_cameras_has_no_load() -> None:
    made = plan(configuration({"a": camera()}, {"m": model(), "n": model()}), {}, cores=2)
    assert made.models[1].load_text == "none: no camera uses it"
