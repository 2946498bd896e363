"""What `inspectd model` says of a model: who says each value, what is to be pasted, and no more than scores show."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from inspectd.decode.layouts import Layout, Output
from inspectd.decode.preparation import DETR, Color, Resize
from inspectd.engine import ModelSpec
from inspectd.engine.description import DeviceAnswer, ModelDescription, Net, describe
from inspectd.engine.modelfile import FileWords
from inspectd.engine.preprocessing import Numbers, preprocessing
from inspectd.engine.sourced import Source, Sourced
from inspectd.model_report import Inspected, document, refusal_document, report
from inspectd.model_trial import COLORS, WAYS, Score, Trial, Trials, Way, advice, score, to_json
from inspectd.model_yaml import input_numbers, model_yaml, uses_iou
from inspectd.records import ModelFacts

FACTS = ModelFacts("pcb", "detect", "CPU", "f32", "0" * 64, (), 1, 64, 64, "yolo", 0.0123)
USED = Score(4, 0.6, 0.2)


def described(info: dict[str, str] | None = None, class_count: int = 2, **given: object) -> ModelDescription:
    spec = replace(ModelSpec("pcb", Path("models/pcb.xml")), **given)  # type: ignore[arg-type]
    outputs = (Output("output0", (1, 4 + class_count, 84)),)
    net = Net(0, "NCHW", Sourced((64, 64), Source.FILE, "input shape"), False, None, outputs, ())
    return describe(spec, "a" * 64, FileWords({}, "metadata.yaml", info or {}), net)


def pasted(model: ModelDescription, device: str = "CPU") -> str:
    return model_yaml(model, path="/srv/models/pcb.xml", device=device, precision="auto")


def shown(model: ModelDescription, tried: Trials | None = None) -> str:
    devices = (DeviceAnswer("CPU", "A CPU", True), DeviceAnswer("NPU", "", False, "3 operations are unknown to it"))
    out = io.StringIO()
    seen = Inspected(replace(model, devices=devices), FACTS, pasted(model), ("class 7 was found",), tried)
    Console(file=out, width=100, highlight=False).print(report(seen))
    return out.getvalue()


def trials(
    scores: dict[Way, Score], *, color: Color = "rgb", resize: Resize = "letterbox", source: Source = Source.ASSUMED
) -> Trials:
    """Every way scores as the one in use, but for `scores`."""
    where = {Source.FILE: "rt_info reverse_input_channels"}.get(source, "default of Ultralytics")
    return Trials(
        ("a.png",),
        0.1,
        Sourced(color, source, where),
        Sourced(resize, source, where),
        tuple(Trial(way, (scores.get(way, USED),)) for way in WAYS),
    )


def test_every_value_is_marked_with_who_says_it() -> None:
    text = shown(described({"labels": "open short", "pad_value": "0"}, color="bgr"))
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
    assert rows["layout"][:2] == ["yolo", "file"]
    assert "the only one that fits output0 [1, 6, 84]" in text
    assert rows["color"] == ["bgr", "configuration", "input", "color"]
    assert rows["scale"] == ["255", "assumed", "default", "of", "Ultralytics"]
    assert rows["pad"] == ["0", "file", "rt_info", "pad_value"]
    assert rows["0"] == ["open", "1", "short"]
    assert rows["CPU"] == ["can", "run", "it", "A", "CPU"]
    assert rows["NPU"] == ["no:", "3", "operations", "are", "unknown", "to", "it"]
    assert "12.3 ms a picture" in text
    assert "! class 7 was found" in text


def test_a_long_list_of_classes_is_wrapped_and_keeps_its_numbers() -> None:
    text = shown(described({"labels": " ".join(f"kind_{i}" for i in range(80))}, class_count=80))
    assert max(map(len, text.splitlines())) <= 100
    assert all(f"{i} kind_{i} " in text.replace("\n", " \n") for i in range(80))


def test_what_is_pasted_has_all_that_was_assumed_and_leaves_the_rest_to_the_file() -> None:
    entry = yaml.safe_load(pasted(described({"labels": "open short", "pad_value": "0"}, color="bgr")))["models"]["pcb"]
    assert entry == {
        "task": "detect",
        "path": "/srv/models/pcb.xml",
        "input": {"color": "bgr", "scale": 255, "resize": "letterbox"},
        "confidence": 0.1,
        "iou": 0.5,
    }


def test_names_that_nobody_gives_are_there_to_be_corrected() -> None:
    text = pasted(described(class_count=40))
    assert yaml.safe_load(text)["models"]["pcb"]["classes"] == [f"class_{i}" for i in range(40)]
    assert "put the right names" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("name", ["mouse bite", "no", "17", "a: b", "x, y", "[z]", 'say "so"', "07", "短路", "a #b"])
def test_every_name_is_read_again_as_it_was(name: str) -> None:
    entry = yaml.safe_load(pasted(described(classes=(name, "short"))))["models"]["pcb"]
    assert entry["classes"] == [name, "short"]


@pytest.mark.parametrize(
    ("name", "expected"), [("best (2)", "best_2"), ("17", "17"), ("数", "model"), ("no", "no"), ("a.b", "a_b")]
)
def test_the_entry_has_a_name_that_the_configuration_takes(name: str, expected: str) -> None:
    text = pasted(replace(described(), name=name))
    assert list(yaml.safe_load(text)["models"]) == [expected]


@pytest.mark.parametrize(
    "numbers",
    [
        ((0.0,) * 3, (255.0,) * 3),
        ((0.0,) * 3, (1.0,) * 3),
        (DETR.subtract, DETR.divide),
        ((0.1 + 0.2, 3.0, 7.0), (255.0,) * 3),
    ],
)
def test_numbers_that_are_pasted_mean_the_same(numbers: Numbers) -> None:
    """To the last digit: the file's own would contradict them otherwise."""
    spec = replace(ModelSpec("pcb", Path("pcb.xml")), **input_numbers(numbers))  # type: ignore[arg-type]
    assert preprocessing(spec, {}, Layout("yolo", "shape", (0,), 2)).numbers.value == numbers


