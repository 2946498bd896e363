"""The folder of journal files: an ordered row of which only the newest is written. Rotation, reading across, damage."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from inspectd.accounts import Span
from inspectd.publish.journalfile import JournalFile, create
from inspectd.publish.journalrows import Head, StoredEvent, StoredResult
from inspectd.publish.journalstate import JournalState
from inspectd.publish.retention import DAY_S, FileFacts, Limits
from inspectd.publish.sqlitefile import JournalDamaged, discard, mapped, rename, sync_folder

_NAME = re.compile(r"(\d{8})\.sqlite")
_NAME_SET_ASIDE = re.compile(r"\d{8}\.sqlite\.damaged-[0-9TZ]+")


class FileRow:
    """Files `NNNNNNNN.sqlite` of one folder. Raises StorageError, and JournalDamaged where the newest is concerned."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder = folder
        self.closed: list[FileFacts] = []
        """The older files, oldest first."""
        self.gone: list[Span] = []
        """Seqs of older files that had to be given up, delivered ones among them, until someone takes the list."""
        self.gone_events: list[Span] = []
        """The same, of events."""
        self.is_outdated = False
        """The newest file knows no events: it must not be written, a new one has to begin."""
        self._limits = limits
        self._number = 0
        self._newest: JournalFile | None = None
        self._newest_bytes = 0
        self._first_seq = self._first_event = 1
        self._created_wall_s = 0.0
        self._reader: JournalFile | None = None

    @property
    def newest(self) -> JournalFile:
        """The file that is written."""
        if self._newest is None:
            raise JournalDamaged(f"{self.folder}: there is no journal file")
        return self._newest

    @property
    def total_bytes(self) -> int:
        """Size of all files, without the newest one's log."""
        return self._newest_bytes + sum(facts.size_bytes for facts in self.closed)

    def newest_facts(self, state: JournalState, now_wall_s: float) -> FileFacts:
        """Describe the newest file as if it were closed now."""
        return FileFacts(
            self._number,
            self._first_seq,
            state.next_seq - 1,
            self._created_wall_s,
            now_wall_s,
            self._newest_bytes,
            first_event=self._first_event,
            last_event=state.next_event - 1,
        )

    def path(self, number: int) -> Path:
        """Give the name of a file."""
        return self.folder / f"{number:08}.sqlite"

    def discover(self, kernel_boot_id: str) -> Head | None:
        """Find the files; None if there are none. An older one that is damaged is set aside alone: the others go on.

        Every page of the newest is looked at (256 MB take 1 to 2 s) if the machine went down while it was written; a
        killed process leaves whole pages.
        """
        with mapped(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            for unfinished in self.folder.glob("*.new"):
                discard(unfinished)
            numbers = sorted(int(found[1]) for path in self.folder.iterdir() if (found := _NAME.fullmatch(path.name)))
        if not numbers:
            return None
        newest = JournalFile(self.path(numbers[-1]))
        self._number, self._newest = numbers[-1], newest
        head = newest.head()
        if not head.state.clean and head.state.kernel_boot_id != kernel_boot_id:
            newest.check()
        older = self._discover_closed(numbers[:-1], head)
        self.is_outdated = not head.has_events
        if self.is_outdated and older is not None:
            state = replace(head.state, next_event=older.next_event, acked_event=older.acked_event, memo=older.memo)
            head = replace(head, state=state)
        first_event = head.state.next_event if self.is_outdated else head.first_event
        self._take_newest(newest, head.first_seq, first_event, head.created_wall_s)
        return head

    def begin(self, state: JournalState, now_wall_s: float) -> None:
        """Begin a new file with this state. If it fails the old one is still the newest, on the disk and here."""
        path = self.path(self._number + 1)
        create(path, state, now_wall_s)
        if self._newest is not None:
            self._newest.close()
            self.measure()
            self.closed.append(self.newest_facts(state, now_wall_s))
        self._number += 1
        self.is_outdated = False
        self._take_newest(JournalFile(path), state.next_seq, state.next_event, now_wall_s)
        with mapped(self.folder):
            sync_folder(self.folder)

    def rotation_due(self, next_seq: int, now_wall_s: float) -> bool:
        """Whether the newest file is large enough, has results of another day (UTC), or must not be written."""
        other_day = now_wall_s // DAY_S != self._created_wall_s // DAY_S
        is_old = other_day and next_seq > self._first_seq
        return self.is_outdated or is_old or self._newest_bytes >= self._limits.rotate_bytes

    def measure(self) -> None:
        """Look how large the newest file is: it grows with each checkpoint."""
        self._newest_bytes = self.newest.size_bytes

    def read(self, from_seq: int, to_seq: int, limit: int) -> tuple[StoredResult, ...]:
        """Read rows in order, across files. Rows that are not there any more are left out."""
        found: list[StoredResult] = []
        for facts in tuple(self.closed):
            if facts.last_seq >= from_seq and facts.first_seq <= to_seq and len(found) < limit:
                try:
                    found += self._reading(facts.number).read(from_seq, to_seq, limit - len(found))
                except JournalDamaged:
                    self.set_aside(facts)
        if to_seq >= self._first_seq and len(found) < limit:
            found += self.newest.read(from_seq, to_seq, limit - len(found))
        return tuple(found)

    def find(self, result_id: bytes) -> StoredResult | None:
        """Find a result by its id, in the newest file first."""
        found = self.newest.find(result_id)
        for facts in reversed(self.closed[:]):
            if found is not None:
                break
            try:
                found = self._reading(facts.number).find(result_id)
            except JournalDamaged:
                self.set_aside(facts)
        return found

    def read_events(self, from_event: int, limit: int) -> tuple[StoredEvent, ...]:
        """Read events in order, across files. Those that are not there any more are left out."""
        found: list[StoredEvent] = []
        for facts in tuple(self.closed):
            if max(from_event, facts.first_event) <= facts.last_event and len(found) < limit:
                try:
                    found += self._reading(facts.number).read_events(from_event, limit - len(found))
                except JournalDamaged:
                    self.set_aside(facts)
        if not self.is_outdated and len(found) < limit:
            found += self.newest.read_events(from_event, limit - len(found))
        return tuple(found)

    def bury(self, seq: int, reason: str, substitute: bytes | None, now_wall_s: float) -> bool:
        """Move a payload to the dead letters of its file, its substitute in its place; False if it is not there."""
        for facts in tuple(self.closed):
            if facts.first_seq <= seq <= facts.last_seq:
                try:
                    return self._reading(facts.number).bury(seq, reason, substitute, now_wall_s)
                except JournalDamaged:
                    self.set_aside(facts)
                    return False
        return self.newest.bury(seq, reason, substitute, now_wall_s)

    def set_aside(self, facts: FileFacts) -> None:
        """Rename one of the older files; what it had is gone."""
        self.close_reader()
        _rename_aside(self.path(facts.number))
        self.closed.remove(facts)
        self.gone.append((facts.first_seq, facts.last_seq))
        self.gone_events.append((facts.first_event, facts.last_event))

    def set_aside_all(self) -> int:
        """Rename every file and say how many; the newest last: if that is broken off, the damage is found again."""
        self.close()
        with mapped(self.folder):
            paths = sorted(path for path in self.folder.iterdir() if _NAME.fullmatch(path.name))
        for path in paths:
            _rename_aside(path)
        self.closed.clear()
        self._newest = None
        return len(paths)

    def files_set_aside(self) -> list[Path]:
        """List what was set aside, oldest first."""
        with mapped(self.folder):
            return sorted(path for path in self.folder.iterdir() if _NAME_SET_ASIDE.fullmatch(path.name))

    def close(self) -> None:
        """Disconnect from every file. Never raises."""
        if self._newest is not None:
            self._newest.close()
        self.close_reader()

    def close_reader(self) -> None:
        """Disconnect from the older file that was read last."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _reading(self, number: int) -> JournalFile:
        """Give an older file; one is kept open, because a backlog is read piece by piece."""
        if self._reader is None or self._reader.path != self.path(number):
            self.close_reader()
            self._reader = JournalFile(self.path(number))
        return self._reader

    def _take_newest(self, newest: JournalFile, first_seq: int, first_event: int, created_wall_s: float) -> None:
        self._newest, self._created_wall_s = newest, created_wall_s
        self._first_seq, self._first_event = first_seq, first_event
        self.measure()

    def _discover_closed(self, numbers: list[int], newest: Head) -> JournalState | None:
        """Read the older files' heads, from the newest backwards: each ends where the next begins.

        Gives the state of the last one that has events.
        """
        youngest: JournalState | None = None
        following, closed_wall_s, gap = newest, newest.created_wall_s, False
        for number in reversed(numbers):
            file = JournalFile(self.path(number))
            try:
                head = file.head()
            except JournalDamaged:
                head = None
            finally:
                file.close()
            if head is None:
                _rename_aside(file.path)
                gap = True
                continue
            state = head.state
            facts = FileFacts(
                number,
                head.first_seq,
                state.next_seq - 1,
                head.created_wall_s,
                closed_wall_s,
                file.size_bytes,
                first_event=head.first_event,
                last_event=state.next_event - 1,
            )
            self.closed.insert(0, facts)
            if gap:
                self.gone.append((state.next_seq, following.first_seq - 1))
                self.gone_events.append((state.next_event, following.first_event - 1))
            if youngest is None and head.has_events:
                youngest = state
            following, closed_wall_s, gap = head, head.created_wall_s, False
        if gap:
            self.gone.append((1, following.first_seq - 1))
            self.gone_events.append((1, following.first_event - 1))
        return youngest


def _rename_aside(path: Path) -> None:
    """Rename a damaged file, and its log with it."""
    suffix = datetime.now(UTC).strftime("damaged-%Y%m%dT%H%M%SZ")
    with mapped(path):
        rename(path, path.with_name(f"{path.name}.{suffix}"))
