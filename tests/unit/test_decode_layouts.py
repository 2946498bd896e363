"""Which layout a model has: configuration, file, shapes; a tie and a contradiction are refused with both named."""

from __future__ import annotations

import pytest

from inspectd.decode.layouts import Claim, Head, Output, recognise
from inspectd.errors import ModelRefused

SERVED = ("yolo", "yolo-end2end")


def head(*shapes: tuple[int, ...], classes: int | None = 6, size: tuple[int, int] = (640, 640)) -> Head:
    return Head(tuple(Output("", shape) for shape in shapes), (), *size, classes)


def test_a_raw_head_is_told_by_its_shape() -> None:
    layout = recognise("defects", head((1, 10, 8400)), None, None, SERVED)
    assert (layout.name, layout.decided_by, layout.class_count) == ("yolo", "shape", 6)


def test_the_width_tells_how_many_classes_there_are_where_nobody_names_them() -> None:
    assert recognise("defects", head((1, 10, 8400), classes=None), None, None, SERVED).class_count == 6


def test_the_transposed_raw_head_needs_a_known_number_of_classes() -> None:
    """[1, 8400, 11] is a transposed yolo of seven classes or a YOLOX of six."""
    assert recognise("defects", head((1, 8400, 10)), None, None, SERVED).name == "yolo"
    with pytest.raises(ModelRefused, match="yolox or yolox-decoded"):
        recognise("defects", head((1, 8400, 11), classes=None), None, None, SERVED)


def test_three_hundred_by_six_is_a_tie_and_the_refusal_gives_the_lines_to_add() -> None:
    """It has three meanings."""
    with pytest.raises(ModelRefused, match="`layout: yolo-end2end` or `layout: rtdetr`"):
        recognise("defects", head((1, 300, 6)), None, None, SERVED)
    with pytest.raises(ModelRefused, match="detr-probs"):
        recognise("defects", head((1, 300, 6), classes=2), None, None, SERVED)


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


def test_a_wrong_number_of_classes_is_refused_with_the_right_one() -> None:
    with pytest.raises(ModelRefused, match=r"with 5 classes.*room for 6 classes"):
        recognise("defects", head((1, 10, 8400), classes=5), None, None, SERVED)
    with pytest.raises(ModelRefused, match=r"with 5 classes.*room for 6 classes"):
        recognise("defects", head((1, 10, 8400), classes=5), None, "yolo", SERVED)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (head((1, 25200, 11)), "yolov5"),
        (head((1, 300, 10)), "detr-probs"),
        (head((1, 300, 6), (1, 300, 4)), "detr"),
        (head((1, 1, 300, 7)), "ssd"),
        (head((1, 42, 8400), (1, 32, 160, 160)), "yolo-seg"),
        (
            Head((Output("boxes", (1, 300, 5)), Output("labels", (1, 300), is_integer=True)), (), 640, 640, 6),
            "boxes-labels",
        ),
        (Head((Output("labels", (1, 300)),), ("orig_target_sizes",), 640, 640, 6), "dfine"),
        (Head((Output("pred_score", (1,)), Output("anomaly_map", (1, 1, 256, 256))), (), 256, 256, None), "anomaly"),
    ],
)
def test_a_layout_that_is_not_decoded_is_refused_by_its_name(given: Head, name: str) -> None:
    with pytest.raises(ModelRefused, match=f"found layout {name} .*decodes yolo or yolo-end2end"):
        recognise("defects", given, None, None, SERVED)


def test_a_classifier_is_no_detector() -> None:
    with pytest.raises(ModelRefused, match="no known detector layout"):
        recognise("defects", head((1, 1000)), None, None, SERVED)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ModelRefused, match="unknown layout 'yolo8'"):
        recognise("defects", head((1, 10, 8400)), None, "yolo8", SERVED)
