"""The command `server`: the embedded server, or an embedded cluster, in the foreground."""

import contextlib
import signal
from pathlib import Path
from typing import Annotated

import typer

from expirebridge.cli.output import print_line
from expirebridge.embedded.cluster import BUS, FEWEST, EmbeddedCluster
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.errors import ExpirebridgeError, InvalidSetting

_PORT, _FIRST_PORT = 6379, 7000
_LAST_PORT = 65_535


def server(
    port: Annotated[
        int | None,
        typer.Option(
            help=f"The port, or that of a cluster's first node.  [default: {_PORT}, or "
            f"{_FIRST_PORT} with --cluster]",
            show_default=False,
        ),
    ] = None,
    directory: Annotated[Path, typer.Option("--dir", help="The folder for its data.")] = Path(
        ".expirebridge"
    ),
    cluster: Annotated[
        int | None,
        typer.Option(metavar="PRIMARIES", help="Run a cluster of so many primaries, 3 or more."),
    ] = None,
    replicas: Annotated[
        int, typer.Option(min=0, help="How many replicas each primary of the cluster has.")
    ] = 0,
) -> None:
    """Run the embedded server, or an embedded cluster, in the foreground.

    For development. Runs until SIGTERM or Ctrl-C. The nodes of a cluster have ports in a row.

    Example: expirebridge server --port 6379

    Example: expirebridge server --cluster 3 --replicas 1
    """
    signal.signal(signal.SIGTERM, _interrupt)
    if cluster is None:
        if replicas:
            raise InvalidSetting("replicas: only a cluster has them: add --cluster 3")
        _make_folder(directory)
        _run_server(
            EmbeddedServer(port=port or _PORT, directory=directory.resolve(), ends_with_us=True)
        )
    else:
        nodes = _cluster(cluster, replicas, port or _FIRST_PORT, directory.resolve())
        _make_folder(directory)
        _run_cluster(nodes)


def _make_folder(directory: Path) -> None:
    """Make the folder for data, if there is none, as one that git leaves out."""
    with contextlib.suppress(OSError):  # the server says what is wrong with it
        directory.mkdir(parents=True)
        (directory / ".gitignore").write_text("# Written by `expirebridge server`.\n*\n")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _run_server(server: EmbeddedServer) -> None:
    with server:
        try:
            print_line(f"{server.url} (data in {server.directory})")
            code = server.wait()
        except KeyboardInterrupt:
            return
    raise ExpirebridgeError(f"the server exited by itself with code {code}")


def _cluster(primaries: int, replicas: int, port: int, directory: Path) -> EmbeddedCluster:
    if primaries < FEWEST:
        raise InvalidSetting(
            f"cluster={primaries}: a cluster needs {FEWEST} primaries or more, since a majority "
            f"decides which node is down: --cluster {FEWEST}; for one server leave --cluster out"
        )
    count = primaries * (1 + replicas)
    last = _LAST_PORT - BUS - count + 1
    if not 0 < port <= last:
        raise InvalidSetting(
            f"port={port}: {count} nodes have ports in a row, and each a second one {BUS} above: "
            f"choose one from 1 to {last}"
        )
    return EmbeddedCluster(primaries, replicas=replicas, port=port, directory=directory)


def _run_cluster(cluster: EmbeddedCluster) -> None:
    try:
        with cluster:
            print_line(f"{cluster.url} (data in {cluster.directory})")
            for node, code in cluster.ended():
                typer.echo(
                    f"expirebridge: the node on port {node.port} exited by itself with code {code}",
                    err=True,
                )
    except KeyboardInterrupt:
        return
    raise ExpirebridgeError("no node of the cluster is left")
