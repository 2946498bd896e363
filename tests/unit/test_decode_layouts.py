"""Which layout a model has: configuration, file, shapes; a tie and a contradiction are refused with both named."""

from __future__ import annotations

from typing import get_args

import pytest

from inspectd.config.fields import LayoutName
from inspectd.config.fields import Resize as ConfiguredResize
from inspectd.decode import DECODERS
from inspectd.decode.layouts import Claim, Head, LayoutRefused, Output, recognise
from inspectd.decode.preparation import ALTERNATIVES, MAKERS, Resize
from inspectd.errors import ModelRefused

SERVED = tuple(DECODERS)


def head(*shapes: tuple[int, ...], classes: int | None = 6, size: tuple[int, int] = (640, 640)) -> Head:
    return Head(tuple(Output("", shape) for shape in shapes), (), *size, classes)


BOXES_LABELS = Head((Output("boxes", (1, 300, 5)), Output("labels", (1, 300), is_integer=True)), (), 640, 640, 6)
DFINE = Head(
    (Output("labels", (1, 300), is_integer=True), Output("boxes", (1, 300, 4)), Output("scores", (1, 300))),
    ("orig_target_sizes",),
    640,
    640,
    6,
)


def test_the_tables_name_the_same_layouts() -> None:
    """Decoders, makers' preprocessing, and what may stand in the YAML."""
    assert list(get_args(LayoutName)) == list(DECODERS)
    assert list(MAKERS) == list(DECODERS)
    assert ALTERNATIVES.keys() <= MAKERS.keys()
    assert get_args(ConfiguredResize) == get_args(Resize)


def test_a_raw_head_is_told_by_its_shape() -> None:
    layout = recognise("defects", head((1, 10, 8400)), None, None, SERVED)
    assert (layout.name, layout.decided_by, layout.class_count) == ("yolo", "shape", 6)


def test_the_width_tells_how_many_classes_there_are_where_nobody_names_them() -> None:
    assert recognise("defects", head((1, 10, 8400), classes=None), None, None, SERVED).class_count == 6


@pytest.mark.parametrize(
    ("rows", "size"), [(2000, (640, 640)), (8500, (640, 640)), (34000, (640, 640)), (84, (64, 64))]
)
def test_heads_with_other_levels_are_raw_heads_too(rows: int, size: tuple[int, int]) -> None:
    """Tiny ones have two levels, P6 and P2 four."""
    assert recognise("defects", head((1, 10, rows), classes=None, size=size), None, None, SERVED).name == "yolo"


def test_a_table_that_fits_no_grid_is_no_raw_head_unless_the_classes_say_so() -> None:
    """[1, 80, 6625] is text recognition: 80 places and 6625 characters."""
    with pytest.raises(LayoutRefused, match="no known detector layout"):
        recognise("text", head((1, 80, 6625), classes=None), None, None, SERVED)
    assert recognise("defects", head((1, 10, 5000)), None, None, SERVED).name == "yolo"


def test_the_transposed_raw_head_needs_a_known_number_of_classes() -> None:
    """[1, 8400, 11] is a transposed yolo of seven classes or a YOLOX of six."""
    assert recognise("defects", head((1, 8400, 10)), None, None, SERVED).name == "yolo"
    with pytest.raises(ModelRefused, match="yolox or yolox-decoded"):
        recognise("defects", head((1, 8400, 11), classes=None), None, None, SERVED)


def test_three_hundred_by_six_is_a_tie_and_the_refusal_gives_the_lines_to_add() -> None:
    """It has three meanings."""
    with pytest.raises(LayoutRefused, match="`layout: yolo-end2end` or `layout: rtdetr`") as raised:
        recognise("defects", head((1, 300, 6)), None, None, SERVED)
    assert raised.value.candidates == ("yolo-end2end", "rtdetr")
    with pytest.raises(ModelRefused, match="detr-probs"):
        recognise("defects", head((1, 300, 6), classes=2), None, None, SERVED)


def test_the_two_yoloxes_are_a_tie_that_only_a_line_breaks() -> None:
    with pytest.raises(LayoutRefused, match="`layout: yolox` or `layout: yolox-decoded`") as raised:
        recognise("defects", head((1, 8400, 11)), None, None, SERVED)
    assert raised.value.candidates == ("yolox", "yolox-decoded")
    assert recognise("defects", head((1, 8400, 11)), None, "yolox-decoded", SERVED).name == "yolox-decoded"


@pytest.mark.parametrize("name", ["metadata.yaml end2end", "metadata.yaml args.nms"])
def test_the_file_breaks_the_tie(name: str) -> None:
    layout = recognise("defects", head((1, 300, 6)), Claim("yolo-end2end", name), None, SERVED)
    assert (layout.name, layout.decided_by) == ("yolo-end2end", name)


def test_the_configuration_breaks_the_tie() -> None:
    layout = recognise("defects", head((1, 300, 6)), None, "yolo-end2end", SERVED)
    assert (layout.name, layout.decided_by) == ("yolo-end2end", "configuration")


