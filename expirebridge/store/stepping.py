"""Drives steps: generators that yield requests and are sent their results.

An operation yields calls, a call becomes commands, and neither does any I/O. `drive` and
`drive_async` do the I/O of the innermost steps; `expand` is a layer in between.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

S = TypeVar("S")
R = TypeVar("R")
T = TypeVar("T")

Faults = type[Exception] | tuple[type[Exception], ...]
"""The exceptions that are raised in the steps, which may go on; any other ends them."""


def drive(steps: Generator[S, Any, T], take: Callable[[S], Any], faults: Faults) -> T:
    """Take each step, and return the result of the generator."""
    try:
        step = next(steps)
        while True:
            try:
                result = take(step)
            except faults as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        answer: T = stop.value
        return answer


async def drive_async(
    steps: Generator[S, Any, T], take: Callable[[S], Awaitable[Any]], faults: Faults
) -> T:
    """Await each step, and return the result of the generator."""
    try:
        step = next(steps)
        while True:
            try:
                result = await take(step)
            except faults as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        answer: T = stop.value
        return answer


def expand(
    steps: Generator[S, Any, T],
    take: Callable[[S], Generator[R, Any, Any]],
    faults: Faults,
    first: S | None = None,
) -> Generator[R, Any, T]:
    """Replace each step by the steps that `take` yields for it.

    `first` is a step that was yielded already, and is still without a result.
    """
    try:
        step = next(steps) if first is None else first
        while True:
            try:
                result = yield from take(step)
            except faults as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
