"""Measures one fault on a stand: numbers and belongings before it, and what became of them."""

from __future__ import annotations

import time
from dataclasses import replace

from tests.faults import leftovers, tally
from tests.faults.fault import Fault, Row
from tests.faults.outside import is_met
from tests.faults.stand import MODELS, PATIENT_MS, SETTLE_S, SIDE, TOP, Stand

LEFT_S = 15.0
ROWS_S = 3 * PATIENT_MS / 1000
"""A frame of `side` may be open until its deadline."""


class Meter:
    """Begins with the figures before the fault, on a station where both cameras inspect."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        stand.begin()
        self._at_s = time.monotonic()
        self._ledgers = {name: stand.line.ledger_last(name) for name in MODELS}
        self._held = stand.held = stand.held or leftovers.most(stand.groups)

    def row(self, fault: Fault, seen: str) -> Row:
        """Wait until all is as before, and count."""
        stand, held = self._stand, self._held
        again_s = None if stand.marked_s is None else self._again_s(stand.marked_s, fault.budget_s + SETTLE_S)
        stand.wait_healthy()
        stretches = {name: (last + 1, stand.line.ledger_last(name)) for name, last in self._ledgers.items()}

        def tallies() -> dict[str, tally.Tally]:
            files = stand.journal_files()
            found = {name: tally.tally(files, name, *span, stand.required(name)) for name, span in stretches.items()}
            for name, span in stretches.items() if stand.is_spoiled else ():
                tally.add_delivered(found[name], stand.results_of(name), *span)
            return found

        is_met(lambda: all(found.accounted == found.captured for found in tallies().values()), ROWS_S)
        counted = tallies()
        is_met(lambda: leftovers.count(stand.groups).is_within(held), LEFT_S)
        return replace(
            Row(fault.name, fault.title, fault.injected, seen, budget_s=fault.budget_s, of_host=fault.of_host),
            codes={str(code): count for code, count in sorted(counted[TOP].codes.items())},
            captured=sum(found.captured for found in counted.values()),
            accounted=sum(found.accounted for found in counted.values()),
            ok_without=sum(len(found.ok_without) for found in counted.values()),
            again_s=again_s,
            slowness=stand.slowness,
            others_lost=counted[SIDE].lost,
            others_worst_s=counted[SIDE].worst_s,
            before=held,
            after=leftovers.count(stand.groups),
            took_s=time.monotonic() - self._at_s,
        )

    def _again_s(self, marked_s: float, limit_s: float) -> float:
        stand = self._stand

        def decided_s() -> float | None:
            return stand.inspected_after(TOP, marked_s, stand.marked_above)

        stand.until(lambda: decided_s() is not None, "top inspects again", limit_s)
        return max(0.0, (decided_s() or marked_s) - marked_s)
