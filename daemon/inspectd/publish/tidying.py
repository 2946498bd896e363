"""Carries out what retention decides: unlinks old files, and writes a file again without what has to go."""

from __future__ import annotations

from dataclasses import replace

from inspectd.publish.filerow import FileRow
from inspectd.publish.intervals import spans_of
from inspectd.publish.journalfile import JournalFile
from inspectd.publish.journalstate import JournalState
from inspectd.publish.retention import DAY_S, Compact, FileFacts, Limits, Rotate, Unlink, next_step
from inspectd.publish.sqlitefile import JournalDamaged, discard, mapped
from inspectd.records import Evaluation


def tidy(files: FileRow, state: JournalState, limits: Limits, now_wall_s: float, *, disk_full: bool) -> None:
    """Remove what is too old or too much; `files.gone` says what. On a full disk one step, then commit again."""
    _tidy_set_aside(files, limits, now_wall_s)
    while True:
        newest = files.newest_facts(state, now_wall_s)
        match next_step(
            files.closed,
            newest,
            state.acked_seq,
            now_wall_s,
            limits,
            disk_full=disk_full,
            acked_event=state.acked_event,
        ):
            case None:
                return
            case Rotate():
                files.begin(state, now_wall_s)
            case Unlink(number):
                _unlink(files, _facts(files, number), state.acked_seq)
            case Compact(number, drop_ok):
                _compact(files, _facts(files, number), state, drop_ok=drop_ok)
        if disk_full:
            return


def _facts(files: FileRow, number: int) -> FileFacts:
    return next(facts for facts in files.closed if facts.number == number)


def _unlink(files: FileRow, facts: FileFacts, acked_seq: int) -> None:
    files.close_reader()
    file = JournalFile(files.path(facts.number))
    unsent: list[int] = []
    if facts.last_seq > acked_seq:
        try:
            unsent = file.seqs(acked_seq)
        except JournalDamaged:
            files.set_aside(facts)
            return
        finally:
            file.close()
    with mapped(file.path):
        discard(file.path)
    files.closed.remove(facts)
    files.gone += spans_of(unsent)
    files.gone_events.append((facts.first_event, facts.last_event))


def _compact(files: FileRow, facts: FileFacts, state: JournalState, *, drop_ok: bool) -> None:
    files.close_reader()
    acked_seq = state.acked_seq
    file = JournalFile(files.path(facts.number))
    dropped = Evaluation.OK if drop_ok else None
    try:
        unsent = file.seqs(acked_seq, dropped) if drop_ok else []
        if unsent or not drop_ok:
            file.compact(acked_seq, dropped, state.acked_event)
    except JournalDamaged:
        files.set_aside(facts)
        return
    finally:
        file.close()
    files.gone += spans_of(unsent)
    files.closed[files.closed.index(facts)] = replace(
        facts,
        first_seq=max(facts.first_seq, acked_seq + 1),
        first_event=max(facts.first_event, state.acked_event + 1),
        size_bytes=file.size_bytes,
        may_have_unsent_ok=facts.may_have_unsent_ok and not drop_ok,
    )


def _tidy_set_aside(files: FileRow, limits: Limits, now_wall_s: float) -> None:
    """Files set aside are for a person to look at: as long as results are kept, and while there is room."""
    aside = files.files_set_aside()
    with mapped(files.folder):
        facts = [path.stat() for path in aside]
        total_bytes = files.total_bytes + sum(fact.st_size for fact in facts)
        for path, fact in zip(aside, facts, strict=True):
            if total_bytes > limits.max_bytes or now_wall_s - fact.st_mtime > limits.keep_days * DAY_S:
                discard(path)
                total_bytes -= fact.st_size
