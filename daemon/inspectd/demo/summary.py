"""What the demo says at its end: one document, and the same as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from inspectd.demo.score import Score, Tally
from inspectd.demo.table import LiveTable, percentile
from inspectd.records import Evaluation

_WORDS = {evaluation.word: evaluation for evaluation in (Evaluation.OK, Evaluation.NOT_OK, Evaluation.NOT_DECIDABLE)}
_WORDS[Evaluation.UNDEFINED.word] = Evaluation.UNDEFINED


def summarise(table: LiveTable, score: Score | None, shown_s: float, *, unheard: int) -> dict[str, Any]:
    """Build the document. `score` None: no camera is simulated. `unheard`: messages that the demo was too slow for."""
    latencies_ms = table.latencies_ms()
    return {
        "seconds": round(shown_s, 1),
        "results": table.results,
        "unheard": unheard,
        "verdicts": _verdicts(table.verdicts()),
        "ratePerS": round(table.results / shown_s, 2) if shown_s > 0 else 0.0,
        "latencyMs": {f"p{percent}": round(percentile(latencies_ms, percent), 1) for percent in (50, 95)}
        if latencies_ms
        else None,
        "cameras": {camera: _verdicts(row.verdicts) for camera, row in table.rows.items()},
        "accounting": _accounting(table.counters),
        "truth": None if score is None else _truth(score),
    }


def text(document: Mapping[str, Any]) -> RenderableType:
    """Draw the document for a person."""
    lines = [Text.assemble(("What it showed", "bold"), f" in {document['seconds']:.0f} s"), _accounting_line(document)]
    if latency_ms := document["latencyMs"]:
        lines.append(
            Text(
                f"{document['ratePerS']:.1f} results/s, from capture to verdict "
                f"p50 {latency_ms['p50']:.0f} ms, p95 {latency_ms['p95']:.0f} ms"
            )
        )
    if document["unheard"]:
        lines.append(Text(f"{document['unheard']} messages came faster than the demo could read them", style="yellow"))
    truth = document["truth"]
    if truth is None:
        return Group(*lines)
    return Group(*lines, Text(), Text("Against the truth", style="bold"), *_part_lines(truth["parts"]), _classes(truth))


def _verdicts(verdicts: Mapping[Evaluation, int]) -> dict[str, int]:
    return {word: verdicts[evaluation] for word, evaluation in _WORDS.items()}


def _accounting(counters: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if counters is None:
        return None
    names = ("captured", *_WORDS, "inFlight")
    numbers: dict[str, Any] = {name: counters[name] for name in names}
    return {**numbers, "exact": numbers["captured"] == sum(numbers[name] for name in names[1:])}


def _truth(score: Score) -> dict[str, Any]:
    return {
        "minConfidence": score.min_confidence,
        "parts": {
            "good": score.good,
            "goodRejected": score.good_rejected,
            "defective": score.defective,
            "defectivePassed": score.defective_passed,
            "empty": score.empty,
            "emptyPassed": score.empty_passed,
            "boardsNotDecidable": score.not_decidable,
        },
        "defects": _tally(score.defects),
        "classes": {name: _tally(tally) for name, tally in sorted(score.classes.items())},
    }


def _tally(tally: Tally) -> dict[str, Any]:
    recall = None if tally.recall is None else round(tally.recall, 4)
    return {"true": tally.true, "found": tally.found, "recall": recall, "falseAlarms": tally.false_alarms}


def _accounting_line(document: Mapping[str, Any]) -> Text:
    numbers = document["accounting"]
    if numbers is None:
        return Text("no counters came from the daemon, so the sum cannot be checked", style="yellow")
    terms = " + ".join(f"{word} {numbers[word]}" for word in (*_WORDS, "inFlight"))
    verdict = ("exact", "bold green") if numbers["exact"] else ("NOT EXACT", "bold red")
    return Text.assemble(f"captured {numbers['captured']} = {terms}: ", verdict)


def _part_lines(parts: Mapping[str, int]) -> list[Text]:
    return [
        _of("missed parts", parts["defectivePassed"], parts["defective"], "defective boards got OK"),
        _of("false alarms", parts["goodRejected"], parts["good"], "good boards got NotOK"),
        _of("empty places", parts["emptyPassed"], parts["empty"], "places without a board got OK"),
    ]


def _of(what: str, count: int, total: int, means: str) -> Text:
    share = f" ({100 * count / total:.1f} %)" if total else ""
    return Text.assemble(f"{what}  ", (f"{count} of {total}", "red" if count else "green"), f" {means}{share}")


def _classes(truth: Mapping[str, Any]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        caption=f"detections of confidence {truth['minConfidence']:.2f} and above",
        caption_justify="left",
        header_style="bold",
    )
    table.add_column("class")
    for heading in ("true", "found", "recall", "false alarms"):
        table.add_column(heading, justify="right")
    for name, tally in truth["classes"].items():
        table.add_row(name, *_class_cells(tally))
    table.add_section()
    table.add_row("all defects", *_class_cells(truth["defects"]), style="bold")
    return table


def _class_cells(tally: Mapping[str, Any]) -> list[str]:
    recall = "–" if tally["recall"] is None else f"{100 * tally['recall']:.1f} %"
    return [str(tally["true"]), str(tally["found"]), recall, str(tally["falseAlarms"])]
