"""The station's state machine in the terms of OPC 40100-1: states, triggers, transitions as data. Pure.

Facts (a camera is lost, all parts are there) and commands both are triggers. What cannot be done in a state is a value,
`Refused`, with the words for whoever asked. `follow` gives the steps that bring a state in line with the facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

from inspectd.publish.reports import Automatic, Vision


class State(Enum):
    """A leaf state: state of the vision state machine, and of its automatic mode where that is entered."""

    PREOPERATIONAL = (Vision.PREOPERATIONAL, None)
    """Starting or stopping."""
    HALTED = (Vision.HALTED, None)
    """Stopped by command; only Reset leads out."""
    ERROR = (Vision.ERROR, None)
    """Something is in the way of every inspection."""
    INITIALIZED = (Vision.OPERATIONAL, Automatic.INITIALIZED)
    """No recipe is prepared."""
    READY = (Vision.OPERATIONAL, Automatic.READY)
    """A recipe is prepared, no job is open."""
    SINGLE_EXECUTION = (Vision.OPERATIONAL, Automatic.SINGLE_EXECUTION)
    """Triggered jobs are open."""
    CONTINUOUS_EXECUTION = (Vision.OPERATIONAL, Automatic.CONTINUOUS_EXECUTION)
    """Cameras run freely, each picture is a job."""

    def __init__(self, vision: Vision, automatic: Automatic | None) -> None:
        self.vision = vision
        """State of the outer machine."""
        self.automatic = automatic
        """State of the automatic mode, None outside Operational."""

    @property
    def word(self) -> str:
        """Name in the standard."""
        return (self.automatic or self.vision).value


OPERATIONAL = tuple(state for state in State if state.vision is Vision.OPERATIONAL)


class Trigger(StrEnum):
    """What makes the station change its state. The value is the word for people."""

    STARTED = "started"
    FAULT = "fault appeared"
    FAULT_GONE = "fault gone"
    STOPPING = "stopping"
    RECIPE_PREPARED = "recipe prepared"
    RECIPE_GONE = "recipe gone"
    CAMERAS_RUN = "cameras run"
    CAMERAS_STAND = "cameras stand"
    JOB_OPENED = "job opened"
    JOBS_CLOSED = "jobs closed"
    HALT = "halt"
    RESET = "reset"
    STOP = "stop"
    ABORT = "abort"


MEANING: dict[Trigger, str] = {
    Trigger.STARTED: "every camera gives pictures and every required model is admitted, or their trouble is reported",
    Trigger.FAULT: "a camera, a required model or the journal is in the way of inspection",
    Trigger.FAULT_GONE: "nothing is in the way any more",
    Trigger.STOPPING: "a planned stop of the daemon",
    Trigger.RECIPE_PREPARED: "by `prepare-recipe`, or the configured one at start",
    Trigger.RECIPE_GONE: "another recipe is being prepared, or preparing it failed",
    Trigger.CAMERAS_RUN: "continuous cameras: by themselves, or by `start-continuous`",
    Trigger.CAMERAS_STAND: "every continuous camera has been ended, or waits for another recipe",
    Trigger.JOB_OPENED: "a trigger was accepted (`trigger`, `start-single-job`, or hardware)",
    Trigger.JOBS_CLOSED: "the last open job has its result",
    Trigger.HALT: "command `halt`",
    Trigger.RESET: "command `reset`",
    Trigger.STOP: "command `stop`: what is open is finished first",
    Trigger.ABORT: "command `abort`: what is open ends as aborted (302)",
}


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the table: from any of these states, by this trigger, to that state."""

    sources: tuple[State, ...]
    trigger: Trigger
    target: State
    standard: str
    """BrowseName in OPC 40100-1 (8.2.7, 8.3.6); empty where it has none."""


