"""What one partition is asked."""

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from expirebridge.model.partitions import Layout
from expirebridge.store.commands import Runnable

T = TypeVar("T")


class Request(NamedTuple):
    """What one partition is asked."""

    layout: Layout
    number: int
    runnable: Runnable[Any]
    sure: bool = False
    """Whether to take the number of partitions as certain if the partition does not know it."""
    hasty: bool = False
    """Whether not to wait until a node that does not answer has a successor."""


Requests = Generator[Request, Any, T]
"""What partitions are asked; each is answered with its result, or with a ServerError."""
