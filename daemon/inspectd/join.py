"""Gathers the outcomes of one frame from its models. Pure; takes each model's first outcome and no later one.

There is no clock here: each lane gives its outcome by the frame's deadline at the latest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from inspectd.records import Code, Dropped, Outcome


class Join:
    """One frame's outcomes. It is complete when every model has answered."""

    def __init__(self, models: Iterable[str]) -> None:
        """`models`: those that were to run, in YAML order."""
        self._models = tuple(models)
        self._outcomes: dict[str, Outcome] = {}

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        """What there is so far, in YAML order whoever answered first, read only."""
        return MappingProxyType({model: self._outcomes[model] for model in self._models if model in self._outcomes})

    @property
    def missing(self) -> tuple[str, ...]:
        """Models without an outcome, in YAML order."""
        return tuple(model for model in self._models if model not in self._outcomes)

    @property
    def complete(self) -> bool:
        """Whether every model has an outcome; at once true of a frame that no model was to see."""
        return len(self._outcomes) == len(self._models)

    def add(self, model: str, outcome: Outcome) -> bool:
        """Take a model's outcome and tell whether that completes the frame.

        Where the model has one already the first stands, and the answer is False: a frame is completed once.
        Raises ValueError for a model that was not to run.
        """
        if model not in self._models:
            raise ValueError(f"outcome of {model!r}, but this frame goes to {', '.join(self._models) or 'no model'}")
        if model in self._outcomes:
            return False
        self._outcomes[model] = outcome
        return self.complete

    def give_up(self, code: Code, reason: str) -> None:
        """Each missing model gets `Dropped`: the frame's inspection is lost, and the result names all that were to run.

        A camera that died, or a stop, is no model's fault; `decide` is told of it besides.
        """
        for model in self.missing:
            self._outcomes[model] = Dropped(code, reason)
