"""Commands for the functions that clients in other languages call."""

from contextlib import closing
from dataclasses import dataclass
from typing import Annotated

import typer

from expirebridge.cli.ending import FAULT, NOT_POSSIBLE
from expirebridge.cli.options import AsJson, Url
from expirebridge.cli.output import print_json, print_line, print_table, warn
from expirebridge.connection import clients
from expirebridge.errors import ServerError
from expirebridge.settings import Settings
from expirebridge.store import function_library
from expirebridge.store.client import Store
from expirebridge.store.function_library import Loading, LoadResult

group = typer.Typer(
    help="Server functions (FCALL) for clients in any language.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of the request at one server."""

    node: str
    """The address of a node; "" if the URL names no cluster."""
    result: Loading | ServerError

    @property
    def summary(self) -> str:
        """The result or the failure, as a sentence."""
        told = str(self.result) if isinstance(self.result, ServerError) else summary(self.result)
        return f"{self.node}: {told}" if self.node else told


def load_into(url: str | None, *, replace: bool = False) -> list[Loaded]:
    """Load the functions into the server of the URL, or each primary of its cluster.

    Raises a ServerError if the server failed or refused it; of a cluster, if all primaries did.
    """
    settings = Settings.read(url=url)
    with closing(clients.probe_client(settings.url, settings.prefix)) as client:
        loaded = [
            Loaded(node, _load_at(Store(one, prefix=settings.prefix), replace=replace))
            for node, one in clients.primaries_of(client).items()
        ]
    faults = [each.result for each in loaded if isinstance(each.result, ServerError)]
    if len(faults) == len(loaded):
        raise faults[0]
    return loaded


def _load_at(store: Store, *, replace: bool) -> Loading | ServerError:
    try:
        return store.run(function_library.load(replace=replace))
    except ServerError as error:
        return error


def summary(loading: Loading) -> str:
    """The result as a sentence."""
    mine = function_library.version()
    match loading.result:
        case LoadResult.LOADED | LoadResult.SAME:
            return f"the functions of expirebridge {mine}: {loading.result}"
        case LoadResult.REPLACED:
            return (
                f"the functions of expirebridge {mine}: loaded in place of version {loading.before}"
            )
        case LoadResult.SCRIPTS:
            return (
                "this server has no functions (Redis 7 and later do): scripts are loaded instead, "
                "until it restarts; expirebridge functions scripts lists them"
            )
        case LoadResult.NEWER:
            return (
                f"the server has the functions of expirebridge {loading.before}, this is {mine}: "
                f"{loading.result}"
            )


def is_newer(result: Loading | ServerError) -> bool:
    """True if the functions of a newer version were left in place."""
    return isinstance(result, Loading) and result.result is LoadResult.NEWER


@group.command()
def load(
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the functions of a newer version, too.")
    ] = False,
    url: Url = None,
) -> None:
    """Load the functions into the server. They replace those of an older version.

    The server stores and replicates them like data. In a cluster they are loaded into each primary;
    load them again when another one is added. If one cannot be reached, the others have them, and
    the exit code is 1. The login needs the rights +function|list and +function|load.

    Example: expirebridge functions load --url redis://localhost:6379/1
    """
    loaded = load_into(url, replace=replace)
    newer = [each for each in loaded if is_newer(each.result)]
    failed = [each for each in loaded if isinstance(each.result, ServerError)]
    for each in loaded:
        if each not in newer and each not in failed:
            print_line(each.summary)
    for each in newer:
        warn(f"{each.summary}; --replace replaces them")
    for each in failed:
        warn(f"{each.summary}; load them again when it is back")
    if failed:
        raise typer.Exit(FAULT)
    if newer:
        raise typer.Exit(NOT_POSSIBLE)


@group.command()
def show() -> None:
    """Print the library, if you want to load it yourself.

    Example: expirebridge functions show | redis-cli -x FUNCTION LOAD REPLACE
    """
    print_line(function_library.library_text())


@group.command()
def scripts(
    name: Annotated[
        str | None, typer.Argument(help="Print the text of this script: make, cancel, ...")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the scripts that replace the functions on servers without them, such as Redis 6.2.

    Call EVALSHA with a script's digest and the arguments of the function.

    Example: redis-cli EVAL "$(expirebridge functions scripts get)" 1 expirebridge order-17
    """
    if name is not None:
        if name not in function_library.NAMES:
            raise typer.BadParameter(f"{name!r}: one of {', '.join(function_library.NAMES)}")
        return print_line(function_library.script(name).text)
    columns = ("name", "sha", "arguments")
    rows = [
        (name, function_library.script(name).sha, function_library.function(name).arguments)
        for name in function_library.NAMES
    ]
    if as_json:
        return print_json([dict(zip(columns, row, strict=True)) for row in rows])
    return print_table(columns, rows)
