"""Drives steps in two colours: each is taken, and its result, or how it failed, is sent back."""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


def drive(steps: Generator[S, Any, T], take: Callable[[S], Any], fault: type[Exception]) -> T:
    """Take one step after the other, and return the result of all.

    A `fault` of a step is raised in `steps`, which may go on; any other exception ends this.
    """
    try:
        step = next(steps)
        while True:
            try:
                result = take(step)
            except fault as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        answer: T = stop.value
        return answer


async def drive_async(
    steps: Generator[S, Any, T], take: Callable[[S], Awaitable[Any]], fault: type[Exception]
) -> T:
    """The same, awaited."""
    try:
        step = next(steps)
        while True:
            try:
                result = await take(step)
            except fault as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
