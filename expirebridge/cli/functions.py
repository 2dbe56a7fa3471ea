"""Commands for the functions that clients in other languages call."""

from contextlib import closing
from typing import Annotated

import typer

from expirebridge.cli.options import NOT_POSSIBLE, AsJson, Url
from expirebridge.cli.output import print_json, print_line, print_table
from expirebridge.settings import Settings
from expirebridge.store import functions, library
from expirebridge.store.library import Loading, LoadResult
from expirebridge.store.store import Store
from expirebridge.topology import clients

group = typer.Typer(
    help="Server functions (FCALL) for clients in any language.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def load_into(url: str | None, *, replace: bool = False) -> Loading:
    """Load the functions into the server of the URL. Raises a ServerError."""
    settings = Settings.read(url=url)
    with closing(
        Store(clients.probe_client(settings.url, settings.prefix), prefix=settings.prefix)
    ) as store:
        return store.run(library.load(replace=replace))


def summary(loading: Loading) -> str:
    """What was done, as a sentence."""
    mine = functions.version()
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


@group.command()
def load(
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the functions of a newer version, too.")
    ] = False,
    url: Url = None,
) -> None:
    """Load the functions into the server. They replace those of an older version.

    The server stores and replicates them like data. In a cluster, load them into each primary.
    The login needs the rights +function|list and +function|load.

    Example: expirebridge functions load --url redis://localhost:6379/1
    """
    loading = load_into(url, replace=replace)
    if loading.result is LoadResult.NEWER:
        typer.echo(f"expirebridge: {summary(loading)}; --replace replaces them", err=True)
        raise typer.Exit(NOT_POSSIBLE)
    print_line(summary(loading))


@group.command()
def show() -> None:
    """Print the library, if you want to load it yourself.

    Example: expirebridge functions show | redis-cli -x FUNCTION LOAD REPLACE
    """
    print_line(functions.library())


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
        if name not in functions.NAMES:
            raise typer.BadParameter(f"{name!r}: one of {', '.join(functions.NAMES)}")
        return print_line(functions.script(name).text)
    columns = ("name", "sha", "arguments")
    rows = [
        (name, functions.script(name).sha, functions.load(name).usage.partition(" ")[2])
        for name in functions.NAMES
    ]
    if as_json:
        return print_json([dict(zip(columns, row, strict=True)) for row in rows])
    return print_table(columns, rows)
