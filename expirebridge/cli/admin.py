"""Commands for operators of a server and its listeners."""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict
from typing import Annotated, Any

import typer

from expirebridge.checks import OVERDUE_LIMIT, Finding, Level, check_health, examine
from expirebridge.checks.finding import error
from expirebridge.checks.work import check_left_out
from expirebridge.cli.options import (
    FAULT,
    ILL,
    NOT_POSSIBLE,
    AsJson,
    Doorbell,
    Lease,
    LedgerName,
    LedgerUrl,
    Prefix,
    Url,
    extra_is_there,
    refuse_password,
)
from expirebridge.cli.output import print_json, print_line, print_table, printable, warn_of
from expirebridge.cli.stats import store_of
from expirebridge.cli.tasks import read_arguments
from expirebridge.connection import clients
from expirebridge.connection.urls import safe_url
from expirebridge.errors import PartitionsDiffer, ServerError
from expirebridge.hooks import Hooks
from expirebridge.model.durations import human, seconds_of
from expirebridge.model.keys import slot_of
from expirebridge.model.partitions import MAX_PARTITIONS, PartitionLayout
from expirebridge.model.task import Counts
from expirebridge.producer.bridge import Bridge
from expirebridge.producer.operations import Operations
from expirebridge.settings import Settings
from expirebridge.store import acl as rights
from expirebridge.store.acl import LoginRole
from expirebridge.store.commands.ledger import read_ledgers
from expirebridge.store.commands.producing import COUNTED
from expirebridge.store.partitions import Partitions


def doctor(
    role: Annotated[
        LoginRole, typer.Option(help="What the login in the URL is for.")
    ] = LoginRole.LISTENER,
    url: Url = None,
    prefix: Prefix = None,
    doorbell: Doorbell = None,
    lease: Lease = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    as_json: AsJson = False,
) -> None:
    """Find problems, and show how to fix them.

    Checks the server, the rights of the login, and the listeners' work. You can run it while
    listeners work; it leaves nothing behind. The exit code is 0, or 5 if it found an error.

    Example: expirebridge doctor --url redis://admin:secret@db.example/1
    """
    refuse_password(ledger)
    settings = Settings.read(
        url=url, prefix=prefix, doorbell=doorbell, lease=lease, ledger=ledger,
        ledger_name=ledger_name,
    )  # fmt: skip
    with closing(_store(settings)) as store:
        findings = examine(store, settings, role)
        findings += _of_ledger(store, settings, writes=True)
        findings += _of_ledger_series(settings)
    if as_json:
        print_json(_as_data(findings, fine={Level.OK, Level.LIMIT, Level.WARNING}))
    else:
        _print_report(findings, settings.url)
    if any(finding.level is Level.ERROR for finding in findings):
        raise typer.Exit(ILL)


def check(
    max_overdue: Annotated[
        str, typer.Option(metavar="DURATION", help="How long a due task may wait.")
    ] = human(OVERDUE_LIMIT),
    here: Annotated[
        bool,
        typer.Option("--here", help="Require a listener on this machine, or in this container."),
    ] = False,
    url: Url = None,
    prefix: Prefix = None,
    doorbell: Doorbell = None,
    lease: Lease = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    as_json: AsJson = False,
) -> None:
    """Exit with 0 if listeners are healthy, and with 1 if not.

    Healthy listeners beat, are subscribed, and let no due task wait for long. If something is
    wrong, the one line of output says what. For Docker's HEALTHCHECK and Kubernetes' exec probes.
    Give it the same --doorbell and --lease as the listeners. With EXPIREBRIDGE_LEDGER, and without
    --here, the ledger's database is asked as well.

    Example: expirebridge check --here --max-overdue 1m
    """
    refuse_password(ledger)
    settings = Settings.read(
        url=url, prefix=prefix, doorbell=doorbell, lease=lease, ledger=ledger,
        ledger_name=ledger_name,
    )  # fmt: skip
    limit = seconds_of(max_overdue, name="max-overdue")
    with closing(_store(settings)) as store:
        try:
            findings = store.run(check_health(store.database, settings, limit=limit, here=here))
            findings += check_left_out(store.left_out, here=here)
            if not here:
                findings += _of_ledger(store, settings, limit=limit)
        except ServerError as failure:
            findings = [error("server", str(failure), "")]
    faults = [finding for finding in findings if finding.level is not Level.OK]
    if as_json:
        print_json(_as_data(findings, fine={Level.OK}))
    else:
        shown = "; ".join(finding.message for finding in faults or findings)
        print_line(f"{'not ok' if faults else 'ok'}: {printable(shown)}")
    if faults:
        raise typer.Exit(FAULT)


def acl(
    role: Annotated[
        LoginRole | None,
        typer.Argument(help="What the login is for; if not given, the first three."),
    ] = None,
    conf: Annotated[
        bool, typer.Option("--conf", help="Print lines for redis.conf or an ACL file.")
    ] = False,
    redis_6: Annotated[bool, typer.Option("--redis-6", help="For Redis 6.2.")] = False,
    partitions: Annotated[
        bool,
        typer.Option(
            "--partitions",
            help="For a database with several partitions, as in a cluster in any case.",
        ),
    ] = False,
    url: Url = None,
    prefix: Prefix = None,
) -> None:
    """Print ACL lines with the fewest rights that each role needs.

    Producers make, find and change tasks; listeners run them; a dashboard finds and changes them;
    a mover carries them to another database, and needs these rights there, too.
    This connects to no server: only the database is taken from the URL. Replace PASSWORD.

    Example: expirebridge acl listener | sed s/PASSWORD/$SECRET/ | redis-cli
    """
    settings = Settings.read(url=url, prefix=prefix)
    with closing(_store(settings)) as store:
        database = store.database
    spread = database.clustered and not slot_of(settings.prefix)
    for one in [role] if role else rights.STANDING:
        print_line(
            rights.line(
                one,
                prefix=settings.prefix,
                database=database.number,
                partitions=MAX_PARTITIONS if partitions or spread else 1,
                conf=conf,
                redis_6=redis_6,
                followed=database.followed,
                clustered=database.clustered,
            )
        )


