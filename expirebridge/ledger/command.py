"""The commands of the ledger: its tables in your SQL database, and how it stands."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expirebridge.cli.ending import ILL
from expirebridge.cli.options import (
    AsJson,
    LedgerName,
    LedgerUrl,
    Prefix,
    Url,
    extra_is_there,
    refuse_password,
)
from expirebridge.cli.output import print_fields, print_json, print_line, printable
from expirebridge.cli.stats import store_of
from expirebridge.connection import clients
from expirebridge.connection.urls import check_url, safe_url
from expirebridge.errors import InvalidSetting, InvalidTask
from expirebridge.ledger.calls import RedisCheckpoint, WriteBackBacklog, read_ledgers
from expirebridge.settings import Settings, named_url
from expirebridge.store.partitions import Partitions
from expirebridge.task.durations import human, seconds_of
from expirebridge.task.explaining import clock
from expirebridge.task.texts import plural

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from expirebridge.ledger.figures import KeptBack, LedgerStatus
    from expirebridge.ledger.partition import LedgerEngine, LedgerPartition


# Opens the SQL and Redis connections for the ledger's commands.


def settings_of(url: str | None, name: str | None) -> Settings:
    """The settings; a password must not stand where every user of the machine can read it."""
    refuse_password(url)
    settings = Settings.read(ledger=url, ledger_name=name)
    if settings.ledger is None:
        raise InvalidSetting("which database? Give --ledger, or set EXPIREBRIDGE_LEDGER")
    return settings


@contextmanager
def connected(settings: Settings) -> "Iterator[Connection]":
    """A transaction in the ledger's database; what goes wrong there becomes a LedgerError."""
    from expirebridge.ledger import engine as engines  # noqa: PLC0415

    with engines.connected(settings.ledger or "") as connection:
        yield connection


@contextmanager
def opened(
    url: str | None, prefix: str | None, ledger: str | None, ledger_name: str | None
) -> "Iterator[tuple[Partitions, LedgerEngine]]":
    """Open the server and the ledger of a command's options, and close them in the end."""
    with extra_is_there():
        from expirebridge.ledger.partition import LedgerEngine  # noqa: PLC0415
    redis = Settings.read(url=url, prefix=prefix)
    with closing(store_of(redis)) as server:
        settings = replace(settings_of(ledger, ledger_name), url=redis.url, prefix=redis.prefix)
        with closing(LedgerEngine(settings)) as engine:
            yield server, engine


# The commands that keep the ledger's table small, and forget what it should not hold.


def add_to(group: typer.Typer) -> None:
    """Add the commands to the group."""
    for command in (prune, erase):
        group.command(command.__name__)(command)


def prune(
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Only tasks that finished so long ago.  [default: EXPIREBRIDGE_LEDGER_KEEP, 30d]",
            show_default=False,
        ),
    ] = None,
    url: Url = None,
    prefix: Prefix = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    as_json: AsJson = False,
) -> None:
    """Delete the rows of tasks that finished long ago, in batches.

    Listeners with the ledger do so by themselves. A row stays while Redis may still know its task
    as unfinished.

    Example: expirebridge ledger prune --older-than 7d
    """
    with opened(url, prefix, ledger, ledger_name) as (server, engine):
        keep = engine.settings.ledger_keep if older_than is None else _seconds(older_than)
        count = sum(_pruned(partition, keep) for partition in engine.all_partitions(server))
    if as_json:
        return print_json({"deleted": count})
    return print_line(f"deleted {plural(count, 'row', 'rows')}")


def _pruned(partition: "LedgerPartition", keep: float) -> int:
    """Delete the old rows of one partition; returns how many."""
    pruned = partition.prune(keep)
    count = pruned.deleted
    while pruned.place is not None:
        pruned = partition.prune(keep, pruned.place)
        count += pruned.deleted
    return count


