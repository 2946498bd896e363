"""What has been counted since when: a frozen value, so that it changes with the records it counts. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from inspectd.records import SKIPPED_CODES, Evaluation, LostRun, Record

_encode = json.JSONEncoder(separators=(",", ":")).encode
_NONE: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Tally:
    """Frames (of a camera) or parts by evaluation."""

    ok: int = 0
    not_ok: int = 0
    not_decidable: int = 0
    undefined: int = 0

    @property
    def total(self) -> int:
        """All of them: what is accounted."""
        return self.ok + self.not_ok + self.not_decidable + self.undefined

    def add(self, evaluation: Evaluation, count: int) -> Tally:
        """Give the tally with `count` more of one evaluation."""
        return Tally(
            self.ok + count * (evaluation is Evaluation.OK),
            self.not_ok + count * (evaluation is Evaluation.NOT_OK),
            self.not_decidable + count * (evaluation is Evaluation.NOT_DECIDABLE),
            self.undefined + count * (evaluation is Evaluation.UNDEFINED),
        )


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts since `since_wall_s`, over restarts. All frames, simulated and challenge ones too, except in `parts`."""

    since_wall_s: float
    ok: int = 0
    not_ok: int = 0
    not_decidable: int = 0
    undefined: int = 0
    by_code: Mapping[int, int] = field(default_factory=lambda: _NONE)
    per_camera: Mapping[str, Tally] = field(default_factory=lambda: _NONE)
    parts: Tally = field(default_factory=Tally)
    triggers_accepted: int = 0
    triggers_missed: int = 0
    late: int = 0
    skipped: int = 0
    """Frames with code 301, 303 or 304."""
    verdicts_expired: int = 0
    simulated: int = 0
    challenge: int = 0
    possibly_lost: int = 0
    """Numbers of `count_is_upper_bound` runs: outside captured, and outside every other count."""
    results_lost: int = 0
    """Unsent results that a full or damaged journal had to give up."""
    events_lost: int = 0
    """Unsent events that it had to give up, and those for which there was no room while they waited for the disk."""

    @property
    def accounted(self) -> int:
        """Frames that have their record."""
        return self.ok + self.not_ok + self.not_decidable + self.undefined

    def add(self, record: Record, *, challenge: bool = False) -> Counters:
        """Give the counters with one more record in them."""
        if isinstance(record, LostRun):
            if record.count_is_upper_bound:
                return replace(self, possibly_lost=self.possibly_lost + record.count)
            return self._add(
                record.camera, Evaluation.UNDEFINED, record.code, record.count, record.simulated, challenge
            )
        decision = record.decision
        counters = self._add(record.camera, decision.evaluation, decision.code, 1, record.simulated, challenge)
        return replace(counters, late=self.late + 1) if record.is_late else counters

    def note(
        self,
        *,
        triggers_accepted: int = 0,
        triggers_missed: int = 0,
        verdicts_expired: int = 0,
        results_lost: int = 0,
        events_lost: int = 0,
    ) -> Counters:
        """Give the counters with more of what has no record of its own."""
        return replace(
            self,
            triggers_accepted=self.triggers_accepted + triggers_accepted,
            triggers_missed=self.triggers_missed + triggers_missed,
            verdicts_expired=self.verdicts_expired + verdicts_expired,
            results_lost=self.results_lost + results_lost,
            events_lost=self.events_lost + events_lost,
        )

    def to_json(self) -> str:
        """Write them as the journal keeps them; what is 0 is left out."""
        document: dict[str, Any] = {}
        for name in Counters.__slots__:
            value = getattr(self, name)
            if name == "parts":
                value = _numbers(value)
            elif name == "per_camera":
                value = {camera: _numbers(tally) for camera, tally in value.items()}
            elif name == "by_code":
                value = dict(value)
            if value:
                document[name] = value
        return _encode(document)

    @classmethod
    def from_json(cls, text: str) -> Counters:
        """Read them back. Counts that a newer release added are passed over. Raises ValueError for anything else."""
        try:
            document = json.loads(text)
            known = {item.name: document[item.name] for item in fields(cls) if item.name in document}
            known["since_wall_s"] = float(document.get("since_wall_s", 0.0))
            known["by_code"] = {int(code): int(count) for code, count in document.get("by_code", {}).items()}
            known["per_camera"] = {name: Tally(*tally) for name, tally in document.get("per_camera", {}).items()}
            known["parts"] = Tally(*document.get("parts", ()))
            return cls(**known)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"these are not counters: {text[:80]!r}") from error

    def _add(
        self, camera: str, evaluation: Evaluation, code: int, count: int, simulated: bool, challenge: bool
    ) -> Counters:
        total = Tally(self.ok, self.not_ok, self.not_decidable, self.undefined).add(evaluation, count)
        number, of_camera = int(code), self.per_camera.get(camera, Tally())
        return replace(
            self,
            ok=total.ok,
            not_ok=total.not_ok,
            not_decidable=total.not_decidable,
            undefined=total.undefined,
            by_code={**self.by_code, number: self.by_code.get(number, 0) + count},
            per_camera={**self.per_camera, camera: of_camera.add(evaluation, count)},
            parts=self.parts if simulated or challenge else self.parts.add(evaluation, count),
            skipped=self.skipped + count * (code in SKIPPED_CODES),
            simulated=self.simulated + count * simulated,
            challenge=self.challenge + count * challenge,
        )


def _numbers(tally: Tally) -> list[int]:
    return [tally.ok, tally.not_ok, tally.not_decidable, tally.undefined]
