"""The command that moves the tasks of one database to another while both are in use."""

import signal
from contextlib import closing
from typing import Annotated

import typer

from expirebridge.checks import Level, check_rights_everywhere
from expirebridge.cli.ending import NOT_POSSIBLE
from expirebridge.cli.options import AsJson, Lease, Prefix, Url
from expirebridge.cli.output import print_counts, warn
from expirebridge.cli.stats import store_of
from expirebridge.connection.urls import safe_url
from expirebridge.errors import MoveRefused, ServerUnsuitable
from expirebridge.moving.migrator import Migrator
from expirebridge.settings import Settings
from expirebridge.store.acl import LoginRole
from expirebridge.store.partitions import Partitions
from expirebridge.task.listings import Counts
from expirebridge.task.texts import plural


def move(
    to: Annotated[str, typer.Option("--to", help="The database to move the tasks to.")],
    to_prefix: Annotated[
        str | None,
        typer.Option(
            help="The prefix there.  [default: the same]", show_default=False, metavar="TEXT"
        ),
    ] = None,
    lease: Lease = None,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Move all tasks to another database, while producers and listeners go on.

    It moves what waits, and then what producers with the old URL still make. Listeners of the old
    database go on: they run what is due within seconds, and the ticks of series. When they are
    stopped, it moves the rest, and ends.

    If it is stopped, or killed, the same command goes on where it was. With the two URLs exchanged
    it moves all back. The exit code is 3 if this cannot be done now.

    Example: expirebridge move --url redis://old:6379/1 --to redis+cluster://new1:7000,new2:7000
    """
    old = Settings.read(url=url, prefix=prefix, lease=lease)
    new = Settings.read(url=to, prefix=to_prefix or old.prefix)
    with closing(store_of(old)) as source, closing(store_of(new)) as target:
        migrator = Migrator(source, target, old, new)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: migrator.stop())
        report = MoveReport(migrator)
        for store, settings in ((source, old), (target, new)):
            _refuse_without_rights(store, settings)
        try:
            migrator.begin()
            is_over = migrator.run(report.show_pass)
        except MoveRefused as refusal:
            warn(str(refusal))
            raise typer.Exit(NOT_POSSIBLE) from None
        finally:
            report.print(as_json=as_json)
    if not is_over:
        warn("stopped; the same command goes on")


def _refuse_without_rights(store: Partitions, settings: Settings) -> None:
    """Refuse a login that lacks a right: a task that it may not read whole would be skipped."""
    for finding in check_rights_everywhere(store, LoginRole.MOVER):
        if finding.level is Level.ERROR:
            raise ServerUnsuitable(f"{safe_url(settings.url)}: {finding}")


class MoveReport:
    """Prints the progress of a move, and its counts at the end."""

    def __init__(self, migrator: Migrator) -> None:
        self._migrator = migrator
        self._said = ""

    def show_pass(self, counts: Counts) -> None:
        """Print what the move waits for, once each."""
        if self._migrator.has_listeners:
            self._say(
                "moved what can go; what producers still make here follows. When none uses "
                "this URL any more, stop the listeners here"
            )
        elif counts.running:
            self._say(
                f"{plural(counts.running, 'task is', 'tasks are')} marked as running, and no "
                "listener is alive: if theirs were killed, start one here for a moment"
            )
        elif keys := self._migrator.plain_keys():
            self._say(
                f"{plural(keys, 'key of another client is', 'keys of other clients are')} here "
                "that no listener has noticed: start one here for a moment"
            )

    def _say(self, message: str) -> None:
        if message != self._said:
            warn(message)
        self._said = message

    def print(self, *, as_json: bool) -> None:
        """Print the counts."""
        moved = self._migrator.moved
        counts = {"moved": moved.tasks}
        if moved.series:
            counts["series"] = moved.series
        if moved.stayed:
            counts["stayed"] = moved.stayed
            warn(
                f"{plural(moved.stayed, 'task was', 'tasks were')} left out: the new database has "
                "others of the same id: "
                f"{', '.join(moved.stayed_ids)}"
            )
        print_counts(counts, as_json=as_json)
