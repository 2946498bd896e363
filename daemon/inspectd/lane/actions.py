"""What a lane wants done, as values: its driver carries them out in their order."""

from __future__ import annotations

from dataclasses import dataclass

from inspectd.records import Frame, Outcome


@dataclass(frozen=True, slots=True)
class Start:
    """Send the frame to the child."""

    attempt: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Cancel:
    """Tell the child that nobody waits for this attempt any more."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Release:
    """The child does not read this attempt's slot any more."""

    attempt: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Finish:
    """This is the model's word on the frame."""

    frame: Frame
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Kill:
    """A child does not give its request back, or only fails: replace it."""

    reason: str
    child: int | None = None
    """Number of a child that only finishes what it has; None: the one that serves."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Log it: a policy has changed what becomes of frames."""

    text: str
    is_good: bool
    """Things are as they are meant to be again."""


Action = Start | Cancel | Release | Finish | Kill | Tell
