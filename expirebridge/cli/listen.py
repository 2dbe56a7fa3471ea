"""The command `listen`: a listener, or the parent of several, or of one that restarts."""

import contextlib
import logging
import math
import os
import shlex
import sys
from dataclasses import replace
from typing import Annotated

import typer

from expirebridge.cli.functions import is_newer, load_into
from expirebridge.cli.options import (
    STUCK,
    AppDir,
    Doorbell,
    Functions,
    Lease,
    LedgerKeep,
    LedgerName,
    LedgerUrl,
    OnlyMarked,
    TasksFolder,
    Url,
    refuse_password,
)
from expirebridge.cli.output import end, ends_at_ctrl_c
from expirebridge.errors import InvalidSetting, ServerError
from expirebridge.handlers import Registry, watched
from expirebridge.hooks import Hook
from expirebridge.listener import listener
from expirebridge.listener.cores import usable_cores
from expirebridge.listener.parent import RELOADER, SupervisorLink, watch_reloader
from expirebridge.model.log_fields import event
from expirebridge.observe.logs import LogFormat, LogLevel, log_event, set_up
from expirebridge.settings import Settings
from expirebridge.supervisor.supervisor import Supervisor, count_of

logger = logging.getLogger("expirebridge")

HIGHEST_PORT = 65535


