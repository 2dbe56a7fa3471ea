"""The command `handlers`: what a folder holds, or what the listeners that beat know."""

from typing import Annotated

import typer

from expirebridge.cli.fleet import print_fleet
from expirebridge.cli.options import (
    AppDir,
    AsJson,
    Functions,
    Lease,
    OnlyMarked,
    Prefix,
    TasksFolder,
    Url,
)
from expirebridge.cli.output import print_json, print_table
from expirebridge.handlers import Handler, Registry
from expirebridge.handlers.helpers import helper_kind
from expirebridge.model.durations import human
from expirebridge.model.policies import Delays
from expirebridge.settings import Settings


def handlers(
    tasks: TasksFolder = None,
    app_dir: AppDir = None,
    only_marked: OnlyMarked = False,
    functions: Functions = None,
    helpers: Annotated[
        bool,
        typer.Option(
            "--helpers",
            help="List only what tasks can call although neither @handler nor HANDLERS names it.",
        ),
    ] = False,
    fleet: Annotated[
        bool,
        typer.Option("--fleet", help="Instead of a folder: what the listeners that beat know."),
    ] = False,
    url: Url = None,
    prefix: Prefix = None,
    lease: Lease = None,
    as_json: AsJson = False,
) -> None:
    """List the handlers that a listener would load from this folder, and their modules' names.

    With --fleet, list the functions that the running listeners know, with the shapes of their
    signatures, and the names of the listeners, for each code that they run.

    Example: expirebridge handlers --tasks tasks

    Example: expirebridge handlers --tasks shop/tasks --helpers

    Example: expirebridge handlers --fleet --url redis://localhost:6379/1
    """
    settings = Settings.read(
        tasks=tasks,
        app_dir=app_dir,
        only_marked=only_marked or None,
        functions=functions or None,
        url=url,
        prefix=prefix,
        lease=lease,
    )
    if fleet:
        return print_fleet(settings, as_json=as_json)
    registry = Registry.of(settings)
    columns: tuple[str, ...]
    if helpers:
        columns = ("function", "kind", "module", "source")
        rows = [_helper_row(handler) for handler in registry if not handler.is_declared]
    else:
        columns = ("function", "kind", "retry", "timeout", "module", "aliases", "about")
        rows = [_handler_row(handler) for handler in registry]
    if as_json:
        return print_json([dict(zip(columns, row, strict=True)) for row in rows])
    return print_table(columns, rows)


def _helper_row(handler: Handler) -> tuple[str, ...]:
    return (handler.name, helper_kind(handler), handler.module, handler.source)


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
    return (
        handler.name,
        handler.kind.value,
        retry,
        timeout,
        handler.module,
        " ".join(handler.aliases),
        about,
    )