def test_another_device_stands_in_the_entry() -> None:
    assert yaml.safe_load(pasted(described(), "GPU.1"))["models"]["pcb"]["devices"] == ["GPU.1"]


@pytest.mark.parametrize(
    ("layout", "has_overlaps"),
    [("yolo", True), ("yolov5-seg", True), ("yolox-decoded", True), ("yolo-end2end", False), ("ssd", False)],
)
def test_iou_is_told_only_where_boxes_overlap(layout: str, has_overlaps: bool) -> None:
    assert uses_iou(layout) == has_overlaps


def test_a_program_gets_the_same_keys_for_a_model_and_for_a_refusal() -> None:
    good = document(Inspected(described(), FACTS, "models:\n", (), trials({})))
    assert (good["refused"], good["yaml"]) == (None, "models:\n")
    assert good["color"] == {"value": "rgb", "source": "assumed", "where": "default of Ultralytics"}
    assert good["warmup"] == {"device": "CPU", "precision": "f32", "p95Ms": 12.3}
    assert len(good["try"]["ways"]) == 8
    bad = refusal_document("pcb", "pcb.xml", "pcb: two layouts", ("yolox", "yolox-decoded"))
    assert bad["refused"] == {"text": "pcb: two layouts", "candidates": ["yolox", "yolox-decoded"]}
    assert bad.keys() <= good.keys()


def test_missing_scores_count_as_nothing() -> None:
    assert score([0.75, 0.5]) == Score(2, 0.75, 0.125)
    assert score([0.5] * 12) == Score(12, 0.5, 0.5)
    assert score([]) == Score(0, 0.0, 0.0)


def test_the_way_in_use_is_marked() -> None:
    lines = [line for line in shown(described(), trials({}, color="bgr", resize="crop")).splitlines() if "◀" in line]
    assert [line.split()[:5] for line in lines] == [["bgr", "crop", "4", "0.600", "0.200"]]
    assert [way["inUse"] for way in to_json(trials({}))["ways"]] == [True] + [False] * 7


def test_wrong_colours_are_told_with_the_line_to_add() -> None:
    better = {way: Score(5, 0.9, 0.4) for way in WAYS if way.color == "bgr"}
    said = advice(trials(better))
    assert said.startswith("bgr letterbox scores clearly higher (best 0.90) than rgb letterbox (best 0.60)")
    assert "add `input: {color: bgr}` under the model" in said
    assert "write `input:" in advice(trials(better, source=Source.CONFIGURATION))


def test_what_the_file_says_no_line_can_change() -> None:
    """Such a line would be refused as a contradiction."""
    said = advice(trials({Way("bgr", "letterbox"): Score(5, 0.9, 0.4)}, source=Source.FILE))
    assert "the file says color rgb (rt_info reverse_input_channels)" in said
    assert "exported again" in said
    assert "`input:" not in said


@pytest.mark.parametrize("other", [Score(25, 0.60, 0.47), Score(25, 0.65, 0.47), Score(2, 0.95, 0.19)])
def test_more_detections_or_one_higher_score_alone_prove_nothing(other: Score) -> None:
    """Of drawn boards a cut of the middle gave four times as many detections: false alarms."""
    assert advice(trials({Way("rgb", "crop"): other})).startswith("No way scores clearly higher than rgb letterbox")


def test_a_way_that_is_worse_on_one_picture_is_not_called_better() -> None:
    many = trials({})
    scores = {Way("bgr", "letterbox"): (Score(9, 0.5, 0.4), Score(9, 0.95, 0.5))}
    used = (Score(4, 0.6, 0.2), Score(4, 0.2, 0.1))
    tried = replace(many, images=("a", "b"), trials=tuple(Trial(way, scores.get(way, used)) for way in WAYS))
    assert advice(tried).startswith("No way scores clearly higher")


def test_grey_pictures_tell_no_colour_order_and_square_ones_no_resize() -> None:
    grey = {Way(color, "crop"): Score(3, 0.5, 0.1) for color in COLORS}
    assert advice(trials(grey)).endswith("Here RGB and BGR score alike, which tells nothing of them.")
    assert "Here all resizes score alike" in advice(trials({Way("bgr", "letterbox"): Score(3, 0.5, 0.1)}))
    assert "RGB and BGR and also all resizes" in advice(trials({}))
    assert "alike" not in advice(trials({**grey, Way("bgr", "letterbox"): Score(3, 0.5, 0.1)}))


def test_nothing_found_is_said_and_not_called_right() -> None:
    assert advice(trials(dict.fromkeys(WAYS, Score(0, 0.0, 0.0)))).startswith("No way finds anything from 0.1 up")


def test_a_way_without_an_answer_is_never_the_better_one() -> None:
    tried = trials({})
    failing = tuple(Trial(way, (), "pcb: noise") if way.resize == "crop" else Trial(way, (USED,)) for way in WAYS)
    assert advice(replace(tried, trials=failing)).startswith("No way scores clearly higher")
    assert "no answer: pcb: noise" in shown(described(), replace(tried, trials=failing))
    in_use = advice(replace(trials({}, resize="crop"), trials=failing))
    assert in_use == "rgb crop, the one in use, gave no answer: pcb: noise"


def test_a_cut_is_not_advised_without_its_price() -> None:
    assert "does not look at what lies outside" in advice(trials({Way("rgb", "crop"): Score(9, 0.9, 0.5)}))
