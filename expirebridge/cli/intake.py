"""What import takes in: chunks of tasks, from lines or from the jobs of another library."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from expirebridge.cli.transfer_files import SeriesLine
from expirebridge.store.commands import NewTask


@dataclass
class Chunk:
    """Some tasks to be made with one request."""

    tasks: list[NewTask] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    """The ids of those that are paused at once."""
    series: list[SeriesLine] = field(default_factory=list)
    size: int = 0
    """How far the progress bar goes on."""


@dataclass(frozen=True)
class Intake:
    """All that is to be imported."""

    chunks: Iterator[Chunk]
    """The next one is asked for when the last one is made."""
    size: int | None
    """The length of the progress bar; None if nobody knows."""
    begun: int = 0
    """Where the bar begins."""
