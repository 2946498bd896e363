"""The `decision` section of the YAML. Frozen, no I/O; part of `schema`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from inspectd.config.fields import Fraction, Id, Names, Part, Point


class RuleSpec(Part):
    """Counts what matches; a count outside min_count..max_count gives the evaluation."""

    id: Id
    camera: Id | None = None
    model: Id | None = None
    class_: Names | None = Field(default=None, alias="class")
    """None: every class."""
    min_confidence: Fraction | None = None
    """None: everything that the model records."""
    min_count: Annotated[int, Field(ge=0)] = 0
    max_count: Annotated[int, Field(ge=0)] | None = 0
    """An explicit null: no upper limit. With min_count 0 such a rule only names classes that are allowed."""
    evaluation: Literal["notOk", "notDecidable"]
    code: int | None = None
    min_area_px: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    region: Annotated[tuple[Point, ...], Field(strict=False)] | None = None
    """Polygon in px of the camera's picture; a detection belongs to it by its centre."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        first, last = (110, 199) if self.evaluation == "notOk" else (200, 299)
        if self.code is not None and self.code != self._default_code and not first <= self.code <= last:
            raise PydanticCustomError(
                "rule_code",
                "code {code} does not fit `evaluation: {evaluation}`; give {first} to {last}, "
                "or leave it out for {default}",
                {
                    "at": "code",
                    "code": self.code,
                    "evaluation": self.evaluation,
                    "first": first,
                    "last": last,
                    "default": self._default_code,
                },
            )
        if self.max_count is not None and self.min_count > self.max_count:
            raise PydanticCustomError(
                "rule_counts",
                "min_count {min_count} is above max_count {max_count}, so that no count is right; "
                "give max_count too (null: no limit)",
                {"at": "max_count", "min_count": self.min_count, "max_count": self.max_count},
            )
        return self

    @property
    def _default_code(self) -> int:
        return 100 if self.evaluation == "notOk" else 200

    @property
    def result_code(self) -> int:
        """What the result says as its resultEvaluationCode when this rule speaks."""
        return self._default_code if self.code is None else self.code


class Decision(Part):
    """How detections become a verdict."""

    unlisted: Literal["ok", "notOk", "notDecidable"] = "notOk"
    """A class that was found and that no rule names."""
    rules: Annotated[tuple[RuleSpec, ...], Field(strict=False)] = ()
    """Without any, every recorded detection is notOk."""
