"""Trains the demo's defect model on simulated boards only, writes it as OpenVINO IR, and prints how good it is.

    python tools/train_demo_model.py --minutes 20 --work build/demo-model      # train, export, evaluate
    python tools/train_demo_model.py --minutes 10 --work build/demo-model      # goes on from the checkpoint
    python tools/train_demo_model.py --minutes 0 --work build/demo-model       # only export and evaluate

Needs PyTorch beside inspectd's own requirements, and `daemon` on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from pathlib import Path
from random import Random

import cv2
import numpy as np
import openvino  # type: ignore[import-untyped]  # it has no types
import torch

from demo_data import Sample, keep_samples, mosaic, sample, vary
from demo_model import BOARD, CLASSES, INPUT_PX, PAD_VALUE, Exported, Net, decode, loss, overlap

CONFIDENCE, IOU = 0.25, 0.5
"""What the model file recommends."""
TEST_SEED = 900_000
"""First seed of the test; none of them is trained on."""
BATCH, MOSAICS = 10, 6
"""Pictures of a step, and how many of them are put together from pieces, without a whole board."""
TOP_RATE = 3e-3
EMA = 0.997


def train(net: Net, averaged: Net, samples: list[Sample], minutes: float, checkpoint: Path, output: Path) -> None:
    """Train for so long; the rate falls with the time that is left. Writes checkpoint and model every two minutes."""
    rng = Random(time.time_ns())
    optimizer = torch.optim.AdamW(net.parameters(), lr=TOP_RATE, weight_decay=0.01)
    started_s = saved_s = time.monotonic()
    step, mean = 0, 0.0
    bad = [item for item in samples if len(item.boxes) > 1]
    net.train()
    while (share := (time.monotonic() - started_s) / (60 * minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = TOP_RATE * min(1.0, (step + 1) / 100) * (0.02 + 0.98 * (1 + math.cos(math.pi * share)) / 2)
        batch = [vary(mosaic(bad, rng), rng) for _ in range(MOSAICS)]
        batch += [vary(rng.choice(samples), rng) for _ in range(BATCH - MOSAICS)]
        pictures = torch.from_numpy(np.stack([values for values, _ in batch]))
        cost = loss(net(pictures), [boxes for _, boxes in batch], MOSAICS)
        optimizer.zero_grad()
        cost.backward()  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped
        torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        optimizer.step()
        step += 1
        mean += (cost.item() - mean) / min(step, 50)
        average(averaged, net, min(EMA, step / (step + 10)))
        if step % 20 == 0:
            print(f"{share:5.1%} step {step} loss {mean:.3f}", flush=True)
        if time.monotonic() - saved_s > 120:
            saved_s = time.monotonic()
            torch.save({"net": net.state_dict(), "averaged": averaged.state_dict()}, checkpoint)
            export(averaged, output)
    torch.save({"net": net.state_dict(), "averaged": averaged.state_dict()}, checkpoint)


def average(averaged: Net, net: Net, keep: float) -> None:
    """Move the averaged weights towards the trained ones."""
    with torch.no_grad():
        for mine, theirs in zip(averaged.state_dict().values(), net.state_dict().values(), strict=True):
            if mine.dtype.is_floating_point:
                mine.lerp_(theirs, 1 - keep)
            else:
                mine.copy_(theirs)


def export(net: Net, path: Path) -> None:
    """Write the IR with FP16 weights and what the daemon needs to know about it."""
    example = torch.zeros(1, 3, INPUT_PX, INPUT_PX)
    model = openvino.convert_model(
        Exported(copy.deepcopy(net)).eval(), example_input=example, input=[1, 3, INPUT_PX, INPUT_PX]
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


def evaluate(path: Path, lines: int, per_line: int) -> None:
    """Print recall (right class, IoU ≥ 0.5) and the share of good boards without a defect, on unseen lines."""
    compiled = openvino.compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": 2, "ENABLE_CPU_PINNING": False})
    answers = []
    for line in range(lines):
        for frame_id in range(per_line):
            item = sample(TEST_SEED + line, frame_id, 640, 640)
            tensor = item.pixels[None, :, :, ::-1].transpose(0, 3, 1, 2).astype(np.float32) / 255
            answers.append((item, decode(compiled(tensor)[0][0], 0.05, IOU)))
    boards = sum(len(item.boxes) > 0 for item, _ in answers)
    good = [found for item, found in answers if len(item.boxes) == 1]
    print(f"{len(answers)} pictures of {lines} unseen lines: {boards} boards, {len(good)} of them good")
    for threshold in (0.25, 0.4, 0.5):
        hits, wanted, false = [0] * len(CLASSES), [0] * len(CLASSES), 0
        for item, found in answers:
            kept = [entry for entry in found if entry[1] >= threshold]
            for row in item.boxes:
                wanted[int(row[0])] += 1
                hits[int(row[0])] += any(c == row[0] and overlap(box, row[1:]) >= 0.5 for c, _, box in kept)
            false += sum(
                all(overlap(box, row[1:]) < 0.3 for row in item.boxes if row[0] != BOARD)
                for c, _, box in kept
                if c != BOARD
            )
        clean = sum(all(c == BOARD or score < threshold for c, score, _ in found) for found in good)
        recall = " ".join(f"{name} {h}/{w}" for name, h, w in zip(CLASSES, hits, wanted, strict=True))
        total = sum(hits[:BOARD]) / max(1, sum(wanted[:BOARD]))
        print(f"at {threshold}: recall {total:.3f} ({recall})")
        print(f"    good boards clean {clean}/{len(good)} ({clean / len(good):.3f}); false defects {false}")


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long to train; 0: not at all")
    parser.add_argument("--work", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--output", type=Path, default=Path("config/models/pcb-demo.xml"), help="the IR to write")
    parser.add_argument("--lines", type=int, default=100, help="training lines (seeds)")
    parser.add_argument("--per-line", type=int, default=30, help="pictures of each")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(options.threads)
    cv2.setNumThreads(1)
    options.work.mkdir(parents=True, exist_ok=True)
    checkpoint = options.work / "checkpoint.pt"
    net = Net()
    averaged = copy.deepcopy(net)
    print(f"{sum(p.numel() for p in net.parameters())} parameters", flush=True)
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        net.load_state_dict(state["net"])
        averaged.load_state_dict(state["averaged"])
    if options.minutes > 0:
        train(
            net,
            averaged,
            keep_samples(options.work, options.lines, options.per_line),
            options.minutes,
            checkpoint,
            options.output,
        )
    export(averaged, options.output)
    evaluate(options.output, lines=50, per_line=8)


if __name__ == "__main__":
    main()
