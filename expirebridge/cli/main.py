"""The command `expirebridge`.

Exit codes: 0 done; 1 the server failed or refused the call, or the handlers cannot be used; 2 wrong
input; 3 the task does not exist, or its state does not allow the change; 4 a listener is stuck and
must be replaced; 5 the doctor found an error.
"""

import contextlib
import logging
import math
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from expirebridge.cli import dashboard as dashboard_command
from expirebridge.cli import demo as demo_command
from expirebridge.cli import failed as failed_commands
from expirebridge.cli import figures as figure_commands
from expirebridge.cli import forecast as forecast_command
from expirebridge.cli import functions as function_commands
from expirebridge.cli import init as init_command
from expirebridge.cli import moving as moving_commands
from expirebridge.cli import operators as operator_commands
from expirebridge.cli import tasks as task_commands
from expirebridge.cli.options import (
    BAD_INPUT,
    FAULT,
    NOT_POSSIBLE,
    STUCK,
    AsJson,
    Doorbell,
    Lease,
    TasksFolder,
    Url,
)
from expirebridge.cli.output import print_json, print_line, print_table
from expirebridge.durations import human
from expirebridge.embedded import Server
from expirebridge.errors import ExpirebridgeError, InvalidSetting, InvalidTask, TaskExists
from expirebridge.handlers import Handler, Registry
from expirebridge.hooks import Hook
from expirebridge.listener import listener
from expirebridge.log_fields import event
from expirebridge.observe.logs import LogFormat, log_event, set_up
from expirebridge.retry import Delays
from expirebridge.settings import Settings
from expirebridge.store.library import LoadResult

logger = logging.getLogger("expirebridge")

app = typer.Typer(
    help="Tasks that run later: each is a plain Redis key with a TTL.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # it would read [server] and [default: ...] as markup
    epilog="Exit codes: 0 done; 1 the server failed or refused the call, or the handlers cannot be "
    "used; 2 wrong input; "
    "3 the task does not exist, or its state does not allow the change; 4 a listener is stuck and "
    "must be replaced; 5 the doctor found an error.",
)
task_commands.add_to(app)
operator_commands.add_to(app)
app.command("dashboard")(dashboard_command.dashboard)
figure_commands.add_to(app)
moving_commands.add_to(app)
app.command("forecast")(forecast_command.forecast)
app.command("demo")(demo_command.demo)
app.command("init")(init_command.init)
app.add_typer(function_commands.group, name="functions")
app.add_typer(failed_commands.group, name="failed")


@app.command()
def listen(
    url: Url = None,
    tasks: TasksFolder = None,
    concurrency: Annotated[
        int | None, typer.Option(help="How many handlers may run at once.  [default: 100]")
    ] = None,
    doorbell: Doorbell = None,
    grace: Annotated[
        float | None,
        typer.Option(help="Seconds for running handlers to finish when it stops.  [default: 30]"),
    ] = None,
    lease: Lease = None,
    load_functions: Annotated[
        bool,
        typer.Option("--load-functions", help="Load the functions for other languages first."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log each task that starts.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Log only warnings and errors.")
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option(help="Plain text, or one JSON object per line.")
    ] = LogFormat.TEXT,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve Prometheus metrics on this port (0: any free one).")
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(help="The address of the metrics port.")
    ] = "127.0.0.1",
    reload: Annotated[
        bool, typer.Option("--reload", help="For development: restart when a handler changes.")
    ] = False,
) -> None:
    """Run due tasks with the handlers in the tasks folder.

    Runs until SIGTERM or Ctrl-C.

    Example: expirebridge listen --tasks tasks --concurrency 50

    Example: expirebridge listen --tasks tasks --reload --verbose
    """
    settings = Settings.read(
        url=url, tasks=tasks, concurrency=concurrency, doorbell=doorbell, grace=grace, lease=lease
    )
    if reload:
        return _listen_and_reload(settings)
    set_up(log_format, _level(verbose=verbose, quiet=quiet))
    if load_functions:
        loading = function_commands.load_into(settings.url)
        newer = loading.result is LoadResult.NEWER
        logger.log(
            logging.WARNING if newer else logging.INFO, "%s", function_commands.summary(loading),
            extra=event("functions", outcome=loading.result, before=loading.before),
        )  # fmt: skip
    registry = Registry.load(settings.tasks)
    hooks: list[Hook] = [log_event]
    if metrics_port is not None:
        hooks.append(_metrics(settings, registry, metrics_host, metrics_port))
    return listener.run(
        settings, hooks, registry=registry, on_blocked=lambda error: _end(error, STUCK)
    )


