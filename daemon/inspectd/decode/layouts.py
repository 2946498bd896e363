"""Which output layout a model has: configuration, what the file says, shapes, in that order; a tie is refused. Pure.

Shape alone does not decide: [1, 300, 6] has three meanings, and with two classes a raw head is 6 wide as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inspectd.decode.signatures import SIGNATURES, Fit, Head, Output
from inspectd.errors import ModelRefused

__all__ = ["Claim", "Head", "Layout", "LayoutRefused", "Output", "recognise"]


@dataclass(frozen=True, slots=True)
class Claim:
    """What the model file says about its layout."""

    layout: str
    source: str
    """Where: `metadata.yaml end2end`."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What was recognised."""

    name: str
    decided_by: str
    """`configuration`, `shape`, or the place in the file."""
    order: tuple[int, ...]
    """Indexes of the outputs that the decoder gets, in its order."""
    class_count: int | None
    """From the output's width where that has it; may be more than were named."""
    has_no_object: bool = False
    """`detr` only: one column more than classes, the last is "no object"."""


class LayoutRefused(ModelRefused):
    """The outputs are no layout that can be read, or could be several: `candidates`."""

    def __init__(self, message: str, candidates: Sequence[str]) -> None:
        super().__init__(message)
        self.candidates = tuple(candidates)


def recognise(model: str, head: Head, claim: Claim | None, configured: str | None, served: Sequence[str]) -> Layout:
    """Name the layout. Raises LayoutRefused: contradiction, tie, nothing fits, or not one of `served`.

    Where no layout has exactly the classes that are named, one with more is taken if it is the only one: names that
    are missing become numbers.
    """
    if configured is not None and configured not in served:
        raise LayoutRefused(f"{model}: unknown layout {configured!r}; this version decodes {_listed(served)}", ())
    if configured and claim and configured != claim.layout:
        raise LayoutRefused(
            f"{model}: configuration says layout: {configured}, the file says {claim.layout} ({claim.source}); "
            "correct the line or leave it out",
            (configured, claim.layout),
        )
    said, source = (configured, "configuration") if configured else (claim.layout, claim.source) if claim else ("", "")
    if said and said not in served:
        raise _not_served(model, said, source, head, served)
    fitting = _fitting(head)
    if not (said in fitting if said else fitting):
        fitting = fitting | _fitting_with_more_classes(head) if said else _fitting_with_more_classes(head)
    if said and said not in fitting:
        raise LayoutRefused(
            f"{model}: {source} says layout {said}, but the outputs {_shapes(head)} with {_classes(head)} do not fit it"
            + (f"; they would fit {_listed(list(fitting))}" if fitting else "")
            + f"{_room(head)}; check `layout` and `classes`",
            tuple(fitting),
        )
    if not fitting:
        raise LayoutRefused(
            f"{model}: the outputs {_shapes(head)} with {_classes(head)} are no known detector layout"
            f"{_room(head)}; this version decodes {_listed(served)}; check that `classes` "
            "are this model's, or export the model again",
            (),
        )
    if not said and len(fitting) > 1:
        lines = [f"`layout: {name}`" for name in fitting]
        raise LayoutRefused(
            f"{model}: the outputs {_shapes(head)} with {_classes(head)} can be {_listed(list(fitting))}, and the file "
            f"does not say which; add the right line under the model: {_listed(lines)}",
            tuple(fitting),
        )
    name, decided_by = (said, source) if said else (next(iter(fitting)), "shape")
    if name not in served:
        raise _not_served(model, name, decided_by, head, served)
    fit = fitting[name]
    return Layout(name, decided_by, fit.order, fit.class_count, fit.has_no_object)


def _fitting(head: Head) -> dict[str, Fit]:
    fits = ((name, signature(head)) for name, signature in SIGNATURES.items())
    return {name: fit for name, fit in fits if fit is not None}


def _fitting_with_more_classes(head: Head) -> dict[str, Fit]:
    named = head.class_count or 0
    any_number = _fitting(replace(head, class_count=None))
    return {name: fit for name, fit in any_number.items() if fit.class_count is not None and fit.class_count > named}


def _not_served(model: str, name: str, decided_by: str, head: Head, served: Sequence[str]) -> LayoutRefused:
    return LayoutRefused(
        f"{model}: found layout {name} (by {decided_by}; outputs {_shapes(head)}), which this version does not "
        f"decode; it decodes {_listed(served)}: export the model with one of these",
        (name,),
    )


def _room(head: Head) -> str:
    """Say how many classes there is room for, where another number was given."""
    if head.class_count is None:
        return ""
    rooms = {fit.class_count: name for name, fit in _fitting(replace(head, class_count=None)).items()}
    told = [f"as {name} there is room for {count} classes" for count, name in rooms.items() if count]
    return f"; {' or '.join(told)}" if told else ""


def _shapes(head: Head) -> str:
    return ", ".join(f"{output.name} {list(output.shape)}".strip() for output in head.outputs)


def _classes(head: Head) -> str:
    if head.class_count is None:
        return "unknown classes"
    return f"{head.class_count} class{'es' if head.class_count != 1 else ''}"


def _listed(names: Sequence[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 2 else names)