def _of_ledger(store: Partitions, settings: Settings, **options: Any) -> list[Finding]:
    """What is found of the ledger, if the settings name one."""
    if settings.ledger is None:
        return []
    with extra_is_there():
        from expirebridge.ledger.checks import check_ledger  # noqa: PLC0415
    return check_ledger(settings, lambda: store.run(read_ledgers(run_ids=True)), **options)


def _of_ledger_series(settings: Settings) -> list[Finding]:
    if settings.ledger is None:
        return []
    from expirebridge.ledger.checks import check_ledger_series  # noqa: PLC0415 - as above

    return check_ledger_series(settings)


def _store(settings: Settings) -> Partitions:
    return Partitions(clients.probe_client(settings.url, settings.prefix), prefix=settings.prefix)


def _as_data(findings: Iterable[Finding], *, fine: set[Level]) -> dict[str, Any]:
    found = list(findings)
    well = all(finding.level in fine for finding in found)
    return {"ok": well, "findings": [asdict(finding) for finding in found]}


def _print_report(findings: Iterable[Finding], url: str) -> None:
    found = list(findings)
    print_line(f"{safe_url(url)}\n")
    for finding in found:
        print_line(f"{finding.level:<8} {finding.check:<14} {printable(finding.message)}")
        if finding.remedy:
            print_line(f"{'':<8} {'':<14} -> {printable(finding.remedy)}")
    levels = [finding.level for finding in found]
    errors, warnings = levels.count(Level.ERROR), levels.count(Level.WARNING)
    limits = levels.count(Level.LIMIT)
    print_line(
        f"\n{errors} error{'s' if errors != 1 else ''}, {warnings} warning"
        f"{'s' if warnings != 1 else ''}, {levels.count(Level.OK)} ok"
        + (f", {limits} limit{'s' if limits != 1 else ''}" if limits else "")
    )
    if limits:
        print_line(
            "This server keeps some of its settings to itself: make them where its provider does."
        )
    elif any(finding.remedy.startswith(("CONFIG", "ACL")) for finding in found):
        print_line(
            "CONFIG and ACL commands are for redis-cli; write them to redis.conf, too, or they are "
            "lost when the server restarts."
        )


# Commands for the partitions of a database, and for the names of trigger keys.

group = typer.Typer(
    help="Partitions: create them, and show the tag of each.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@group.command("create")
def create(
    count: Annotated[int, typer.Argument(help="How many: a power of two, up to 256.")],
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Divide a new database into partitions, before anything else is written to it.

    Their number cannot be changed later. If the database has another number, nothing is changed,
    and the exit code is 3.

    Example: expirebridge partitions create 16
    """
    with Bridge(url, prefix=prefix) as bridge:
        try:
            bridge.create_partitions(count)
        except PartitionsDiffer as refusal:
            typer.echo(f"expirebridge: {refusal}", err=True)
            raise typer.Exit(NOT_POSSIBLE) from None
    if as_json:
        return print_json({"partitions": count})
    return print_line("1 partition" if count == 1 else f"{count} partitions")


@group.command("show")
def show(url: Url = None, prefix: Prefix = None, as_json: AsJson = False) -> None:
    """Show how many partitions there are, and of each the tag and the tasks.

    Example: expirebridge partitions show
    """
    settings = Settings.read(url=url, prefix=prefix)
    with closing(store_of(settings)) as store:
        found = store.run(Operations(settings, Hooks()).list_partitions())
    layout = PartitionLayout(settings.prefix, len(found))
    rows = [_row(layout, number, counts) for number, counts in enumerate(found)]
    if as_json:
        return print_json(rows)
    columns = list(rows[0])
    warn_of(one for counts in found for one in counts.left_out)
    return print_table(columns, [tuple(_shown(row[name]) for name in columns) for row in rows])


def _shown(value: object) -> str:
    return "" if value is None else str(value)


def _row(layout: PartitionLayout, number: int, counts: Counts) -> dict[str, Any]:
    """What is shown of a partition; nothing is counted in one that cannot be asked."""
    served = counts.left_out[0].why if counts.left_out else "served"
    numbers = {name: None if counts.left_out else getattr(counts, name) for name in COUNTED}
    return {"partition": number, "tag": layout.slot_of(number), "is": served} | numbers


def key(
    id: Annotated[str, typer.Argument(help="The task's id.")],
    func: Annotated[str, typer.Argument(help="The handler: module.function.")],
    args: Annotated[
        str, typer.Argument(help="JSON: an array, or an object of keyword arguments.")
    ] = "[]",
    url: Url = None,
    prefix: Prefix = None,
) -> None:
    """Print the name of the key with which another client makes this task.

    With several partitions it begins with the tag of the one to which the id belongs.

    Example: redis-cli -n 1 SET "$(expirebridge key dev:7 devices.offline '[7]')" '' EX 30
    """
    positional, keywords = read_arguments(args)
    with Bridge(url, prefix=prefix) as bridge:
        print_line(bridge.key_of(id, func, positional, keywords).decode())
