"""What a fault of the matrix is, and what is known after it: values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.faults.stand import Stand


@dataclass(frozen=True, slots=True)
class Setup:
    """What a stand is made of. Faults of the same setup share one running daemon, one after the other."""

    name: str = "plain"
    configure: Callable[[dict[str, Any], Stand], None] | None = None
    """Changes the configuration before the daemon starts."""
    prefix: Callable[[Stand], tuple[str, ...]] | None = None
    """What the daemon is started through (`prlimit …`, `unshare -m …`); it must end in an exec of what follows."""
    environment: Callable[[Stand], dict[str, str]] | None = None
    broker: tuple[str, ...] = ()
    """Further lines of the broker's configuration."""
    acl: str | None = None
    disk_mb: int | None = None
    """The state lies on a tmpfs of this size."""
    needs: tuple[str, ...] = ()
    """Programs and files without which it cannot be had."""
    starts: bool = True
    """Whether the daemon runs and inspects before the fault begins."""


PLAIN = Setup()


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `run` brings it about, waits for what must be seen, takes it away, and words what was seen.

    It calls `stand.mark()` when the cause is gone, or when a part was killed: seconds until inspecting again count from
    there. It raises AssertionError, or fails as a test does, if what must be seen is not.
    """

    number: int
    title: str
    injected: str
    run: Callable[[Stand], str]
    budget_s: float
    """From `mark` until frames of `top` are inspected again."""
    setup: Setup = PLAIN
    variant: str = ""
    """Of several with one number."""
    is_slow: bool = False
    """Only with `--all`."""
    of_host: bool = False
    """The fault is the whole host's: other cameras lose frames as well, and the number is only printed."""
    ends_stand: bool = False
    """Nothing else is tried on this daemon afterwards."""
    is_elsewhere: str = ""
    """It needs a booted machine: where it is proved. It is not run here."""

    @property
    def name(self) -> str:
        """Number and variant, as `--only` takes it."""
        return f"{self.number}{self.variant}"


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What the daemon and its children hold."""

    processes: int
    memfds: int
    descriptors: int

    def is_within(self, before: Leftovers) -> bool:
        """Whether nothing has been added."""
        return (
            self.processes <= before.processes
            and self.memfds <= before.memfds
            and self.descriptors <= before.descriptors
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the matrix."""

    name: str
    title: str
    injected: str
    seen: str = ""
    codes: dict[str, int] = field(default_factory=dict)
    """Of the faulted camera's frames in the fault's time: code → frames."""
    captured: int = 0
    accounted: int = 0
    """Of all cameras: numbers with exactly one row."""
    ok_without: int = 0
    """OK without a completed inference of each model: must be 0."""
    again_s: float | None = None
    budget_s: float | None = None
    slowness: float = 1.0
    """How many times slower than DESIGN's budgets assume the host was: by the stand's own start."""
    others_lost: int = 0
    others_worst_s: float = 0.0
    """Longest latency of the other camera's frames."""
    of_host: bool = False
    before: Leftovers | None = None
    after: Leftovers | None = None
    took_s: float = 0.0
    outcome: str = "pass"
    """pass, FAIL, skipped, elsewhere."""
    complaint: str = ""
