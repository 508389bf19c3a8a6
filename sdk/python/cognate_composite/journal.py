"""The journal of a component: its votes and marks, in a file beside the database, flushed before anything is said.

A line is a checksum and a record:

```text
5d1a07c2 {"id": "4f0…"}                                            which journal this is
90b1fe11 {"vote": {"root": "r", "nonce": 7, "parents": ["shop"], "children": [["payment", 3]], "origins": []}}
17aa03d5 {"mark": ["r", "undone"]}                                 calls of r are refused
e0c94b7a {"end": ["r", "committed"]}                               r has ended
```

A torn last line is cut; damage before it keeps the component from starting. An end that is lost makes its root be in
doubt once more, and its parents still remember. The file is written anew, with what is alive, when it has grown.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import zlib
from dataclasses import asdict
from pathlib import Path

from .root import Origin, VoteFacts

# Bytes after which the journal is written anew.
_GROWN = 4 << 20


class BadJournal(Exception):
    """A journal that cannot be used, in words."""


class Journal:
    """An open journal. Its users call it one at a time."""

    def __init__(self, folder: Path) -> None:
        self.id: str | None = None
        self.votes: dict[str, VoteFacts] = {}
        self.marks: dict[str, str] = {}
        self._is_broken = False
        self._folder, self._path = folder, folder / "journal"
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = open(folder / "lock", "w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._path.exists():
                self._read()
            self._rewrite()
        except BlockingIOError as error:
            self._lock.close()
            raise BadJournal(f"the journal in {folder}: another process has it open") from error
        except (BadJournal, OSError):
            self._lock.close()
            raise

    def _read(self) -> None:
        lines = self._path.read_bytes().split(b"\n")
        for number, line in enumerate(lines):
            record = _record(line)
            if record is None:
                # What follows a torn line was never written.
                if any(_record(later) is not None for later in lines[number + 1 :]):
                    raise BadJournal(f"{self._path}: line {number + 1} is damaged")
                return
            self._replay(record)

    def _replay(self, record: dict) -> None:
        if "id" in record:
            self.id = record["id"]
        elif "vote" in record:
            vote = record["vote"]
            # Whoever votes is not marked: a mark that is still there is over, and was forgotten since.
            self.marks.pop(vote["root"], None)
            children = [(name, nonce) for name, nonce in vote["children"]]
            # Earlier versions wrote none.
            origins = [(name, Origin(**origin)) for name, origin in vote.get("origins", [])]
            self.votes[vote["root"]] = VoteFacts(vote["root"], vote["nonce"], vote["parents"], children, origins)
        else:
            root, mark = record.get("mark") or record["end"]
            self.votes.pop(root, None)
            self.marks[root] = mark

    def _rewrite(self) -> None:
        """Writes what is alive into a new file, which takes the old one's place as a whole."""
        records: list[dict] = [{"id": self.id}] if self.id else []
        records += [{"vote": asdict(vote)} for vote in self.votes.values()]
        records += [{"mark": [root, mark]} for root, mark in self.marks.items()]
        new = self._path.with_suffix(".new")
        with open(new, "wb") as file:
            file.write(b"".join(map(_line, records)))
            file.flush()
            os.fsync(file.fileno())
        os.rename(new, self._path)
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        self._file = open(self._path, "ab", buffering=0)
        self._limit = max(_GROWN, 2 * self._file.tell())

    def _append(self, record: dict, is_waited_for: bool) -> None:
        if self._is_broken:
            raise BadJournal("the journal could not be written, and is not trusted any more")
        self._replay(record)
        try:
            line = _line(record)
            if self._file.write(line) != len(line):
                raise OSError("a record was written in part")
            if is_waited_for:
                os.fsync(self._file.fileno())
            if self._file.tell() > self._limit:
                self._file.close()
                self._rewrite()
        except OSError as error:
            # After a failed flush nobody knows what is on the disk.
            self._is_broken = True
            raise BadJournal(f"the journal cannot be written: {error}") from error

    def name(self) -> str:
        """Gives the journal its name, if it has none."""
        if self.id is None:
            self._append({"id": secrets.token_hex(16)}, True)
        assert self.id is not None
        return self.id

    def vote(self, vote: VoteFacts) -> None:
        """Writes a vote; it may be sent after this."""
        self._append({"vote": asdict(vote)}, True)

    def mark(self, root: str, mark: str) -> None:
        """Writes that calls of a root are refused."""
        self._append({"mark": [root, mark]}, True)

    def end(self, root: str, is_committed: bool) -> None:
        """Writes that a root has ended. Nobody waits for that."""
        if root in self.votes or root in self.marks:
            self._append({"end": [root, "committed" if is_committed else "undone"]}, False)

    def forget(self, root: str) -> None:
        """Nothing about this root is needed any more, nor a yes of which a start has found no slots."""
        self.marks.pop(root, None)
        self.votes.pop(root, None)

    def close(self) -> None:
        """Lets another process have it."""
        self._file.close()
        self._lock.close()


def _line(record: dict) -> bytes:
    text = json.dumps(record).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _record(line: bytes) -> dict | None:
    checksum, _, text = line.partition(b" ")
    try:
        return json.loads(text) if int(checksum, 16) == zlib.crc32(text) else None
    except ValueError:
        return None
