"""The command `handlers`: what a folder holds, or what the listeners that beat know."""

from contextlib import closing
from typing import Annotated, Any

import typer

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
from expirebridge.cli.output import print_json, print_line, print_table, printable, prints_aside
from expirebridge.cli.stats import store_of
from expirebridge.handlers import Handler, Registry
from expirebridge.handlers.selection import helper_kind
from expirebridge.settings import Settings
from expirebridge.task.calls.fleet import Fleet, read_fleet
from expirebridge.task.durations import human
from expirebridge.task.policies import Delays

# The output of `handlers --fleet`: the code that each listener runs, and its functions.


def print_fleet(settings: Settings, *, as_json: bool) -> None:
    """Print what the listeners that beat know, by their code. Raises a ServerError."""
    with closing(store_of(settings)) as store:
        fleet = store.run(read_fleet(settings.lease))
    codes = _codes(fleet)
    if as_json:
        return print_json(codes)
    if not codes:
        return print_line("no listener beats")
    for code in codes:
        _print_code(code)
    return None


def _codes(fleet: Fleet) -> list[dict[str, Any]]:
    """Each code, and last, without functions, the listeners that do not say which they know."""
    known = fleet.believed
    idle = {one.name: one.idle for one in fleet.listeners if one.idle is not None}
    listeners: dict[str | None, list[str]] = {code: [] for code in sorted(known)}
    for listener in fleet.listeners:
        code = listener.fingerprint if listener.fingerprint in known else None
        listeners.setdefault(code, []).append(listener.name)
    return [
        {
            "fingerprint": code,
            "listeners": sorted(names),
            "idle": {name: idle[name] for name in sorted(names) if name in idle},
            "functions": known[code] if code is not None else None,
        }
        for code, names in listeners.items()
    ]


def _print_code(code: dict[str, Any]) -> None:
    name = code["fingerprint"] or "not told (overwritten by another client)"
    idle = code["idle"]
    listeners = [f"{one} ({idle[one]})" if one in idle else one for one in code["listeners"]]
    print_line(f"{name}: {printable(', '.join(listeners))}")
    for func, shape in (code["functions"] or {}).items():
        print_line(f"    {printable(func + shape)}")


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
    with prints_aside():
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