def erase(
    id: Annotated[str | None, typer.Option("--id", help="The task of this id.")] = None,
    ext: Annotated[str | None, typer.Option("--ext", help="All tasks of this ext.")] = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    as_json: AsJson = False,
) -> None:
    """Erase what finished tasks were given, and why they failed.

    The rows stay. A listener with the ledger then has Redis forget it as well. Nothing of
    unfinished tasks is erased.

    Example: expirebridge ledger erase --ext customer-17
    """
    with extra_is_there():
        from expirebridge.ledger.ledger import Ledger  # noqa: PLC0415
    settings = settings_of(ledger, ledger_name)
    with connected(settings) as connection:
        own = Ledger(settings.ledger, name=settings.ledger_name)
        count = own.erase(connection, id, ext=ext)
    if as_json:
        return print_json({"erased": count})
    return print_line(f"erased {plural(count, 'task', 'tasks')}")


def _seconds(text: str) -> float:
    try:
        return seconds_of(text, name="older-than")
    except InvalidTask:
        raise InvalidSetting(f"--older-than {text}: write it like 90s, 12h or 7d") from None


group = typer.Typer(
    help="The ledger: tasks in a table of your own SQL database.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
add_to(group)


@group.command("ddl")
def ddl_(
    dialect: Annotated[
        str | None,
        typer.Option(
            help="postgresql, sqlite, mysql or mariadb.  [default: that of EXPIREBRIDGE_LEDGER]",
            show_default=False,
        ),
    ] = None,
    ledger: LedgerUrl = None,
) -> None:
    """Print the statements that create the ledger's tables.

    Example: expirebridge ledger ddl --dialect postgresql | psql shop
    """
    with extra_is_there():
        from expirebridge.ledger.engine import read_url  # noqa: PLC0415
        from expirebridge.ledger.schema import DIALECTS, ddl  # noqa: PLC0415
    if dialect is None:
        dialect = read_url(settings_of(ledger, None).ledger or "").get_backend_name()
    if dialect not in DIALECTS:
        raise InvalidSetting(f"dialect={dialect!r}: one of {', '.join(DIALECTS)}")
    print_line(ddl(dialect).rstrip("\n"))


@group.command("create")
def create_(ledger: LedgerUrl = None, as_json: AsJson = False) -> None:
    """Create the ledger's tables, unless they are there.

    What an interrupted call left out is added. Tables of another version are left alone, and the
    exit code is 1.

    Example: expirebridge ledger create
    """
    with extra_is_there():
        from expirebridge.ledger.schema import create  # noqa: PLC0415
        from expirebridge.ledger.sql_tables import VERSION, own_tables  # noqa: PLC0415
    with connected(settings_of(ledger, None)) as connection:
        created = create(connection, own_tables())
    if as_json:
        return print_json({"created": created, "version": VERSION})
    return print_line(f"{'created' if created else 'there already'}: version {VERSION}")


@group.command("status")
def status_(
    url: Url = None,
    prefix: Prefix = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    as_json: AsJson = False,
) -> None:
    """Show how many tasks the ledger holds, and how many rows wait for the relay.

    Counts the whole table. With --url, or EXPIREBRIDGE_URL, it shows as well how far rows are
    behind Redis.

    Example: expirebridge ledger status
    """
    with extra_is_there():
        from expirebridge.ledger.inspection import LedgerInspector  # noqa: PLC0415
    redis = Settings.read(url=url, prefix=prefix) if url or named_url() else None
    if redis is not None:
        check_url(redis.url)  # before the database is asked
    inspector = LedgerInspector(settings_of(ledger, ledger_name))
    checkpoints = {} if redis is None else _checkpoints(redis)
    status = inspector.status([id for one in checkpoints.values() for id in one.stuck_ids])
    if as_json:
        of_redis = {} if redis is None else {"redis": _as_data(checkpoints)}
        return print_json(asdict(status) | of_redis)
    fields = {} if redis is None else _of_redis(checkpoints)
    return print_fields((_as_fields(status) | fields).items())


@group.command("check")
def check_(
    ledger: LedgerUrl = None, ledger_name: LedgerName = None, as_json: AsJson = False
) -> None:
    """Check the tables, and the rows that wait for the relay.

    Names each row that the relay would refuse, but not its arguments; the exit code is 5 then. It
    is 1 if the database cannot be reached, or if its tables cannot be used.

    Example: expirebridge ledger check
    """
    with extra_is_there():
        from expirebridge.ledger.inspection import LedgerInspector  # noqa: PLC0415
        from expirebridge.ledger.sql_tables import VERSION  # noqa: PLC0415
    unfit = LedgerInspector(settings_of(ledger, ledger_name)).unfit_rows()
    if as_json:
        print_json({"version": VERSION, "unfit": [asdict(row) for row in unfit]})
    else:
        for row in unfit:
            print_line(f"{printable(row.id)}  {printable(row.reason)}")
        print_line(f"version {VERSION}, {plural(len(unfit), 'row', 'rows')} that cannot be relayed")
    if unfit:
        raise typer.Exit(ILL)


@group.command("rebuild")
def rebuild_(
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it: tasks of this ledger will run from this Redis.")
    ] = False,
    url: Url = None,
    prefix: Prefix = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    as_json: AsJson = False,
) -> None:
    """Bind the ledger to this Redis database, and have every row carried there again.

    Needed only when the relay says that the two are not each other's: after SQL was restored from a
    backup, or when both were moved at once. What Redis has lost is otherwise rebuilt without it.

    Example: expirebridge ledger rebuild --yes
    """
    with opened(url, prefix, ledger, ledger_name) as (server, engine):
        settings = engine.settings
        if not yes:
            raise InvalidSetting(
                f"every unfinished task of the ledger {settings.ledger_name!r} would run from "
                f"{safe_url(settings.url)}: pass --yes if that is meant"
            )
        for partition in engine.all_partitions(server):
            partition.rebuild()
    if as_json:
        return print_json({"bound": settings.ledger_name})
    return print_line("bound; a listener with this ledger carries every row again")


