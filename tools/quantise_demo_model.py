"""Makes the demo model's INT8 file from its FP16 file: NNCF, on calibration pictures that the simulator draws.

    python tools/quantise_demo_model.py

Needs NNCF (`pip install -e .[quantize]`), and `daemon` on PYTHONPATH; no PyTorch.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import openvino  # type: ignore[import-untyped]  # it has no types
from nncf import Dataset, QuantizationPreset, quantize
from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, OverflowFix
from numpy.typing import NDArray

from demo_pictures import crowded, plain

CALIBRATION_SEED = 500_000
"""First seed of the lines; neither trained on nor judged by."""
SIZE_PX = (640, 640)


def calibration(lines: int) -> list[NDArray[np.float32]]:
    """Give three pictures of each line as the net gets them, [1, 3, 320, 320] RGB 0..1: one crowded, two plain."""
    samples = [
        make(CALIBRATION_SEED + line, frame_id, *SIZE_PX)
        for line in range(lines)
        for frame_id, make in enumerate((crowded, plain, plain))
    ]
    return [item.pixels[None, :, :, ::-1].transpose(0, 3, 1, 2).astype(np.float32) / 255 for item in samples]


def quantise(source: Path, target: Path, pictures: list[NDArray[np.float32]]) -> None:
    """Write `target`; what `source` says of itself in rt_info/model_info goes along."""
    model = openvino.Core().read_model(source)
    quantised = quantize(
        model,
        Dataset(pictures),
        preset=QuantizationPreset.PERFORMANCE,
        subset_size=len(pictures),
        fast_bias_correction=False,
        # CPUs without VNNI add two products in 16 bit: weights of 7 bit cannot overflow there, so that the model
        # answers the same on every CPU.
        advanced_parameters=AdvancedQuantizationParameters(overflow_fix=OverflowFix.ENABLE),
    )
    for key, value in model.get_rt_info(["model_info"]).value.items():
        quantised.set_rt_info(value, ["model_info", key])
    openvino.save_model(quantised, target, compress_to_fp16=True)


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("config/models/pcb-demo.xml"), help="the FP16 IR")
    parser.add_argument("--output", type=Path, default=Path("config/models/pcb-demo-int8.xml"), help="the IR to write")
    parser.add_argument("--lines", type=int, default=100, help="calibration lines (seeds), of 3 pictures each")
    options = parser.parse_args()
    quantise(options.model, options.output, calibration(options.lines))


if __name__ == "__main__":
    main()
