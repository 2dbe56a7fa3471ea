"""Many cases of one rule in one test."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def each(
    names: str | tuple[str, ...], cases: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, but one test tries all cases, and lists those that fail.

    For rules that need no server and no files of their own: the cases share the test's fixtures.
    A test for each would cost every worker of a run as much again to collect it.
    """
    arguments = (names,) if isinstance(names, str) else names
    tried = list(cases)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def of_all(**fixtures: Any) -> None:
            failures = list[BaseException]()
            for case in tried:
                values = _values(case, len(arguments))
                try:
                    test(**dict(zip(arguments, values, strict=True)), **fixtures)
                # What `pytest.raises` raises where nothing was raised is no Exception.
                except (Exception, pytest.fail.Exception, BaseExceptionGroup) as error:
                    error.add_note(f"in the case {values!r:.300}")
                    failures.append(error)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(tried)} cases fail", failures)

        others = [one for one in signature.parameters.values() if one.name not in arguments]
        of_all.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return of_all

    return decorate


def _values(case: Any, count: int) -> Sequence[Any]:
    return case if count > 1 else (case,)