def test_a_contradiction_names_both() -> None:
    with pytest.raises(ModelRefused, match=r"says layout: yolo,.*says yolo-end2end \(metadata.yaml end2end\)"):
        recognise("defects", head((1, 300, 6)), Claim("yolo-end2end", "metadata.yaml end2end"), "yolo", SERVED)


def test_a_layout_that_the_shapes_contradict_is_refused() -> None:
    with pytest.raises(ModelRefused, match=r"yolo-end2end, but the outputs \[1, 10, 8400\].*would fit yolo"):
        recognise("defects", head((1, 10, 8400)), None, "yolo-end2end", SERVED)


@pytest.mark.parametrize("configured", [None, "yolo"])
def test_too_few_names_are_completed_and_too_many_are_refused(configured: str | None) -> None:
    """The classes beyond the names become numbers; names beyond the classes mean another model."""
    layout = recognise("defects", head((1, 10, 8400), classes=5), None, configured, SERVED)
    assert (layout.name, layout.class_count) == ("yolo", 6)
    with pytest.raises(ModelRefused, match=r"with 7 classes.*room for 6 classes"):
        recognise("defects", head((1, 10, 8400), classes=7), None, configured, SERVED)


@pytest.mark.parametrize(
    ("given", "name", "order"),
    [
        (head((1, 25200, 11)), "yolov5", (0,)),
        (head((1, 25200, 11), classes=None), "yolov5", (0,)),
        (head((1, 300, 10)), "detr-probs", (0,)),
        (head((1, 300, 369), classes=365), "detr-probs", (0,)),
        (head((1, 300, 6), (1, 300, 4)), "detr", (0, 1)),
        (head((1, 300, 4), (1, 300, 6), classes=None), "detr", (1, 0)),
        (head((1, 1, 300, 7)), "ssd", (0,)),
        (head((1, 1, -1, 7)), "ssd", (0,)),
        (head((1, 42, 8400), (1, 32, 160, 160)), "yolo-seg", (0,)),
        (head((1, 32, 160, 160), (1, 300, 38)), "yolo-end2end-seg", (1,)),
        (head((1, 25200, 43), (1, 32, 160, 160)), "yolov5-seg", (0,)),
        (BOXES_LABELS, "boxes-labels", (0, 1)),
        (DFINE, "dfine", (0, 1, 2)),
    ],
)
def test_every_other_layout_is_told_by_its_shapes(given: Head, name: str, order: tuple[int, ...]) -> None:
    layout = recognise("defects", given, None, None, SERVED)
    assert (layout.name, layout.decided_by, layout.order) == (name, "shape", order)


def test_a_column_more_than_classes_is_no_object() -> None:
    """The original DETR; a DETR of its descendants has exactly the classes."""
    layout = recognise("defects", head((1, 100, 7), (1, 100, 4)), None, None, SERVED)
    assert (layout.name, layout.class_count, layout.has_no_object) == ("detr", 6, True)
    assert not recognise("defects", head((1, 300, 6), (1, 300, 4)), None, None, SERVED).has_no_object


def test_four_classes_make_logits_and_boxes_alike_and_the_names_decide() -> None:
    named = Head((Output("pred_boxes", (1, 300, 4)), Output("logits", (1, 300, 4))), (), 640, 640, 4)
    assert recognise("defects", named, None, None, SERVED).order == (1, 0)
    with pytest.raises(LayoutRefused, match="no known detector layout"):
        recognise("defects", head((1, 300, 4), (1, 300, 4), classes=4), None, None, SERVED)


@pytest.mark.parametrize(
    ("given", "claim", "name"),
    [
        (head((1, 56, 8400), classes=1), Claim("yolo-pose", "metadata.yaml task"), "yolo-pose"),
        (head((1, 11, 8400)), Claim("yolo-obb", "metadata.yaml task"), "yolo-obb"),
        (head((1, 6)), Claim("yolo-cls", "metadata.yaml task"), "yolo-cls"),
        (
            Head((Output("pred_score", (1,)), Output("anomaly_map", (1, 1, 256, 256))), (), 256, 256, None),
            None,
            "anomaly",
        ),
    ],
)
def test_a_layout_that_is_not_decoded_is_refused_by_its_name(given: Head, claim: Claim | None, name: str) -> None:
    with pytest.raises(LayoutRefused, match=f"found layout {name} .*decodes yolo, yolo-end2end") as raised:
        recognise("defects", given, claim, None, SERVED)
    assert raised.value.candidates == (name,)


def test_a_classifier_is_no_detector() -> None:
    with pytest.raises(ModelRefused, match="no known detector layout"):
        recognise("defects", head((1, 1000)), None, None, SERVED)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ModelRefused, match="unknown layout 'yolo8'"):
        recognise("defects", head((1, 10, 8400)), None, "yolo8", SERVED)
