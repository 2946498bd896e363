"""How pixels become a net's numbers, and what each layout's maker does where nobody says otherwise. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

Color = Literal["rgb", "bgr"]
Resize = Literal["letterbox", "letterbox_topleft", "stretch", "crop"]
Triple = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Preparation:
    """The net gets (x - subtract) / divide per channel, in the order of `color`, x in 0..255."""

    color: Color
    subtract: Triple
    divide: Triple
    resize: Resize
    pad: int
    """0..255, in all channels, where a letterbox leaves the input empty."""


ULTRALYTICS = Preparation("rgb", (0.0,) * 3, (255.0,) * 3, "letterbox", 114)
"""`LetterBox` and division by 255 (ultralytics/data/augment.py, engine/predictor.py); YOLOv5 alike."""
YOLOX = Preparation("bgr", (0.0,) * 3, (1.0,) * 3, "letterbox_topleft", 114)
"""`preproc` in yolox/data/data_augment.py: no scale, no colour change, the picture at the top left."""
STRETCHED = replace(ULTRALYTICS, resize="stretch")
"""RT-DETR (Ultralytics: scale_fill; lyuwenyu and Hugging Face: resize and 1/255), D-FINE, torchvision's SSD, OTX."""
DETR = replace(STRETCHED, subtract=(123.675, 116.28, 103.53), divide=(58.395, 57.12, 57.375))
"""The original DETR (datasets/coco.py): ImageNet's 0.485 0.456 0.406 and 0.229 0.224 0.225, × 255."""

MAKERS: Mapping[str, tuple[Preparation, str]] = MappingProxyType(
    {
        "yolo": (ULTRALYTICS, "Ultralytics"),
        "yolo-end2end": (ULTRALYTICS, "Ultralytics"),
        "yolov5": (ULTRALYTICS, "YOLOv5"),
        "yolox": (YOLOX, "YOLOX"),
        "yolox-decoded": (YOLOX, "YOLOX"),
        "rtdetr": (STRETCHED, "Ultralytics RT-DETR"),
        "detr-probs": (STRETCHED, "Ultralytics RT-DETR"),
        "detr": (STRETCHED, "RT-DETR"),
        "dfine": (STRETCHED, "D-FINE"),
        "ssd": (STRETCHED, "torchvision SSD"),
        "boxes-labels": (STRETCHED, "OTX"),
        "yolo-seg": (ULTRALYTICS, "Ultralytics"),
        "yolo-end2end-seg": (ULTRALYTICS, "Ultralytics"),
        "yolov5-seg": (ULTRALYTICS, "YOLOv5"),
    }
)
"""Layout → what its maker's own code does, and whose it is."""

ALTERNATIVES: Mapping[str, Preparation] = MappingProxyType({"yolox": ULTRALYTICS, "yolox-decoded": ULTRALYTICS})
"""What else nets of a layout are trained with. Fed in another scale their boxes fly off, which the warm-up notices."""


def makers(layout: str, *, has_no_object: bool) -> tuple[Preparation, str]:
    """Give the maker's preparation and name. A `detr` with a "no object" column is the original DETR."""
    return (DETR, "DETR") if layout == "detr" and has_no_object else MAKERS[layout]
