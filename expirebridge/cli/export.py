"""The command that writes the tasks that wait, and series, as lines of JSON."""

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from expirebridge.cli import transfer_files
from expirebridge.cli.options import NOT_POSSIBLE, Prefix, Url
from expirebridge.cli.progress import progress_bar, warn
from expirebridge.cli.stats import store_of
from expirebridge.hooks import Hooks
from expirebridge.model.task import State, texts_of
from expirebridge.producer.operations import Operations
from expirebridge.settings import Settings
from expirebridge.store import commands
from expirebridge.store.commands import Stored
from expirebridge.store.partitions import Partitions
from expirebridge.store.series_records import StoredSeries

WAITING = (State.PENDING, State.PAUSED)


def export(
    file: Annotated[
        Path | None, typer.Argument(help="Where to; stdout if not given.", dir_okay=False)
    ] = None,
    url: Url = None,
    prefix: Prefix = None,
) -> None:
    """Write the tasks that wait, and series, as lines of JSON, each task with its due time.

    The tasks stay where they are: stop the listeners first, and do not start them again, or what
    is imported elsewhere runs twice. What moves meanwhile may be missed. Running and finished tasks
    are left out, and so are series that handlers declare: listeners declare them there, too.
    If partitions of a cluster cannot be read, the others are written, and the exit code is 3.

    Example: expirebridge export tasks.ndjson

    Example: expirebridge export --url $OLD | gzip > tasks.ndjson.gz
    """
    settings = Settings.read(url=url, prefix=prefix)
    with closing(store_of(settings)) as store, _opened(file) as output:
        counts = store.run(Operations(settings, Hooks()).count())
        if counts.listeners:
            warn(f"{counts.listeners} listeners beat: what they run meanwhile runs elsewhere, too")
        with progress_bar("exporting", counts.pending + counts.paused) as advance:
            unreadable = 0
            for task, state in _waiting(store):
                line = transfer_files.encode(task, state)
                if line is None:
                    unreadable += 1
                else:
                    output.write(line)
                advance(1)
        for series in _scheduled(store, settings):
            line = transfer_files.encode_series(series)
            if line is None:
                warn(f"series {series.id!r}, whose record cannot be read, is left out")
            else:
                output.write(line)
        left_out = store.left_out
    if counts.running:
        warn(f"{counts.running} running tasks are left out")
    if unreadable:
        warn(f"{unreadable} tasks that cannot be read are left out")
    for text in texts_of(left_out):
        warn(f"left out: {text}")
    if left_out:
        raise typer.Exit(NOT_POSSIBLE)


def _waiting(store: Partitions) -> Iterator[tuple[Stored, State]]:
    """Every task that waits. A paused one that is resumed meanwhile comes twice, with one id."""
    for state in WAITING:
        pages = commands.Pages(partial(commands.stored_page, state))
        while page := store.run(pages.next()):
            for task in page.tasks:
                yield task, state


def _scheduled(store: Partitions, settings: Settings) -> Iterator[StoredSeries]:
    """Every series that a producer scheduled."""
    pages = commands.Pages(lambda cursor: commands.series_page(cursor, settings.lease))
    while page := store.run(pages.next()):
        for series in page.series:
            if "declared" not in series.record:
                yield series


@contextmanager
def _opened(file: Path | None) -> Iterator[BinaryIO]:
    """The file, there only when it is whole; or stdout."""
    if file is None:
        yield sys.stdout.buffer
        return
    part = file.with_name(f"{file.name}.part")
    with part.open("wb") as output:
        yield output
        output.flush()
        os.fsync(output.fileno())
    part.replace(file)