def listen(
    url: Url = None,
    tasks: TasksFolder = None,
    app_dir: AppDir = None,
    only_marked: OnlyMarked = False,
    functions: Functions = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            help="How many handlers may run at once. Listeners divide the tasks fairly, whatever "
            "it is.  [default: 100]"
        ),
    ] = None,
    workers: Annotated[
        str,
        typer.Option(
            metavar="N|auto",
            help="How many listeners to run, each in a process with its own --concurrency; auto: "
            "one per core.",
        ),
    ] = "1",
    processes: Annotated[
        int | None,
        typer.Option(
            help="How many processes at most for handlers with process=True, for each worker.  "
            "[env var: EXPIREBRIDGE_PROCESSES; default: one per core, shared by the workers]",
        ),
    ] = None,
    process_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="How much memory each of them may use: 512m, 2g.  "
            "[env var: EXPIREBRIDGE_PROCESS_MEMORY; default: no limit]",
            show_default=False,
        ),
    ] = None,
    doorbell: Doorbell = None,
    grace: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long running handlers may go on when it stops: 30, 30s, 2m.  [default: 30s]",
        ),
    ] = None,
    lease: Lease = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    ledger_keep: LedgerKeep = None,
    load_functions: Annotated[
        bool,
        typer.Option("--load-functions", help="Load the functions for other languages first."),
    ] = False,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(
            case_sensitive=False,
            help="The lowest level that is logged, also of handlers and libraries.  "
            "[default: info, with --quiet: warning]",
            show_default=False,
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log each start and success of a task.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Of tasks, log only warnings and errors.")
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option(help="Plain text, or one JSON object per line.")
    ] = LogFormat.TEXT,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=HIGHEST_PORT,
            help="Serve Prometheus metrics on this port (0: any free one); each further worker on "
            "the next one.",
        ),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(help="The address of the metrics port.")
    ] = "127.0.0.1",
    reload: Annotated[
        bool, typer.Option("--reload", help="For development: restart when a handler changes.")
    ] = False,
) -> None:
    """Run due tasks with the handlers in the tasks folder.

    Runs until SIGTERM or Ctrl-C. With --workers, SIGHUP replaces the workers one by one.

    Example: expirebridge listen --tasks tasks --concurrency 50

    Example: expirebridge listen --tasks tasks --workers auto

    Example: expirebridge listen --tasks shop/tasks --reload --verbose

    Example: expirebridge listen --tasks shop/tasks --functions 'mail.*,orders.rate'
    """
    refuse_password(ledger)
    settings = Settings.read(
        url=url, ledger=ledger, ledger_name=ledger_name, ledger_keep=ledger_keep, tasks=tasks,
        app_dir=app_dir, only_marked=only_marked or None, functions=functions or None,
        concurrency=concurrency, processes=processes, process_memory=process_memory,
        doorbell=doorbell, grace=grace, lease=lease,
    )  # fmt: skip
    count = count_of(workers)
    if settings.processes is None and count > 1:
        settings = replace(settings, processes=max(usable_cores() // count, 1))
    if reload:
        return _listen_and_reload(settings)
    watch_reloader(grace=settings.grace)
    parent = SupervisorLink.of_this_process()
    if parent is not None:
        parent.watch(grace=settings.grace)
    number = parent.number if parent is not None else None
    levels = _levels(log_level, verbose=verbose, quiet=quiet)
    set_up(log_format, *levels, worker=number)
    if count > 1 and parent is None:
        _check_ports(metrics_port, count)
        raise typer.Exit(Supervisor(count, grace=settings.grace).run())
    # Workers are replaced by those of a newer version: so one of them loads, and not the parent.
    if load_functions and number in {None, 1}:
        _load_functions(settings)
    registry = Registry.of(settings)
    hooks: list[Hook] = [log_event]
    if metrics_port is not None:
        hooks.append(_metrics(settings, registry, metrics_host, _port(metrics_port, number)))
    return listener.run(
        settings,
        hooks,
        registry=registry,
        on_blocked=lambda error: end(error, STUCK),
        parent=parent,
    )


def _load_functions(settings: Settings) -> None:
    for each in load_into(settings.url):
        result, node = each.result, {"node": each.node} if each.node else {}
        if isinstance(result, ServerError):
            fields = event("functions", outcome="failed", error=str(result), **node)
        else:
            fields = event("functions", outcome=result.result, before=result.before, **node)
        failed = isinstance(result, ServerError) or is_newer(result)
        logger.log(logging.WARNING if failed else logging.INFO, "%s", each.summary, extra=fields)


def _check_ports(first: int | None, count: int) -> None:
    if first is not None and _port(first, count) > HIGHEST_PORT:
        raise InvalidSetting(
            f"--metrics-port {first}: {count} workers need as many ports from there on, and the "
            f"last port is {HIGHEST_PORT}"
        )


def _port(first: int, worker: int | None) -> int:
    """The metrics port of a worker, in a row from the first; 0 is any free one for each."""
    return first + worker - 1 if first and worker is not None else first


def _levels(asked: LogLevel | None, *, verbose: bool, quiet: bool) -> tuple[LogLevel, LogLevel]:
    """The level of handlers and libraries, and that of the listener's own lines."""
    if verbose and quiet:
        raise InvalidSetting("--verbose and --quiet: choose one")
    level = asked or (LogLevel.WARNING if quiet else LogLevel.INFO)
    return level, LogLevel.DEBUG if verbose else LogLevel.WARNING if quiet else level


def _listen_and_reload(settings: Settings) -> None:
    """Run this same command, without --reload, in a process that restarts when a handler changes.

    So it does when another module of an outermost package changes. The process ends if a handler
    cannot be imported; the next change starts another.
    """
    try:
        import watchfiles  # noqa: PLC0415 - an extra
    except ImportError:
        raise InvalidSetting(
            "--reload needs watchfiles: pip install 'expirebridge[reload]'"
        ) from None
    words = [word for word in sys.orig_argv[1:] if word != "--reload"]
    os.environ[RELOADER] = str(os.getpid())
    # It ends at SIGINT, which is also how it ends the other process: before that one is ready, too.
    ends_at_ctrl_c()
    # Both signals raise KeyboardInterrupt, wherever it is: the other process is ended then, too.
    with contextlib.suppress(KeyboardInterrupt):
        watchfiles.run_process(
            *watched(settings.tasks, settings.app_dir),
            target=shlex.join([sys.executable, *words]),
            target_type="command",
            watch_filter=watchfiles.PythonFilter(),
            callback=lambda _: typer.echo("expirebridge: a handler changed: restarting", err=True),
            sigint_timeout=math.ceil(settings.grace) + 5,
        )


def _metrics(settings: Settings, registry: Registry, host: str, port: int) -> Hook:
    """Serve metrics until the process ends, and return the hook that counts."""
    try:
        from expirebridge.observe import metrics  # noqa: PLC0415 - an extra
    except ImportError:
        raise InvalidSetting(
            "--metrics-port needs prometheus-client: pip install 'expirebridge[metrics]'"
        ) from None
    names = registry.names()
    counting = metrics.Metrics(
        names,
        series=[series.id for series in registry.series],
        objectives={name: one.late for name, one in names.items() if one.late is not None},
    )
    counting.watch(settings)
    url = counting.serve(host, port, settings)
    logger.info("metrics on %s", url, extra=event("metrics", url=url))
    return counting
