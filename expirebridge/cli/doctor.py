"""The commands doctor and check: problems of a database, and the health of its listeners."""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from expirebridge.checks import MAX_OVERDUE, Finding, Level, check_health, examine
from expirebridge.checks.capability_checks import check_external
from expirebridge.checks.finding import error, ok
from expirebridge.checks.health import check_left_out
from expirebridge.checks.topology import refuse_limits
from expirebridge.cli.ending import FAULT, ILL
from expirebridge.cli.options import (
    AsJson,
    Doorbell,
    Lease,
    LedgerName,
    LedgerUrl,
    Prefix,
    Url,
    refuse_password,
)
from expirebridge.cli.output import print_json, print_line, printable, prints_aside
from expirebridge.cli.stats import probe_store_of
from expirebridge.connection.urls import safe_url
from expirebridge.errors import LimitsNeedOnePartition, ServerError
from expirebridge.handlers import Registry
from expirebridge.settings import Settings
from expirebridge.store.acl import LoginRole
from expirebridge.store.partitions import Partitions
from expirebridge.task.durations import human, seconds_of
from expirebridge.task.texts import plural


def doctor(
    role: Annotated[
        LoginRole, typer.Option(help="What the login in the URL is for.")
    ] = LoginRole.LISTENER,
    tasks: Annotated[
        Path | None,
        typer.Option(
            help="Also check whether the limits of the handlers in this folder can be kept."
        ),
    ] = None,
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
        ledger_name=ledger_name, tasks=tasks,
    )  # fmt: skip
    with prints_aside():
        registry = Registry.of(settings) if tasks is not None else None
    with closing(probe_store_of(settings)) as store:
        findings = examine(store, settings, role)
        if registry is not None:
            findings.append(_of_handlers(store, registry))
        findings += check_external(store, settings, MAX_OVERDUE, whole=True)
    if as_json:
        print_json(_as_data(findings, fine={Level.OK, Level.LIMIT, Level.WARNING}))
    else:
        _print_report(findings, settings.url)
    if any(finding.level is Level.ERROR for finding in findings):
        raise typer.Exit(ILL)


def check(
    max_overdue: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help=f"How long a due task may wait.  [default: {human(MAX_OVERDUE)}; "
            "with --here: not checked]",
            show_default=False,
        ),
    ] = None,
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
    wrong, the one line of output says what. For Docker's HEALTHCHECK and Kubernetes' exec probes,
    --here checks only the listener beside it, and not whether tasks wait. Give it the same
    --doorbell and --lease as the listeners. With EXPIREBRIDGE_LEDGER, and without --here, the
    ledger's database is asked as well.

    Example: expirebridge check --here --max-overdue 1m
    """
    refuse_password(ledger)
    settings = Settings.read(
        url=url, prefix=prefix, doorbell=doorbell, lease=lease, ledger=ledger,
        ledger_name=ledger_name,
    )  # fmt: skip
    allowed = None if here else MAX_OVERDUE
    if max_overdue is not None:
        allowed = seconds_of(max_overdue, name="max-overdue")
    with closing(probe_store_of(settings)) as store:
        try:
            findings = store.run(
                check_health(store.database, settings, max_overdue=allowed, here=here)
            )
            findings += check_left_out(store.left_out, here=here)
            if not here and allowed is not None:
                findings += check_external(store, settings, allowed, whole=False)
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


def _of_handlers(store: Partitions, handlers: Registry) -> Finding:
    """Whether the database can keep the limits of the handlers."""
    try:
        store.run(refuse_limits(handlers))
    except LimitsNeedOnePartition as failure:
        return error("handlers", str(failure), "")
    return ok("handlers", "their limits can be kept")


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
        f"\n{plural(errors, 'error', 'errors')}, {plural(warnings, 'warning', 'warnings')}, "
        f"{levels.count(Level.OK)} ok"
        + (f", {plural(limits, 'limit', 'limits')}" if limits else "")
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
