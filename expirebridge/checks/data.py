"""The checks of overwritten keys, and of what else is in a database with several partitions."""

from expirebridge.checks.finding import Finding, error, ok
from expirebridge.checks.server import SAMPLE, other_data
from expirebridge.checks.work import first_of
from expirebridge.model.keys import InvalidKey, parse_key
from expirebridge.model.partitions import Layout
from expirebridge.store import commands
from expirebridge.store.commands import Steps


def check_others_data(layout: Layout) -> Steps[Finding]:
    """Whether a server also holds other data: in a cluster, each node has keys of its own."""
    _, names = yield from commands.walk(commands.BEGINNING, SAMPLE)
    alien = sum(not _is_ours(name, layout) for name in names)
    return other_data(alien) if alien else ok("data", "no other data")


def check_overwritten(layout: Layout) -> Steps[list[Finding]]:
    """Whether another client overwrote keys of ours, in each partition that answers."""
    names = list[str]()
    for number in range(layout.count):
        found = yield from commands.at_if_there(commands.find_overwritten(), number, hasty=True)
        names += found or []
    return [overwritten(names)] if names else []


def overwritten(names: list[str]) -> Finding:
    """What is reported of keys of ours in whose place another client put something else."""
    return error(
        "data",
        f"another client overwrote {first_of(names)}: what needs that fails",
        f"DEL {names[0]}; then restart the listeners, whose scan finds the tasks again",
    )


def _is_ours(name: bytes, layout: Layout) -> bool:
    """Whether a key is of any partition, or looks like a task's: those are looked for apart."""
    prefix = layout.prefix.encode() + b":"
    tag, _, rest = name.partition(b"}")
    if name.startswith(prefix) or (tag.startswith(b"{") and rest.startswith(prefix)):
        return True
    try:
        return parse_key(name) is not None
    except InvalidKey:
        return True
