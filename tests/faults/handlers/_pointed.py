"""The points of a listener with a ledger: between each two steps of what it does with it."""

import functools
import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, event

from expirebridge.ledger.partition import LedgerPartition
from expirebridge.ledger.relay import BatchSteps, Relay
from expirebridge.ledger.relay_store import RelayStore
from tests.kit.points import reach

_here = threading.local()


def _after_each_step(name: str, way: str) -> None:
    make: Callable[[Relay], BatchSteps[int]] = getattr(Relay, name)

    @functools.wraps(make)
    def stepping(self: Relay, *found: Any) -> BatchSteps[int]:
        steps = make(self, *found)
        while True:
            try:
                step = next(steps)
            except StopIteration as stop:
                return int(stop.value)
            reach(f"{way}: {step}")
            yield step

    setattr(Relay, name, stepping)


def _around(owner: type[Any], name: str, before: str, after: str) -> None:
    method = getattr(owner, name)

    @functools.wraps(method)
    def reaching(*args: Any, **options: Any) -> Any:
        if before:
            reach(before)
        result = method(*args, **options)
        reach(after)
        return result

    setattr(owner, name, reaching)


def _before_its_commit(name: str, point: str) -> None:
    method = getattr(RelayStore, name)

    @functools.wraps(method)
    def naming(*args: Any, **options: Any) -> Any:
        _here.point = point
        try:
            return method(*args, **options)
        finally:
            _here.point = ""

    setattr(RelayStore, name, naming)


def _reach_before_commit(_: Connection) -> None:
    if point := getattr(_here, "point", ""):
        reach(point)


def install() -> None:
    """Let this process reach its points."""
    _after_each_step("carry", "relay")
    _after_each_step("bring_back", "back")
    _before_its_commit("begin_batch", "relay: number taken, not committed")
    _before_its_commit("finish_batch", "relay: stamped, not committed")
    _before_its_commit("write_back", "back: written, not committed")
    event.listen(Engine, "commit", _reach_before_commit)
    _around(LedgerPartition, "fence", "gate: new connection", "gate: number taken")
    _around(LedgerPartition, "read_beside", "gate: server read", "gate: ledger read")
    _around(LedgerPartition, "ask", "claimed", "claimed, row asked")
