"""Trains the demo's defect model on simulated boards only and writes it as OpenVINO IR with FP16 weights.

    python tools/train_demo_model.py --work build/demo-model        # draw, train, export
    python tools/train_demo_model.py --work build/demo-model        # stopped: goes on; done: only exports again

Needs PyTorch beside inspectd's own requirements, and `daemon` on PYTHONPATH. What step n learns depends on n alone, so
that a run that was stopped ends as one that was not.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import cv2
import numpy as np
import openvino  # type: ignore[import-untyped]  # it has no types
import torch

from demo_data import Sample, keep_samples, vary
from demo_model import Exported, Net, loss
from demo_pictures import CLASSES, INPUT_PX, PAD_VALUE

CONFIDENCE, IOU = 0.5, 0.5
"""What the model file recommends."""
SEED = 1
BATCH = 8
TOP_RATE, WARM_STEPS = 4e-3, 50
KEEP = 0.98
"""Share of the averaged weights that a step leaves: the rate falls to zero, so that a short average is enough."""
SAVE_STEPS = 50


def train(net: Net, averaged: Net, samples: Sequence[Sample], steps: int, checkpoint: Path) -> None:
    """Train to `steps` in all, from the checkpoint if there is one; writes it every 50 steps."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=TOP_RATE, weight_decay=0.02)
    done = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        if state["steps"] != steps:
            raise SystemExit(f"{checkpoint} is of a run of {state['steps']} steps, wanted are {steps}: remove it")
        net.load_state_dict(state["net"])
        averaged.load_state_dict(state["averaged"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["done"]
    net.train()
    began_s, mean = time.monotonic(), 0.0
    for step in range(done, steps):
        for group in optimizer.param_groups:
            group["lr"] = TOP_RATE * min(1.0, (step + 1) / WARM_STEPS) * (1 + math.cos(math.pi * step / steps)) / 2
        rng = Random(f"{SEED}/{step}")
        batch = [vary(samples[index], rng) for index in chosen(step, len(samples))]
        pictures = torch.from_numpy(np.stack([values for values, _ in batch]))
        cost = loss(net(pictures.to(memory_format=torch.channels_last)), [boxes for _, boxes in batch])
        optimizer.zero_grad()
        cost.backward()  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped
        torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        optimizer.step()
        average(averaged, net, min(KEEP, (step + 1) / (step + 10)))
        mean += (cost.item() - mean) / min(step - done + 1, SAVE_STEPS)
        if (step + 1) % SAVE_STEPS == 0 or step + 1 == steps:
            keep(checkpoint, net, averaged, optimizer, step + 1, steps)
            print(f"step {step + 1} of {steps}, loss {mean:.3f}, {time.monotonic() - began_s:.0f} s", flush=True)


def chosen(step: int, count: int) -> list[int]:
    """Which samples step n sees: all of them once in each round, every round in another order."""
    places = range(step * BATCH, (step + 1) * BATCH)
    orders = {place // count: Random(f"{SEED}/round/{place // count}").sample(range(count), count) for place in places}
    return [orders[place // count][place % count] for place in places]


def average(averaged: Net, net: Net, share: float) -> None:
    """Move the averaged weights towards the trained ones."""
    with torch.no_grad():
        for mine, theirs in zip(averaged.state_dict().values(), net.state_dict().values(), strict=True):
            if mine.dtype.is_floating_point:
                mine.lerp_(theirs, 1 - share)
            else:
                mine.copy_(theirs)


def keep(path: Path, net: Net, averaged: Net, optimizer: torch.optim.Optimizer, done: int, steps: int) -> None:
    """Write the checkpoint; a stop in between leaves the one before."""
    parts = {"net": net, "averaged": averaged, "optimizer": optimizer}
    torch.save(
        {name: part.state_dict() for name, part in parts.items()} | {"done": done, "steps": steps}, f"{path}.new"
    )
    Path(f"{path}.new").replace(path)


def export(net: Net, path: Path) -> None:
    """Write the IR with FP16 weights and what the daemon needs to know about it."""
    model = openvino.convert_model(
        Exported(copy.deepcopy(net)).eval(),
        example_input=torch.zeros(1, 3, INPUT_PX, INPUT_PX),
        input=[1, 3, INPUT_PX, INPUT_PX],
    )
    model.inputs[0].get_tensor().set_names({"images"})
    model.outputs[0].get_tensor().set_names({"output0"})
    facts = {
        "model_type": "yolo",
        "labels": " ".join(CLASSES),
        "resize_type": "fit_to_window_letterbox",
        "pad_value": PAD_VALUE,
        "scale_values": 255,
        "reverse_input_channels": True,
        "confidence_threshold": CONFIDENCE,
        "iou_threshold": IOU,
    }
    for key, value in facts.items():
        model.set_rt_info(value, ["model_info", key])
    path.parent.mkdir(parents=True, exist_ok=True)
    openvino.save_model(model, path, compress_to_fp16=True)


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the pictures and the checkpoint")
    parser.add_argument("--steps", type=int, default=2400, help="of 8 pictures each")
    parser.add_argument("--lines", type=int, default=300, help="training lines (seeds), of 10 pictures each")
    parser.add_argument("--output", type=Path, default=Path("config/models/pcb-demo.xml"), help="the IR to write")
    options = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_num_threads(2)
    cv2.setNumThreads(1)
    options.work.mkdir(parents=True, exist_ok=True)
    net = Net().to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # PyTorch's types lack it
    averaged = copy.deepcopy(net)
    print(f"{sum(p.numel() for p in net.parameters())} parameters", flush=True)
    train(net, averaged, keep_samples(options.work, options.lines), options.steps, options.work / "checkpoint.pt")
    export(averaged, options.output)


if __name__ == "__main__":
    main()
