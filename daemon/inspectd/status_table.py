"""What `inspectd status` shows a person: the status document as tables for a terminal of 80 columns or more. Pure.

A field that is not there is shown as a dash: the daemon may be older or newer than this program.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from inspectd.status_text import (
    DASH,
    Document,
    is_number,
    minute,
    number_text,
    part,
    plain,
    seconds_of,
    size,
    span,
    whole,
)

WIDE = 110
"""From so many columns on the tables have all of theirs."""
_MEDIUM, _HIGH = 334, 667
"""Severities of OPC UA: below the first low, from the second on high."""
_PERIOD = ", the last 10 s"
"""What the health message counts."""
_FAULTY = ("timedOut", "failed", "dropped", "unavailable")


def render(document: Document, width: int) -> RenderableType:
    """Draw the whole document."""
    health = document.get("health") or {}
    is_wide = width >= WIDE
    parts: list[RenderableType] = [_title(document), *_reasons(document)]
    parts += _alarms(document.get("alarms") or ())
    parts.append(_cameras(part(document, "state", "cameras"), part(health, "cameras"), is_wide=is_wide))
    parts.append(_frames(part(document, "counters")))
    parts.append(_models(part(health, "models"), is_wide=is_wide))
    parts.append(_facts(document, health))
    return Group(*parts)


def _title(document: Document) -> RenderableType:
    state = part(document, "state")
    vision, automatic = plain(state.get("vision", DASH)), state.get("automatic")
    word, style = _verdict(state)
    line = Text.assemble(
        (plain(document.get("stationId", DASH)), "bold"),
        "  ",
        (f" {word} ", f"bold reverse {style}"),
        f"  {vision}" + (f" / {plain(automatic)}" if automatic else ""),
        ("  simulation" if state.get("simulation") else "", "magenta"),
    )
    recipe = part(state, "recipe")
    under = (
        f"inspectd {plain(document.get('version', DASH))}, up {span(document.get('uptimeS'))}"
        f", recipe {plain(recipe.get('id', DASH))}"
        f", {plain(part(document, 'configuration').get('path', DASH))}"
    )
    return Group(line, Text(under, "dim"))


def _verdict(state: Document) -> tuple[str, str]:
    """A word and its colour; never by colour alone."""
    if not state.get("ready"):
        return "NOT READY", "red"
    return ("DEGRADED", "yellow") if state.get("degraded") else ("READY", "green")


def _reasons(document: Document) -> Iterable[RenderableType]:
    style = "yellow" if part(document, "state").get("ready") else "red"
    for reason in part(document, "state").get("reasons") or ():
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text("•", style), Text(plain(reason), style))
        yield grid


def _alarms(alarms: Sequence[Document]) -> Iterable[RenderableType]:
    for alarm in sorted(alarms, key=lambda alarm: -whole(alarm.get("severity"))):
        severity, count = whole(alarm.get("severity")), whole(alarm.get("count"))
        style = "red" if severity >= _HIGH else "yellow" if severity >= _MEDIUM else "cyan"
        marks = [f"severity {severity}", f"since {minute(alarm.get('since'))}"]
        marks += [f"{count:,} times"] if count > 1 else []
        marks += [word for word in ("acknowledged", "confirmed") if alarm.get(word)]
        marks += [] if alarm.get("active") else ["over, until it is confirmed"]
        grid = Table.grid(padding=(0, 1))
        name = f"{plain(alarm.get('code', DASH))} {plain(alarm.get('source', DASH))}"
        grid.add_row("", "")
        grid.add_row(Text("▲", style), Text.assemble((name, f"bold {style}"), (f"  {', '.join(marks)}", "dim")))
        grid.add_row("", Text(plain(alarm.get("text", ""))))
        grid.add_row("→", Text(plain(alarm.get("cure", ""))))
        yield grid


def _cameras(states: Document, health: Document, *, is_wide: bool) -> RenderableType:
    table = _table(f"cameras{_PERIOD}", "camera", "")
    columns = ["fps", "received", "missed", *(["incomplete"] if is_wide else []), "reconnects", "last frame"]
    _numbers(table, columns)
    for name in sorted({*states, *health}):
        state, said = part(states, name), part(health, name)
        is_connected = state.get("connected", said.get("connected"))
        word, style = ("ready", "green") if state.get("ready") else ("not ready", "red")
        if not is_connected:
            word, style = "away", "red"
        mode = plain(state.get("mode", ""))
        cells = [
            _decimal(said.get("fps")),
            _count(said.get("framesReceived")),
            _count(said.get("framesMissed"), bad=True),
            *([_count(said.get("framesIncomplete"), bad=True)] if is_wide else []),
            _count(said.get("reconnects"), bad=True),
            Text(span(seconds_of(said.get("lastFrameAgeMs")))),
        ]
        table.add_row(Text(plain(name)), Text.assemble((word, style), f" {mode}" if is_wide else ""), *cells)
    return table


def _frames(counters: Document) -> RenderableType:
    table = _table(f"frames since {minute(counters.get('since'))}", "camera")
    _numbers(table, ["captured", "ok", "notOk", "notDecidable", "undefined", "in flight"])
    fields = ("captured", "ok", "notOk", "notDecidable", "undefined", "inFlight")
    cameras = part(counters, "perCamera")
    for name in sorted(cameras):
        table.add_row(Text(plain(name)), *(_count(part(cameras, name).get(field)) for field in fields))
    if len(cameras) != 1:
        table.add_section()
        table.add_row("all", *(_count(counters.get(field)) for field in fields), style="bold")
    return table


def _models(health: Document, *, is_wide: bool) -> RenderableType:
    table = _table(f"models{_PERIOD}", "model", "", "device")
    times = ["p50", "p95", "p99"] if is_wide else ["p95"]
    _numbers(table, ["busy", "queue", *(f"{time} ms" for time in times), "done", "not done", "restarts"])
    if is_wide:
        _numbers(table, ["memory"])
    for name in sorted(health):
        said = part(health, name)
        word = Text(plain(said.get("state", DASH)), "green" if said.get("state") == "running" else "yellow")
        cells = [
            Text(f"{number_text(said.get('requestsBusy'))}/{number_text(said.get('requests'))}"),
            _count(said.get("queueDepth")),
            *(_decimal(said.get(f"{time}Ms")) for time in times),
            _count(said.get("done")),
            _count(sum(whole(said.get(field)) for field in _FAULTY), bad=True),
            _count(said.get("restarts"), bad=True),
            *([Text(size(said.get("rssBytes")))] if is_wide else []),
        ]
        table.add_row(Text(plain(name)), word, Text(plain(said.get("device") or DASH)), *cells)
    return table


def _facts(document: Document, health: Document) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for name, facts in (
        ("broker", _broker(part(document, "outbox"), part(health, "mqtt"))),
        ("storage", _storage(part(health, "storage"))),
        ("host", _host(part(health, "host"))),
        ("clock", _clock(part(health, "clock"))),
        ("subscribers", _subscribers(part(document, "subscribers"))),
        ("processes", _processes(document)),
    ):
        if facts:
            grid.add_row(name, Text(", ").join(facts))
    return Group(Text(""), grid)


def _broker(outbox: Document, mqtt: Document) -> list[Text]:
    is_connected = mqtt.get("connected")
    facts = [] if is_connected is None else [Text("connected", "green") if is_connected else Text("away", "red")]
    unsent, events = whole(outbox.get("unsent")), whole(outbox.get("unsentEvents"))
    waiting = f"{unsent:,} results" + (f" and {events:,} events" if events else "") + " unsent"
    age = mqtt.get("oldestUnsentAgeMs")
    facts.append(
        Text(waiting + (f" for {span(seconds_of(age))}" if unsent and age else ""), "yellow" if unsent else "")
    )
    if is_number(mqtt.get("outageHours")):
        facts.append(Text(f"room for {span(mqtt['outageHours'] * 3600)} without a broker"))
    if dead := whole(mqtt.get("deadLetters")):
        facts.append(Text(f"dead letters: {dead:,}", "red"))
    if unheard := whole(mqtt.get("noSubscribers")):
        facts.append(Text(f"heard by nobody: {unheard:,}", "yellow"))
    days = mqtt.get("certificateDaysLeft")
    if isinstance(days, int | float):
        facts.append(Text(f"certificate for {int(days)} days", "red" if days < 30 else ""))
    return facts


def _storage(said: Document) -> list[Text]:
    facts = []
    if "commitP95Ms" in said:
        facts.append(Text(f"commit p95 {number_text(said['commitP95Ms'])} ms"))
    if "freeBytes" in said:
        facts.append(Text(f"{size(said['freeBytes'])} free"))
    if said.get("evidenceBytes"):
        facts.append(Text(f"evidence {size(said['evidenceBytes'])}"))
    return facts


def _host(said: Document) -> list[Text]:
    facts = []
    if is_number(said.get("cpuPercent")):
        facts.append(Text(f"CPU {said['cpuPercent']:.0f} %"))
    if "memoryBytes" in said:
        facts.append(Text(f"memory {size(said['memoryBytes'])}"))
    if is_number(said.get("temperatureC")):
        facts.append(Text(f"{said['temperatureC']:.0f} °C"))
    if said.get("throttled"):
        facts.append(Text("throttled: too hot or short of power", "red"))
    return facts


def _clock(said: Document) -> list[Text]:
    if "synced" not in said:
        return []
    is_meant = said.get("source") == "none"
    facts = [Text("synchronised") if said["synced"] else Text("not synchronised", "" if is_meant else "yellow")]
    if is_number(said.get("maxErrorMs")):
        facts.append(Text(f"within {said['maxErrorMs']:.0f} ms"))
    return facts


def _subscribers(said: Document) -> list[Text]:
    return [
        Text(
            f"{plain(name)} {f'{behind:,} behind' if (behind := whole(part(said, name).get('behind'))) else 'has all'}"
        )
        for name in said
    ]


def _processes(document: Document) -> list[Text]:
    children = part(document, "children")
    named = [("main", document.get("pid")), *((plain(name), children[name]) for name in children)]
    return [Text(f"{name} {pid}") for name, pid in named]


def _table(title: str, *columns: str) -> Table:
    name = Text(f"\n{title}", "bold")
    table = Table(title=name, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, collapse_padding=True)
    for column in columns:
        table.add_column(column, overflow="fold")  # a long name goes on in the next line; numbers stay whole
    return table


def _numbers(table: Table, columns: Iterable[str]) -> None:
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)


def _count(value: object, *, bad: bool = False) -> Text:
    """`bad`: anything but 0 is worth a look."""
    return Text(number_text(value), "yellow" if bad and value else "")


def _decimal(value: object) -> Text:
    return Text(f"{value:.1f}" if isinstance(value, int | float) else DASH)
