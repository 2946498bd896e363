"""The table of faults, and how they are run: those of one setup one after the other on one daemon."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby

import pytest
from tests.faults import broker, camera, disk, host, pairs, processes
from tests.faults.fault import Fault, Row
from tests.faults.meter import Meter
from tests.faults.outside import GIVEN_UP
from tests.faults.stand import Stand, stand


def faults() -> list[Fault]:
    """Every fault, by number."""
    modules = [broker, camera, disk, host, pairs, processes]
    if importlib.util.find_spec("tests.faults.inference") is not None:
        modules.append(importlib.import_module("tests.faults.inference"))
    return sorted(
        (fault for module in modules for fault in getattr(module, "FAULTS", ())), key=lambda f: (f.number, f.variant)
    )


def chosen(all_faults: Sequence[Fault], only: Sequence[str], *, slow: bool) -> list[Fault]:
    """Those that are named (`15`, `36-back`), or all that are not slow. Raises ValueError for an unknown name."""
    unknown = {name for name in only if not any(name in (f.name, str(f.number)) for f in all_faults)}
    if unknown:
        raise ValueError(f"there is no fault {', '.join(sorted(unknown))}")
    if only:
        return [fault for fault in all_faults if fault.name in only or str(fault.number) in only]
    return [fault for fault in all_faults if slow or not fault.is_slow]


def run(wanted: Iterable[Fault], tell: Callable[[Row], None], jobs: int = 1) -> list[Row]:
    """Run them on up to `jobs` stands at a time; `tell` hears each row when it is there. Gives the rows by number."""
    order = sorted(wanted, key=lambda fault: fault.setup.name)
    groups = [list(group) for _, group in groupby(order, key=lambda fault: fault.setup.name)]

    def told(group: list[Fault]) -> list[Row]:
        rows = []
        for row in _on_stands(group):
            tell(row)
            rows.append(row)
        return rows

    with ThreadPoolExecutor(jobs, thread_name_prefix="stand") as pool:
        try:
            rows = [row for found in pool.map(told, sorted(groups, key=len, reverse=True)) for row in found]
        except KeyboardInterrupt:
            GIVEN_UP.set()
            pool.shutdown(cancel_futures=True)
            raise
    places = {fault.name: place for place, fault in enumerate(faults())}
    return sorted(rows, key=lambda row: places[row.name])


def _on_stands(group: list[Fault]) -> Iterator[Row]:
    """One setup's faults: on one stand as long as all goes well, on a new one after what does not."""
    waiting = sorted(group, key=lambda fault: fault.ends_stand)
    while waiting and not GIVEN_UP.is_set():
        fault = waiting[0]
        if fault.is_elsewhere:
            waiting.pop(0)
            yield Row(fault.name, fault.title, fault.injected, seen=fault.is_elsewhere, outcome="elsewhere")
            continue
        done: list[Row] = []
        complaint, outcome = "", "FAIL"
        begun_s = time.monotonic()
        try:
            with stand(fault.setup) as built:
                while waiting and not waiting[0].is_elsewhere:
                    fault, begun_s = waiting[0], time.monotonic()
                    done.append(_one(built, fault))
                    waiting.pop(0)
                    if fault.ends_stand:
                        break
        except pytest.skip.Exception as skipped:
            complaint, outcome = str(skipped), "skipped"
        except (pytest.fail.Exception, Exception) as failure:  # whatever it was: the next fault has its turn
            complaint = f"{type(failure).__name__}: {failure}"
        if complaint and waiting and waiting[0] is fault:
            waiting.pop(0)
            failed = Row(fault.name, fault.title, fault.injected, budget_s=fault.budget_s, of_host=fault.of_host)
            done.append(replace(failed, took_s=time.monotonic() - begun_s, outcome=outcome, complaint=complaint))
        elif complaint and done:  # when the stand was taken down
            done[-1] = replace(done[-1], outcome=outcome, complaint=complaint)
        yield from done


def _one(built: Stand, fault: Fault) -> Row:
    meter = Meter(built)
    seen = fault.run(built)
    return judged(meter.row(fault, seen))


def judged(row: Row) -> Row:
    """Hold a row against what is promised for every fault."""
    complaints = []
    if row.accounted != row.captured:
        complaints.append(f"{row.captured - row.accounted} captured frames without exactly one row")
    if row.ok_without:
        complaints.append(f"{row.ok_without} OK without inference")
    if row.others_lost and not row.of_host:
        complaints.append(f"the other camera lost {row.others_lost} frames")
    if row.before is not None and row.after is not None and not row.after.is_within(row.before):
        complaints.append(f"left over: {row.after} where there was {row.before}")
    if row.again_s is not None and row.budget_s is not None and row.again_s > row.budget_s * row.slowness:
        complaints.append(
            f"inspecting again after {row.again_s:.1f} s (budget {row.budget_s:g} s × {row.slowness:.1f})"
        )
    return replace(row, outcome="FAIL" if complaints else "pass", complaint="; ".join(complaints))
