"""The command that writes tasks as lines of JSON."""

import heapq
import itertools
import os
import sys
from collections.abc import Iterator, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from expirebridge.bridge import Operations
from expirebridge.cli.ending import NOT_POSSIBLE
from expirebridge.cli.options import Prefix, Url
from expirebridge.cli.output import progress_bar, warn
from expirebridge.cli.stats import store_of
from expirebridge.hooks import Hooks
from expirebridge.limits.calls import read_limits
from expirebridge.moving import calls, ndjson
from expirebridge.moving.calls import Stored
from expirebridge.series.calls import series_page
from expirebridge.series.replies import StoredSeries
from expirebridge.settings import Settings
from expirebridge.store.partitions import Partitions
from expirebridge.task.absence import what_is_elsewhere
from expirebridge.task.calls.pages import Pages
from expirebridge.task.listings import texts_of
from expirebridge.task.queue_place import limit_name_of
from expirebridge.task.task import UNCLAIMED, State
from expirebridge.task.texts import plural


def export(
    file: Annotated[
        Path | None, typer.Argument(help="Where to; stdout if not given.", dir_okay=False)
    ] = None,
    url: Url = None,
    prefix: Prefix = None,
) -> None:
    """Write the tasks that wait, groups and series as lines of JSON, each task with its due time.

    The tasks stay where they are: stop the listeners first, and do not start them again, or what
    is imported elsewhere runs twice. What moves meanwhile may be missed. Running and finished tasks
    are left out, and so are series that handlers declare: listeners declare them there, too.
    If partitions of a cluster cannot be read, the others are written, and the exit code is 3.

    Groups are written with what they know of their members, but for those that are being cancelled.

    Example: expirebridge export tasks.ndjson

    Example: expirebridge export --url $OLD | gzip > tasks.ndjson.gz
    """
    settings = Settings.read(url=url, prefix=prefix)
    with closing(store_of(settings)) as store, _opened(file) as output:
        counts = store.run(Operations(settings, Hooks()).count())
        if counts.listeners:
            beating = plural(counts.listeners, "listener beats", "listeners beat")
            warn(f"{beating}: what runs meanwhile runs elsewhere, too")
        with progress_bar("exporting", counts.unfinished - counts.running) as advance:
            groups = _write_groups(store, output)
            unreadable = 0
            for task, state, lanes in _waiting(store):
                if groups.have(task.id):
                    continue
                line = ndjson.encode(task, state, lanes)
                if line is None:
                    unreadable += 1
                else:
                    output.write(line)
                advance(1)
        for series in _scheduled(store, settings):
            line = ndjson.encode_series(series)
            if line is None:
                warn(f"series {series.id!r}, whose record cannot be read, is left out")
            else:
                output.write(line)
        left_out = store.left_out
        elsewhere = store.run(what_is_elsewhere())
    _warn_of_rest(counts.running, unreadable, elsewhere)
    for text in texts_of(left_out):
        warn(f"left out: {text}")
    if left_out:
        raise typer.Exit(NOT_POSSIBLE)


def _warn_of_rest(running: int, unreadable: int, elsewhere: Sequence[str]) -> None:
    """Say which tasks were not written, beside those of partitions that cannot be read."""
    for sentence in elsewhere:
        warn(sentence)
    if running:
        warn(f"{plural(running, 'running task is', 'running tasks are')} left out")
    if unreadable:
        unread = plural(unreadable, "task that cannot be read is", "tasks that cannot be read are")
        warn(f"{unread} left out")


@dataclass
class _WrittenGroups:
    """Tasks that groups have taken care of: they are not written."""

    follow_ups: set[str] = field(default_factory=set)
    """Paused ones: they are in the lines of their groups."""
    cancelled: set[str] = field(default_factory=set)
    """Names of groups of which members are still to be cancelled."""

    def have(self, id: str) -> bool:
        """True for a task that is not to be written."""
        return id in self.follow_ups or id.partition("@g")[0] in self.cancelled


def _write_groups(store: Partitions, output: BinaryIO) -> _WrittenGroups:
    """Write the groups: before the tasks, which import makes as their members."""
    written = _WrittenGroups()
    pages = Pages(calls.stored_groups)
    while page := store.run(pages.next()):
        for group in page.groups:
            if "stopped" in group.fields and "ended" not in group.fields:
                warn(f"group {group.name!r}, which is being cancelled, is left out")
                written.cancelled.add(group.name)
                continue
            line = ndjson.encode_group(group)
            if line is None:
                warn(f"group {group.name!r}, whose record cannot be read, is left out")
                continue
            output.write(line)
            if group.follow_up is not None:
                written.follow_ups.add(group.follow_up.id)
    return written


def _waiting(store: Partitions) -> Iterator[tuple[Stored, State, list[str]]]:
    """Every task that waits, with the ordered lanes that it keeps waiting: those with some first.

    The others come by due time, so that none is imported before one that is before it in its lane.
    A failed task that keeps its lane waiting counts as a paused one. A paused one that is resumed
    meanwhile comes twice, with one id.
    """
    ordered = {limit.name for limit in store.run(read_limits(1)).limits if limit.ordered}
    for state in (*UNCLAIMED, State.FAILED) if ordered else ():
        for task in _of_state(store, state):
            if lanes := _kept_lanes(task, ordered):
                yield task, State.PAUSED if state is State.FAILED else state, lanes
    due = heapq.merge(
        ((task, State.PENDING) for task in _of_state(store, State.PENDING)),
        ((task, State.WAITING) for task in _of_state(store, State.WAITING)),
        key=lambda found: (found[0].due, found[0].id),
    )
    paused = ((task, State.PAUSED) for task in _of_state(store, State.PAUSED))
    for task, state in itertools.chain(due, paused):
        if not _kept_lanes(task, ordered):
            yield task, state, []


def _of_state(store: Partitions, state: State) -> Iterator[Stored]:
    pages = Pages(partial(calls.stored_page, state))
    while page := store.run(pages.next()):
        yield from page.tasks


def _kept_lanes(task: Stored, ordered: Set[str]) -> list[str]:
    """The lanes of ordered limits that a task which has begun keeps."""
    if "started" not in task.fields:
        return []
    slots = task.fields.get("slots", b"").decode(errors="replace").split("\n")
    return [lane for lane in slots if limit_name_of(lane) in ordered]


def _scheduled(store: Partitions, settings: Settings) -> Iterator[StoredSeries]:
    """Every series that a producer scheduled."""
    pages = Pages(lambda cursor: series_page(cursor, settings.lease))
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
