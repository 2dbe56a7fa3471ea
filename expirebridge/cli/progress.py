"""A progress bar, and warnings: both on stderr."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)


@contextmanager
def progress_bar(what: str, total: int | None, *, done: int = 0) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, if a person watches."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    if not console.is_terminal:
        # Some versions of rich write an empty line even for a bar that is disabled.
        yield lambda _: None
        return
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=total, completed=done)
        yield lambda count: progress.advance(task, count)


def warn(message: str) -> None:
    """Print a line that is not a part of the result."""
    typer.echo(f"expirebridge: {message}", err=True)