def _level(*, verbose: bool, quiet: bool) -> int:
    if verbose and quiet:
        raise InvalidSetting("--verbose and --quiet: choose one")
    return logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO


def _listen_and_reload(settings: Settings) -> None:
    """Run this same command, without --reload, in a process that restarts when a handler changes.

    The process ends if a handler cannot be imported; the next change starts another.
    """
    try:
        import watchfiles  # noqa: PLC0415 - an extra
    except ImportError:
        raise InvalidSetting(
            "--reload needs watchfiles: pip install 'expirebridge[reload]'"
        ) from None
    words = [word for word in sys.argv[1:] if word != "--reload"]
    watchfiles.run_process(
        settings.tasks,
        target=shlex.join([sys.executable, "-m", "expirebridge", *words]),
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
    counting = metrics.Metrics(handler.name for handler in registry)
    counting.watch(settings)
    url = counting.serve(host, port)
    logger.info("metrics on %s", url, extra=event("metrics", url=url))
    return counting


@app.command()
def server(
    port: Annotated[int, typer.Option(help="The port.")] = 6379,
    directory: Annotated[Path, typer.Option("--dir", help="The folder for its data.")] = Path(
        ".expirebridge"
    ),
) -> None:
    """Run the embedded server in the foreground.

    For development. Runs until SIGTERM or Ctrl-C.

    Example: expirebridge server --port 6379
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    with Server(port=port, directory=directory.resolve()) as running:
        try:
            print_line(f"{running.url} (data in {running.directory})")
            code = running.wait()
        except KeyboardInterrupt:
            return
    raise ExpirebridgeError(f"the server exited by itself with code {code}")


@app.command()
def handlers(tasks: TasksFolder = None, as_json: AsJson = False) -> None:
    """List the handlers that a listener would load from this folder.

    Example: expirebridge handlers --tasks tasks
    """
    registry = Registry.load(Settings.read(tasks=tasks).tasks)
    columns = ("function", "kind", "retry", "timeout", "about")
    rows = [_handler_row(handler) for handler in registry]
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)


def _handler_row(handler: Handler) -> tuple[str, ...]:
    match handler.retry:
        case None:
            retry = "default"
        case Delays(seconds=()):
            retry = "never"
        case Delays(seconds=seconds):
            retry = " ".join(human(delay).replace(" ", "") for delay in seconds)
        case policy:
            retry = str(policy)
    timeout = human(handler.timeout) if handler.timeout else "default"
    about = (handler.function.__doc__ or "").strip().partition("\n")[0]
    return (handler.name, "async" if handler.is_async else "plain", retry, timeout, about)


def run() -> None:
    """Run the command. An error becomes one line on stderr and an exit code."""
    try:
        app()
    except listener.ListenerStuck as error:
        _end(error, STUCK)
    except TaskExists as error:
        _end(error, NOT_POSSIBLE)
    except (InvalidTask, InvalidSetting) as error:
        _end(error, BAD_INPUT)
    except ExpirebridgeError as error:
        _end(error, FAULT)
    except BrokenPipeError:
        _end(None, 0)
    except SystemExit as exit:
        _leave(exit.code if isinstance(exit.code, int) else FAULT)


def _end(error: Exception | None, code: int) -> None:
    if error is not None:
        sys.stderr.write(f"expirebridge: {error}\n")
    _leave(code)


def _leave(code: int) -> None:
    """End the process, although a thread may still run a handler that nobody can stop."""
    logging.shutdown()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
