"""Checks of what other clients wrote: keys of ours that they overwrote, and data of theirs."""

from expirebridge.checks.finding import Finding, error, first_of, ok, warning
from expirebridge.task.calls import inspection, reconciling
from expirebridge.task.calls.call import Steps, at_if_available
from expirebridge.task.calls.pages import BEGINNING
from expirebridge.task.keys import InvalidKey, parse_key
from expirebridge.task.partitions import PartitionLayout

_SAMPLE = 1000
"""Keys that are sampled in search of other data."""


def check_data() -> Steps[Finding]:
    """Check whether the database also holds other data."""
    sample = yield from reconciling.scan("0", _SAMPLE)
    return _other_data(sample.alien) if sample.alien else ok("data", "no other data")


def _other_data(count: int) -> Finding:
    """The finding if so many of the sampled keys are not ours."""
    return warning(
        "data",
        f"the database holds keys that are not expirebridge's ({count} of about {_SAMPLE} "
        "examined): their events cost time, and a FLUSHDB for them loses tasks",
        "give expirebridge a database of its own, such as redis://host:6379/1",
    )


def check_others_data(layout: PartitionLayout) -> Steps[Finding]:
    """Check whether a server also holds other data: in a cluster, each node has keys of its own."""
    _, names = yield from reconciling.walk(BEGINNING, _SAMPLE)
    alien = sum(not _is_ours(name, layout) for name in names)
    return _other_data(alien) if alien else ok("data", "no other data")


def check_overwritten(layout: PartitionLayout) -> Steps[list[Finding]]:
    """Check whether another client overwrote keys of ours, in each partition that answers."""
    names = list[str]()
    for number in range(layout.count):
        found = yield from at_if_available(inspection.find_overwritten(), number, fail_fast=True)
        names += found or []
    return [overwritten(names)] if names else []


def overwritten(names: list[str]) -> Finding:
    """The finding about our keys that another client overwrote."""
    return error(
        "data",
        f"another client overwrote {first_of(names)}: what needs that fails",
        f"DEL {names[0]}; then restart the listeners, whose scan finds the tasks again",
    )


def _is_ours(name: bytes, layout: PartitionLayout) -> bool:
    """True if a key is of any partition, or looks like a task's: those are looked for apart."""
    prefix = layout.prefix.encode() + b":"
    tag, _, rest = name.partition(b"}")
    if name.startswith(prefix) or (tag.startswith(b"{") and rest.startswith(prefix)):
        return True
    try:
        return parse_key(name) is not None
    except InvalidKey:
        return True
