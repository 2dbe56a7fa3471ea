"""What the command `listen` does: a listener, or the parent of several, or of one that restarts."""

import contextlib
import logging
import math
import os
import shlex
import sys
from dataclasses import replace
from typing import Any, Protocol, cast

from expirebridge.capabilities import given
from expirebridge.cli.ending import STUCK, end, end_at_sighup, ends_at_ctrl_c
from expirebridge.errors import InvalidSetting
from expirebridge.handlers import Registry, watched
from expirebridge.handlers.django_project import set_up_django
from expirebridge.hooks import Hook
from expirebridge.listener import listener
from expirebridge.listener.cores import usable_cores
from expirebridge.listener.parent import RELOADER, SupervisorLink, watch_reloader
from expirebridge.listener.supervisor.supervisor import Supervisor, count_of
from expirebridge.observe.logs import LogFormat, LogLevel, log_event, set_up
from expirebridge.settings import Settings, warn_of_variables
from expirebridge.task.texts import event, plural

logger = logging.getLogger("expirebridge")

HIGHEST_PORT = 65535


class LoadsFunctions(Protocol):
    """What a capability's module `function_loading` has."""

    def load_at_start(self, settings: Settings, /) -> None:
        """Load them into the servers of a listener that starts, and log the result for each."""


def listen(
    *,
    workers: str,
    load_functions: bool,
    log_level: str | None,
    verbose: bool,
    quiet: bool,
    log_format: str,
    metrics_port: int | None,
    metrics_host: str,
    reload: bool,
    **options: Any,
) -> int:
    """Listen with the options of the command, until a signal comes; return the exit code.

    Those that are not named here are settings. Raises as the command: an ExpirebridgeError.
    """
    set_up_django()
    settings = Settings.read(**options)
    count = count_of(workers)
    if settings.processes is None and count > 1:
        settings = replace(settings, processes=max(usable_cores() // count, 1))
    if reload:
        end_at_sighup()
        _listen_and_reload(settings)
        return 0
    watch_reloader(grace=settings.grace)
    parent = SupervisorLink.of_this_process()
    if parent is not None:
        parent.watch(grace=settings.grace)
    number = parent.number if parent is not None else None
    level = LogLevel(log_level) if log_level is not None else None
    set_up(LogFormat(log_format), *_levels(level, verbose=verbose, quiet=quiet), worker=number)
    if parent is None:
        warn_of_variables()
    if count > 1 and parent is None:
        _check_ports(metrics_port, count)
        return Supervisor(count, grace=settings.grace).run()
    end_at_sighup()
    # Workers are replaced by those of a newer version: so one of them loads, and not the parent.
    if load_functions and number in {None, 1}:
        for one in cast("tuple[LoadsFunctions, ...]", given("function_loading")):
            one.load_at_start(settings)
    registry = Registry.of(settings)
    hooks: list[Hook] = [log_event]
    if metrics_port is not None:
        hooks.append(_metrics(settings, registry, metrics_host, _port(metrics_port, number)))
    listener.run(
        settings,
        hooks,
        registry=registry,
        on_blocked=lambda error: end(error, STUCK),
        parent=parent,
    )
    return 0


def _check_ports(first: int | None, count: int) -> None:
    if first is not None and _port(first, count) > HIGHEST_PORT:
        raise InvalidSetting(
            f"--metrics-port {first}: {plural(count, 'worker needs', 'workers need')} as many "
            f"ports from there on, and the last port is {HIGHEST_PORT}"
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
            callback=lambda _: logger.warning("a handler changed: restarting"),
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
