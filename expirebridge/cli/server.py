"""The command `server`: the embedded server in the foreground."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from expirebridge.cli.output import print_line
from expirebridge.embedded import Server
from expirebridge.errors import ExpirebridgeError


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