TRANSITIONS: tuple[Transition, ...] = (
    Transition((State.PREOPERATIONAL,), Trigger.STARTED, State.INITIALIZED, "PreoperationalToInitializedAuto"),
    Transition((State.PREOPERATIONAL,), Trigger.FAULT, State.ERROR, "PreoperationalToErrorAuto"),
    Transition((State.PREOPERATIONAL,), Trigger.HALT, State.HALTED, "PreoperationalToHalted"),
    Transition((State.INITIALIZED,), Trigger.RECIPE_PREPARED, State.READY, "InitializedToReadyRecipe"),
    Transition((State.READY,), Trigger.RECIPE_GONE, State.INITIALIZED, "ReadyToInitializedRecipe"),
    Transition((State.READY,), Trigger.CAMERAS_RUN, State.CONTINUOUS_EXECUTION, "ReadyToContinuousExecution"),
    Transition((State.READY,), Trigger.JOB_OPENED, State.SINGLE_EXECUTION, "ReadyToSingleExecution"),
    Transition((State.SINGLE_EXECUTION,), Trigger.JOB_OPENED, State.SINGLE_EXECUTION, ""),
    Transition((State.SINGLE_EXECUTION,), Trigger.JOBS_CLOSED, State.READY, "SingleExecutionToReadyAuto"),
    Transition((State.SINGLE_EXECUTION,), Trigger.STOP, State.READY, "SingleExecutionToReadyStop"),
    Transition((State.SINGLE_EXECUTION,), Trigger.ABORT, State.READY, "SingleExecutionToReadyAbort"),
    Transition((State.CONTINUOUS_EXECUTION,), Trigger.CAMERAS_STAND, State.READY, "ContinuousExecutionToReadyAuto"),
    Transition((State.CONTINUOUS_EXECUTION,), Trigger.STOP, State.READY, "ContinuousExecutionToReadyStop"),
    Transition((State.CONTINUOUS_EXECUTION,), Trigger.ABORT, State.READY, "ContinuousExecutionToReadyAbort"),
    Transition(OPERATIONAL, Trigger.FAULT, State.ERROR, "OperationalToErrorAuto"),
    Transition(OPERATIONAL, Trigger.STOPPING, State.PREOPERATIONAL, "OperationalToPreoperationalAuto"),
    Transition(OPERATIONAL, Trigger.RESET, State.PREOPERATIONAL, "OperationalToPreoperational"),
    Transition(OPERATIONAL, Trigger.HALT, State.HALTED, "OperationalToHalted"),
    Transition((State.ERROR,), Trigger.FAULT_GONE, State.INITIALIZED, "ErrorToOperationalAuto"),
    Transition((State.ERROR,), Trigger.STOPPING, State.PREOPERATIONAL, "ErrorToPreoperationalAuto"),
    Transition((State.ERROR,), Trigger.RESET, State.PREOPERATIONAL, "ErrorToPreoperational"),
    Transition((State.ERROR,), Trigger.HALT, State.HALTED, "ErrorToHalted"),
    Transition((State.HALTED,), Trigger.RESET, State.PREOPERATIONAL, "HaltedToPreoperational"),
)
_TARGETS = {(source, row.trigger): row.target for row in TRANSITIONS for source in row.sources}


@dataclass(frozen=True, slots=True)
class Refused:
    """The trigger means nothing in this state; the state stays."""

    state: State
    trigger: Trigger

    @property
    def reason(self) -> str:
        """In words, with what can be done instead."""
        possible = ", ".join(trigger.value for trigger in triggers_of(self.state))
        return f"not possible in {self.state.word}: {self.trigger.value}; possible there: {possible}"


def step(state: State, trigger: Trigger) -> State | Refused:
    """Give the next state."""
    return _TARGETS.get((state, trigger), Refused(state, trigger))


def triggers_of(state: State) -> tuple[Trigger, ...]:
    """Give what a state answers to, in the table's order."""
    return tuple(row.trigger for row in TRANSITIONS if state in row.sources)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is the case, as far as the state follows it by itself. Halt, Reset, Stop and Abort are commands."""

    started: bool
    """False while starting."""
    stopping: bool = False
    fault: bool = False
    """Something is in the way of inspection. Not asked for before `started`: parts are still coming up."""
    recipe: bool = True
    """A recipe is prepared."""
    cameras_run: bool = True
    """Continuous cameras are to run, and none is triggered (the state follows the triggered ones)."""
    jobs: int = 0
    """Triggered jobs that are open."""


def due(state: State, facts: Facts) -> Trigger | None:
    """Give the next trigger that the facts pull in this state; None: it is in line with them."""
    is_stopping = facts.stopping or not facts.started
    match state:
        case State.HALTED:
            return None
        case State.PREOPERATIONAL:
            if is_stopping:
                return None
            return Trigger.FAULT if facts.fault else Trigger.STARTED
        case State.ERROR:
            if is_stopping:
                return Trigger.STOPPING
            return None if facts.fault else Trigger.FAULT_GONE
    if is_stopping:
        return Trigger.STOPPING
    return Trigger.FAULT if facts.fault else _due_in_operation(state, facts)


def _due_in_operation(state: State, facts: Facts) -> Trigger | None:
    if state is State.INITIALIZED:
        return Trigger.RECIPE_PREPARED if facts.recipe else None
    if state is State.SINGLE_EXECUTION:
        return None if facts.jobs else Trigger.JOBS_CLOSED
    if state is State.CONTINUOUS_EXECUTION:
        return None if facts.cameras_run and facts.recipe else Trigger.CAMERAS_STAND
    if not facts.recipe:
        return Trigger.RECIPE_GONE
    if facts.jobs:
        return Trigger.JOB_OPENED
    return Trigger.CAMERAS_RUN if facts.cameras_run else None


def follow(state: State, facts: Facts) -> tuple[tuple[Trigger, State], ...]:
    """Give the steps that bring the state in line with the facts, each with the state it leads to; at most three."""
    steps: list[tuple[Trigger, State]] = []
    while (trigger := due(state, facts)) is not None:
        state = _TARGETS[state, trigger]
        steps.append((trigger, state))
    return tuple(steps)


def table() -> str:
    """Write the transitions as a Markdown table, for the documentation."""
    rows = ["| from | by | to | when | OPC 40100-1 |", "|---|---|---|---|---|"]
    for row in TRANSITIONS:
        source = "Operational (any)" if row.sources == OPERATIONAL else row.sources[0].word
        standard = row.standard or "(ours: jobs may overlap)"
        rows.append(f"| {source} | {row.trigger.value} | {row.target.word} | {MEANING[row.trigger]} | {standard} |")
    return "\n".join(rows) + "\n"
