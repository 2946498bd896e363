"""An operation in the graph that fails on demand, inside the true CPU plugin. Loaded by model children only."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov  # type: ignore[import-untyped]
from tests.faults.inject.orders import FOLDER_VARIABLE, Order, claimed

LEAK_BYTES_A_SECOND = 50e6
ROW_VALUES = 6
"""x1 y1 x2 y2 score class."""

_leaked: list[bytearray] = []
_leaked_until_s = time.monotonic()


def _hang(_order: Order) -> None:
    """As a driver that waits for its device: the thread is lost, others go on."""
    threading.Event().wait()


def _freeze(_order: Order) -> None:
    """As native code that holds the interpreter's lock: no thread of the child does anything any more."""
    ctypes.PyDLL(None).pause()


def _slow(order: Order) -> None:
    time.sleep(order.seconds)


def _raise(order: Order) -> None:
    raise RuntimeError(order.text)


def _leak(_order: Order) -> None:
    global _leaked_until_s  # noqa: PLW0603 - a leak is what nobody holds on to
    now = time.monotonic()
    size = int(LEAK_BYTES_A_SECOND * min(1.0, now - _leaked_until_s))
    _leaked.append(bytearray(b"\1") * size)
    _leaked_until_s = now


def _abort(_order: Order) -> None:
    os.abort()


def _crash(_order: Order) -> None:
    signal.raise_signal(signal.SIGSEGV)


_BEFORE: dict[str, Callable[[Order], None]] = {
    "hang": _hang,
    "freeze": _freeze,
    "slow": _slow,
    "raise": _raise,
    "leak": _leak,
    "abort": _abort,
    "crash": _crash,
}


def _nan(output: Any) -> None:
    output.data[0, 0, 4] = np.nan


def _noise(output: Any) -> None:
    output.data[...] = np.random.default_rng().normal(0, 100, output.data.shape)


def _narrow(output: Any) -> None:
    kept = output.data[:, :, :-1].copy()
    output.shape = list(kept.shape)
    output.data[...] = kept


_AFTER: dict[str, Callable[[Any], None]] = {"nan": _nan, "noise": _noise, "narrow": _narrow}
KINDS = frozenset(_BEFORE) | frozenset(_AFTER)


class FaultOp(ov.Op):  # type: ignore[misc]
    """Hands its input on, [1, M, 6], unless something else is ordered.

    M is open: of a fixed shape the plugin gives the memory as it is, whatever the operation made of it.
    """

    model = ""
    """Whose child this is; empty: nobody's, the operation is sound."""

    def __init__(self, inputs: list[Any] | None = None) -> None:
        super().__init__(self)
        if inputs is not None:
            self.set_arguments(inputs)
            self.constructor_validate_and_infer_types()

    def validate_and_infer_types(self) -> None:
        self.set_output_type(0, self.get_input_element_type(0), ov.PartialShape([1, -1, ROW_VALUES]))

    def clone_with_new_inputs(self, inputs: list[Any]) -> FaultOp:
        return FaultOp(inputs)

    def visit_attributes(self, _visitor: Any) -> bool:
        return True

    def has_evaluate(self) -> bool:
        return True

    def evaluate(self, outputs: list[Any], inputs: list[Any]) -> bool:
        order = claimed(Path(os.environ[FOLDER_VARIABLE]), FaultOp.model, KINDS) if FaultOp.model else None
        if order is not None and order.do in _BEFORE:
            _BEFORE[order.do](order)
        outputs[0].shape = inputs[0].shape
        inputs[0].copy_to(outputs[0])
        if order is not None and order.do in _AFTER:
            _AFTER[order.do](outputs[0])
        return True
