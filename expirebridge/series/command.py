"""Commands for series, which have their tasks again and again."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NoReturn

import typer

from expirebridge.bridge import Bridge
from expirebridge.cli.ending import NOT_POSSIBLE
from expirebridge.cli.options import (
    AsJson,
    LedgerName,
    LedgerUrl,
    Url,
    Yes,
    confirm,
    refuse_password,
)
from expirebridge.cli.output import (
    arguments_of,
    as_data,
    as_rows,
    left_out_as_data,
    moment,
    print_fields,
    print_json,
    print_line,
    print_table,
    printable,
    task_as_data,
    warn_of,
)
from expirebridge.cli.stats import store_of
from expirebridge.errors import NotPermitted, ServerUnreachable
from expirebridge.series.fields import FIELDS
from expirebridge.series.places import AllSeries, is_one_in_use, place_beside
from expirebridge.series.values import Series
from expirebridge.settings import Settings
from expirebridge.task.durations import human
from expirebridge.task.fields import values_of
from expirebridge.task.task import Change, Task
from expirebridge.task.texts import plural

# The series that the commands see: those of Redis, and of a ledger if one is named.

NAME_IT = "give --ledger, or set EXPIREBRIDGE_LEDGER"


class SeriesSeen(AllSeries):
    """All series of what the options of a command name."""

    def __init__(self, bridge: Bridge, settings: Settings) -> None:
        there = place_beside(settings)
        super().__init__(bridge, there)
        self._settings = settings
        self.has_ledger = there is not None
        """True if one is named."""

    def lacks_ledger(self) -> bool:
        """True if none is named, although this database of Redis belongs to one."""
        if self.has_ledger:
            return False
        with closing(store_of(self._settings)) as store:
            try:
                return store.run(is_one_in_use())
            except (NotPermitted, ServerUnreachable):  # not known: what is asked next says why
                return False


@contextmanager
def series_seen(
    url: str | None, ledger: str | None, ledger_name: str | None
) -> Iterator[SeriesSeen]:
    """All series of what these options name."""
    refuse_password(ledger)
    settings = Settings.read(url=url, ledger=ledger, ledger_name=ledger_name)
    with Bridge(url) as bridge:
        yield SeriesSeen(bridge, settings)


MOST_NEXT = 1000
DECLARED = (
    "handlers declare it: remove its @every, and once no listener has it any more, `expirebridge "
    "series prune`"
)
Id = Annotated[str, typer.Argument(help="The id of the series.")]

group = typer.Typer(
    help="Series, which have their tasks again and again: look at them, pause, run, remove them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@group.command("list")
def list_(
    limit: Annotated[int, typer.Option(help="The most series to show.")] = 100,
    cursor: Annotated[
        str | None, typer.Option(help="Where an earlier listing says it continues.")
    ] = None,
    url: Url = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    as_json: AsJson = False,
) -> None:
    """List series, those first whose next tick is first; paused ones last.

    With a ledger, up to --limit of Redis and as many of the ledger.

    Example: expirebridge series list --limit 20
    """
    with series_seen(url, ledger, ledger_name) as series:
        listing = series.list(limit, cursor)
        lacks, in_both = series.lacks_ledger(), series.has_ledger
    if lacks:
        typer.echo(f"(without the series of the ledger: {NAME_IT})", err=True)
    if as_json:
        return print_json(
            {"series": list(map(series_as_data, listing.series)), "cursor": listing.cursor}
            | left_out_as_data(listing.left_out)
        )
    warn_of(listing.left_out)
    print_table(
        ("id", *(["in"] if in_both else []), "schedule", "function", "next", "last", "ended",
         "late", "standing"),
        [
            (
                one.id, *([_place(one)] if in_both else []), _schedule(one), one.func,
                moment(one.due) or "", moment(one.began or one.last) or "", one.state or "",
                _seconds(one.late), one.standing,
            )
            for one in listing.series
        ],
    )  # fmt: skip
    if listing.cursor is not None:
        typer.echo(f"(there are more: --cursor {listing.cursor})", err=True)
    return None


@group.command()
def show(
    id: Id,
    url: Url = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    as_json: AsJson = False,
) -> None:
    """Show all that is known of one series.

    Example: expirebridge series show nightly
    """
    with series_seen(url, ledger, ledger_name) as known:
        series = _found(known, id)
    if as_json:
        return print_json(series_as_data(series))
    return print_fields(_as_rows(series))


@group.command("next")
def next_(
    id: Id,
    count: Annotated[
        int, typer.Option("-n", "--count", min=1, max=MOST_NEXT, help="How many ticks.")
    ] = 10,
    url: Url = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    as_json: AsJson = False,
) -> None:
    """Show when the next ticks are: in UTC, and in the zone of the series with its offset.

    Only the first of them exists; the others are computed, by the zone data of this machine.

    Example: expirebridge series next nightly -n 10
    """
    with series_seen(url, ledger, ledger_name) as known:
        series = _found(known, id)
    now = datetime.now(UTC)
    # The tick that waits comes first, even if its time has passed.
    after = now if series.next is None else series.next - timedelta(milliseconds=1)
    ticks = series.coming(count, after)
    if as_json:
        return print_json([tick.isoformat() for tick in ticks])
    zone = series.schedule.tz if series.schedule is not None else ""
    print_table(
        ("utc", f"local ({zone})", "in"),
        [
            (
                tick.astimezone(UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00"),
                tick.strftime("%a %Y-%m-%d %H:%M:%S %z"),
                human((tick - now).total_seconds()) if tick > now else "now",
            )
            for tick in ticks
        ],
    )
    if note := series.standing:
        print_line(printable(f"({note})"))
    return None


@group.command()
def pause(
    id: Id,
    url: Url = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    as_json: AsJson = False,
) -> None:
    """Let a series make no ticks until you resume it; its waiting tick is removed.

    A deploy does not resume it.

    Example: expirebridge series pause nightly
    """
    with series_seen(url, ledger, ledger_name) as series:
        _report(series, id, series.pause(id), as_json=as_json)


@group.command()
def resume(
    id: Id,
    url: Url = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    as_json: AsJson = False,
) -> None:
    """Let a paused series go on, with the first tick from now on.

    Example: expirebridge series resume nightly
    """
    with series_seen(url, ledger, ledger_name) as series:
        _report(series, id, series.resume(id), as_json=as_json)


@group.command()
def run(
    id: Id,
    url: Url = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    as_json: AsJson = False,
) -> None:
    """Make one more tick, due now, and print its id; the others stay as they are.

    Example: expirebridge series run nightly
    """
    with series_seen(url, ledger, ledger_name) as series:
        task = series.run(id)
        if task is None:
            _report(series, id, Change.NOT_FOUND, as_json=as_json)
    if as_json:
        print_json(task_as_data(task) if isinstance(task, Task) else {"id": task.id})
    else:
        print_line(task.id)


@group.command()
def remove(
    id: Id,
    url: Url = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    as_json: AsJson = False,
) -> None:
    """Remove a series and its waiting tick. What runs, or is retried, runs to its end.

    A series that the handlers of a listener declare is left: it would come back.

    Example: expirebridge series remove tenant-7
    """
    with series_seen(url, ledger, ledger_name) as series:
        _report(series, id, series.remove(id), as_json=as_json)


@group.command()
def prune(yes: Yes = False, url: Url = None, as_json: AsJson = False) -> None:
    """Remove the series that no listener's handlers declare any more, and print their ids.

    Those that a producer scheduled stay. If no listener beats, nothing is removed.

    Example: expirebridge series prune --yes
    """
    confirm("Remove the series that no listener declares any more?", yes=yes)
    with Bridge(url) as bridge:
        removed = bridge.prune_series()
    if as_json:
        return print_json(removed)
    for id in removed:
        print_line(printable(id))
    typer.echo(f"{len(removed):,} removed", err=True)
    return None


def series_as_data(series: Series) -> dict[str, Any]:
    """A series as JSON can hold it. A tick that began at once has no `late`."""
    data = as_data(series, without={"outcome"})
    return data | {"schedule": _schedule(series), "late": data["late"] or None}


def _as_rows(series: Series) -> list[tuple[str, str]]:
    beating = plural(series.carriers, "listener that beats", "listeners that beat")
    return as_rows(
        values_of(series, FIELDS),
        schedule=_schedule(series),
        args=arguments_of(series.args, series.kwargs),
        ledger="the ledger" if series.ledger else "",
        declared=f"by {beating}" if series.declared else "no: scheduled",
        ended=f"{series.state or ''} {moment(series.ended) or ''}".strip(),
    )


def _schedule(series: Series) -> str:
    return str(series.schedule) if series.schedule is not None else "?"


def _place(series: Series) -> str:
    return "ledger" if series.ledger else "redis"


def _seconds(late: timedelta | None) -> str:
    return "" if late is None else human(late.total_seconds())


def _found(known: SeriesSeen, id: str) -> Series:
    series = known.get(id)
    if series is None:
        _refuse(known, id, Change.NOT_FOUND)
    return series


def _report(series: SeriesSeen, id: str, change: Change, *, as_json: bool) -> None:
    """Print what was done; exit with 3 if it was not."""
    done = change not in {Change.NOT_FOUND, Change.DECLARED}
    if as_json:
        print_json({"id": id, "outcome": change})
        if not done:
            raise typer.Exit(NOT_POSSIBLE)
    elif done:
        print_line(f"{id}: {change}")
    else:
        _refuse(series, id, change)


def _refuse(series: SeriesSeen, id: str, change: Change) -> NoReturn:
    reason = DECLARED if change is Change.DECLARED else str(change)
    if change is Change.NOT_FOUND and series.lacks_ledger():
        reason += f" in Redis; if it is of the ledger, {NAME_IT}"
    typer.echo(printable(f"expirebridge: series {id!r}: {reason}"), err=True)
    raise typer.Exit(NOT_POSSIBLE)
