"""The lines that export wrote, read in chunks; how far an import came is noted beside the file."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from expirebridge.cli import transfer_files
from expirebridge.cli.intake import Chunk, Intake
from expirebridge.connection.urls import safe_url
from expirebridge.errors import InvalidSetting, InvalidTask
from expirebridge.producer.new_task import CHUNK_TASKS
from expirebridge.settings import Settings

CHUNK_BYTES = 512 * 1024


@dataclass(frozen=True)
class Position:
    """How far the lines were read: so many bytes, and so many lines."""

    offset: int = 0
    line: int = 0


class Source:
    """The lines, a chunk at a time; `position` is the end of the last one."""

    def __init__(self, file: BinaryIO, position: Position) -> None:
        self._file = file
        self.position = position

    def chunks(self) -> Iterator[Chunk]:
        """Read tasks. Raises InvalidTask for a line that is none, with its number."""
        chunk = Chunk()
        number = self.position.line
        for line in self._file:
            number += 1
            chunk.size += len(line)
            if line.strip():
                _add(chunk, line, number)
            if len(chunk.tasks) + len(chunk.series) >= CHUNK_TASKS or chunk.size > CHUNK_BYTES:
                yield self._through(chunk, number)
                chunk = Chunk()
        if chunk.size:
            yield self._through(chunk, number)

    def _through(self, chunk: Chunk, number: int) -> Chunk:
        self.position = Position(self.position.offset + chunk.size, number)
        return chunk


def _add(chunk: Chunk, line: bytes, number: int) -> None:
    try:
        read = transfer_files.decode(line)
    except InvalidTask as error:
        raise InvalidTask(f"line {number}: {error}") from None
    if isinstance(read, transfer_files.SeriesLine):
        chunk.series.append(read)
        return
    chunk.tasks.append(read.task)
    chunk.paused += [read.task.id] if read.paused else []


@dataclass(frozen=True)
class Place:
    """Beside a file, how many of its bytes were imported, and where to."""

    path: Path
    of_what: str
    """The server, and the file as it was: another server, or a newer file, starts over."""

    @classmethod
    def of(cls, file: Path, settings: Settings) -> "Place | None":
        """The place of a file; what comes through a pipe has none."""
        if not file.is_file():
            return None
        status = file.stat()
        where = f"{safe_url(settings.url)} {settings.prefix}"
        of_what = f"{where} {status.st_size} {status.st_mtime_ns}"
        return cls(file.with_name(f"{file.name}.imported"), of_what)

    def reached(self) -> Position:
        """Where to go on."""
        if not self.path.exists():
            return Position()
        offset, line, of_what = self.path.read_text().split(" ", 2)
        return Position(int(offset), int(line)) if of_what == self.of_what else Position()

    def note(self, position: Position) -> None:
        """Note it whole or not at all."""
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_text(f"{position.offset} {position.line} {self.of_what}")
        new.replace(self.path)


@contextmanager
def read(file: Path, place: Place | None) -> Iterator[Intake]:
    """The lines that are still to be imported. Those of a file are all checked before.

    Raises InvalidTask for a line that is none, InvalidSetting for a file that cannot be read.
    """
    if place is None:
        follows = "mend it and import all again: tasks that are known are kept"
        with _what_follows(follows), _open(file) as piped:
            yield Intake(Source(piped, Position()).chunks(), None)
        return
    start = place.reached()
    with _open(file) as opened:
        opened.seek(start.offset)
        with _what_follows("nothing was imported"):
            for _ in Source(opened, start).chunks():
                pass
        opened.seek(start.offset)
        chunks = _noting(Source(opened, start), place)
        yield Intake(chunks, file.stat().st_size, begun=start.offset)


def _noting(source: Source, place: Place) -> Iterator[Chunk]:
    """The chunks; when the next one is asked for, it is noted that the last one is imported."""
    for chunk in source.chunks():
        yield chunk
        place.note(source.position)


def _open(file: Path) -> BinaryIO:
    if str(file) == "-":
        return sys.stdin.buffer
    try:
        return file.open("rb")
    except OSError as error:
        raise InvalidSetting(f"{file}: it cannot be read: {error.strerror}") from None


@contextmanager
def _what_follows(said: str) -> Iterator[None]:
    """Say after a bad line what it means for the others."""
    try:
        yield
    except InvalidTask as error:
        raise InvalidTask(f"{error}; {said}") from None