def _checkpoints(settings: Settings) -> dict[int, RedisCheckpoint]:
    """The checkpoint of each partition of Redis that answers."""
    client = clients.producer_client(settings.url, settings.prefix)
    with closing(Partitions(client, prefix=settings.prefix)) as store:
        return store.run(read_ledgers())


def _as_data(checkpoints: dict[int, RedisCheckpoint]) -> dict[str, Any]:
    """All partitions together."""
    write_back = WriteBackBacklog.of(checkpoints.values())
    data: dict[str, Any] = {
        "number": max((one.number for one in checkpoints.values()), default=0),
        "dirty": write_back.dirty,
        "oldest_dirty": write_back.oldest,
        "stuck": write_back.stuck,
    }
    if len(checkpoints) > 1:
        data["partitions"] = [
            {"partition": partition, "number": one.number, "dirty": one.dirty}
            for partition, one in checkpoints.items()
        ]
    return data


def _of_redis(checkpoints: dict[int, RedisCheckpoint]) -> dict[str, str]:
    dirty, _, waited, stuck = WriteBackBacklog.of(checkpoints.values())
    oldest = "" if waited is None else f", the first for {human(waited)}"
    numbers = ", ".join(f"{one.number}" for one in checkpoints.values())
    seen = f"pass {numbers}" if len(checkpoints) == 1 else f"passes {numbers}"
    return {"in redis": seen, "to write back": f"{dirty}{oldest}", "not written": f"{stuck}"}


def _kept_back(kept: "KeptBack", horizon: float) -> str:
    if kept.first is None or kept.last is None:
        return "0"
    near = kept.first - timedelta(seconds=horizon)
    return f"{kept.count}, the first until {clock(near)}, the last due {clock(kept.last)}"


def _as_fields(status: "LedgerStatus") -> dict[str, str]:
    oldest = "" if status.oldest is None else f", the oldest for {human(status.oldest)}"
    fields = {
        "ledger": status.ledger,
        "version": str(status.version),
        "waiting": str(status.waiting),
        "succeeded": str(status.succeeded),
        "failed": str(status.failed),
        "cancelled": str(status.cancelled),
        "refused": f"{status.refused} of the failed" if status.refused else "0",
        "to relay": f"{status.to_relay}{oldest}",
        "to rebuild": str(status.to_rebuild),
    }
    if status.horizon is not None:
        fields["horizon"] = human(status.horizon)
        fields["kept back"] = _kept_back(status.kept_back, status.horizon)
    if status.for_ids.count:
        example = printable(status.for_ids.example or "")
        fields["wait for ids"] = f"{status.for_ids.count}, such as {example}"
    for one in status.passes:
        fields[f"partition {one.partition}"] = f"pass {one.number}, stamp {one.stamp}"
    if status.held:
        fields["locked"] = "; ".join(str(each) for each in status.held)
    return fields
