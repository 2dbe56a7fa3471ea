"""The command `listen`: its options."""

from typing import Annotated, Any

import typer

from expirebridge.cli.main import become_listener
from expirebridge.cli.options import (
    AppDir,
    Doorbell,
    Functions,
    Lease,
    LedgerHorizon,
    LedgerKeep,
    LedgerName,
    LedgerUrl,
    OnlyMarked,
    TasksFolder,
    Url,
    refuse_password,
)
from expirebridge.observe.logs import LogFormat, LogLevel


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
            "it is.  [env var: EXPIREBRIDGE_CONCURRENCY; default: 100]"
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
            help="How long running handlers may go on when it stops: 30, 30s, 2m.  "
            "[env var: EXPIREBRIDGE_GRACE; default: 30s]",
        ),
    ] = None,
    lease: Lease = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    ledger_keep: LedgerKeep = None,
    ledger_horizon: LedgerHorizon = None,
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
            max=65535,
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
    options: dict[str, Any] = {
        "url": url, "tasks": tasks and str(tasks), "app_dir": app_dir and str(app_dir),
        "only_marked": only_marked or None, "functions": functions or None, "ledger": ledger,
        "ledger_name": ledger_name, "ledger_keep": ledger_keep, "ledger_horizon": ledger_horizon,
        "concurrency": concurrency, "workers": workers, "processes": processes,
        "process_memory": process_memory, "doorbell": doorbell, "grace": grace, "lease": lease,
        "load_functions": load_functions,
        "log_level": log_level, "verbose": verbose, "quiet": quiet, "log_format": log_format,
        "metrics_port": metrics_port, "metrics_host": metrics_host, "reload": reload,
    }  # fmt: skip
    become_listener(options)
    from expirebridge.cli import listening  # noqa: PLC0415 - see `become_listener`

    if code := listening.listen(**options):
        raise typer.Exit(code)
