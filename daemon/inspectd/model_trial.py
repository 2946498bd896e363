"""Scores of one model with every colour order and resize, and what may be said of them. Pure.

More detections are no proof: a picture that is cut or stretched wrongly makes false alarms, and those count too. So a
way is called better only where its best score is higher as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from inspectd.decode.preparation import Color, Resize
from inspectd.engine.sourced import Source, Sourced

COLORS: tuple[Color, ...] = get_args(Color)
RESIZES: tuple[Resize, ...] = get_args(Resize)
TOP = 10
"""How many of the best scores the mean is of."""

_CLEARLY_BEST = 0.1
_CLEARLY_MEAN = 1.2
"""So much higher, and so many times as high, is clearly better."""
_ALIKE = 0.02


@dataclass(frozen=True, slots=True)
class Way:
    """One way to bring a picture into the net."""

    color: Color
    resize: Resize

    def __str__(self) -> str:
        return f"{self.color} {self.resize}"


WAYS = tuple(Way(color, resize) for color in COLORS for resize in RESIZES)


@dataclass(frozen=True, slots=True)
class Score:
    """What one picture scored in one way."""

    detections: int
    """At or above the model's confidence."""
    best: float
    """0 where nothing was found."""
    mean_of_top: float
    """Of the ten best; those that are missing count as 0."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One way on all pictures."""

    way: Way
    scores: tuple[Score, ...]
    """In the order of the pictures; empty where one of them has no answer."""
    failure: str = ""
    """Why there is none."""

    @property
    def detections(self) -> float:
        """Mean over the pictures."""
        return _mean([score.detections for score in self.scores])

    @property
    def best(self) -> float:
        """Mean over the pictures."""
        return _mean([score.best for score in self.scores])

    @property
    def mean_of_top(self) -> float:
        """Mean over the pictures."""
        return _mean([score.mean_of_top for score in self.scores])


@dataclass(frozen=True, slots=True)
class Trials:
    """All ways."""

    images: tuple[str, ...]
    confidence: float
    color: Sourced[Color]
    """What the daemon would use, as `resize`."""
    resize: Sourced[Resize]
    trials: tuple[Trial, ...]

    @property
    def in_use(self) -> Way:
        """What the daemon would use."""
        return Way(self.color.value, self.resize.value)

    def of(self, way: Way) -> Trial:
        """Give one of them."""
        return next(trial for trial in self.trials if trial.way == way)


def score(confidences: Sequence[float]) -> Score:
    """Sum up what one picture gave, best first."""
    return Score(len(confidences), max(confidences, default=0.0), sum(confidences[:TOP]) / TOP)


def advice(tried: Trials) -> str:
    """Say which way scores best and which line to add, or that the scores do not tell."""
    used = tried.of(tried.in_use)
    if used.failure:
        return f"{used.way}, the one in use, gave no answer: {used.failure}"
    if not any(trial.best for trial in tried.trials):
        many = len(tried.images) > 1
        return (
            f"No way finds anything from {tried.confidence:g} up: try {'pictures' if many else 'a picture'} that "
            f"show{'' if many else 's'} what the model is to find."
        )
    better = [trial for trial in tried.trials if _is_clearly_better(trial, used)]
    if better:
        return _cure(tried, used, _simplest(better, used.way))
    text = f"No way scores clearly higher than {used.way}, the one in use."
    by_color = [trial for trial in tried.trials if trial.way.resize == used.way.resize]
    by_resize = [trial for trial in tried.trials if trial.way.color == used.way.color]
    alike = [
        what
        for what, trials in (("RGB and BGR", by_color), ("all resizes", by_resize))
        if used.best and all(_is_alike(trial, used) for trial in trials)
    ]
    return f"{text} Here {' and also '.join(alike)} score alike, which tells nothing of them." if alike else text


def to_json(tried: Trials) -> dict[str, Any]:
    """Give plain values, each way with its means and its scores per picture."""
    return {
        "images": list(tried.images),
        "confidence": tried.confidence,
        "ways": [
            {
                "color": trial.way.color,
                "resize": trial.way.resize,
                "inUse": trial.way == tried.in_use,
                "detections": trial.detections,
                "best": trial.best,
                "meanOfTop10": trial.mean_of_top,
                "failure": trial.failure or None,
                "scores": [
                    {"image": image, "detections": s.detections, "best": s.best, "meanOfTop10": s.mean_of_top}
                    for image, s in zip(tried.images, trial.scores, strict=False)
                ],
            }
            for trial in tried.trials
        ],
        "advice": advice(tried),
    }


def _is_clearly_better(trial: Trial, used: Trial) -> bool:
    """In both figures, and on no picture worse."""
    return (
        not trial.failure
        and trial.best >= used.best + _CLEARLY_BEST
        and trial.mean_of_top >= used.mean_of_top * _CLEARLY_MEAN
        and all(one.best >= other.best for one, other in zip(trial.scores, used.scores, strict=True))
    )


def _simplest(better: Sequence[Trial], used: Way) -> Trial:
    """Of those that score about as high as the best, the one that changes least."""
    most = max(trial.best for trial in better)
    near = [trial for trial in better if trial.best >= most - _ALIKE]
    return min(near, key=lambda t: ((t.way.color != used.color) + (t.way.resize != used.resize), -t.mean_of_top))


def _is_alike(trial: Trial, used: Trial) -> bool:
    return (
        not trial.failure
        and abs(trial.best - used.best) <= _ALIKE
        and abs(trial.mean_of_top - used.mean_of_top) <= _ALIKE
    )


def _cure(tried: Trials, used: Trial, other: Trial) -> str:
    changes = [
        (key, value, said)
        for key, value, said in (("color", other.way.color, tried.color), ("resize", other.way.resize, tried.resize))
        if value != said.value
    ]
    line = f"`input: {{{', '.join(f'{key}: {value}' for key, value, _ in changes)}}}`"
    text = (
        f"{other.way} scores clearly higher (best {other.best:.2f}) than {used.way} (best {used.best:.2f}), which is "
        "in use. "
    )
    told = [f"{key} {said.value} ({said.where})" for key, _, said in changes if said.source is Source.FILE]
    if told:
        text += (
            f"But the file says {' and '.join(told)}, and a configuration cannot contradict it: if more pictures show "
            "the same, have the model exported again."
        )
    else:
        is_new = all(said.source is Source.ASSUMED for _, _, said in changes)
        text += f"If more pictures show the same, {'add' if is_new else 'write'} {line} under the model."
    if other.way.resize == "crop" != used.way.resize:
        text += " Mind that `crop` does not look at what lies outside the middle."
    return text


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
