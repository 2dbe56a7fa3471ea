"""Commands for the functions that clients in other languages call."""

from typing import Annotated

import typer

from expirebridge.cli.ending import FAULT, NOT_POSSIBLE
from expirebridge.cli.options import AsJson, Url
from expirebridge.cli.output import print_json, print_line, print_table, warn
from expirebridge.errors import ServerError
from expirebridge.foreign import function_library
from expirebridge.foreign.function_loading import is_newer, load_into

group = typer.Typer(
    help="Server functions (FCALL) for clients in any language.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


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
