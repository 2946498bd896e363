"""What a test orders to go wrong inside a model child: one small file a model, read at every inference.

The test writes it (`Orders`); the child reads it and claims each time that it obeys, so that "once" holds across
children that are replaced, and the test sees how often the fault has really happened.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

FOLDER_VARIABLE = "FAULT_ORDERS"
"""Environment: the folder of the orders."""
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Order:
    """One fault. `do` is a key of the tables in op.py and runtime.py."""

    do: str
    times: int | None = None
    """How often it is obeyed, over all children; None: until it is withdrawn."""
    seconds: float = 0.0
    text: str = ""
    number: int = 0


class Orders:
    """Orders to the children of one daemon, by model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._given: dict[str, int] = {}

    @property
    def environment(self) -> dict[str, str]:
        """For the daemon: where orders lie, and the folder that makes Python obey them, before all others."""
        here = Path(__file__).resolve().parent
        folders = (str(here), str(here.parents[2]), os.environ.get("PYTHONPATH", ""))
        return {FOLDER_VARIABLE: str(self.folder), "PYTHONPATH": os.pathsep.join(filter(None, folders))}

    def give(self, model: str, do: str, *, times: int | None = None, seconds: float = 0.0, text: str = "") -> None:
        """Order a fault; the one before is forgotten."""
        self._given[model] = next(_numbers)
        order = Order(do, times, seconds, text, self._given[model])
        unfinished = self.folder / f"{model}.unfinished"
        unfinished.write_text(json.dumps(asdict(order)), "ascii")
        unfinished.replace(_file(self.folder, model))

    def withdraw(self, model: str) -> None:
        """From now on the model is sound; what hangs already goes on hanging."""
        _file(self.folder, model).unlink(missing_ok=True)

    def obeyed(self, model: str) -> int:
        """How often the last order has been obeyed so far."""
        return sum(1 for _ in self.folder.glob(f"{model}.{self._given.get(model, 0)}.*.claim"))


def claimed(folder: Path, model: str, kinds: frozenset[str]) -> Order | None:
    """Read the order in force if it is one of these kinds, and claim one of its times. In the child."""
    try:
        order = Order(**json.loads(_file(folder, model).read_text("ascii")))
    except FileNotFoundError:
        return None
    if order.do not in kinds:
        return None
    for time in range(order.times) if order.times is not None else count(_next_claim(order.number)):
        try:
            os.close(os.open(folder / f"{model}.{order.number}.{time}.claim", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            continue
        _claims[order.number] = time + 1
        return order
    return None


_claims: dict[int, int] = {}
"""Order → first place that may be free: what is obeyed a thousand times does not look from the beginning."""


def _next_claim(number: int) -> int:
    return _claims.get(number, 0)


def _file(folder: Path, model: str) -> Path:
    return folder / f"{model}.json"
