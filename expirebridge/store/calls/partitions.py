"""The calls about the number of partitions of a database: read it, and fix it."""

from expirebridge.store.calls.call import Call, milliseconds, script
from expirebridge.store.calls.routes import Creation, Everywhere


def read_partitions() -> Call[int]:
    """Read how many partitions there are, in each of them. Raises PartitionsDiffer if one differs.

    To a store, which assumes their number, that error also tells it.
    """
    return script("read_partitions", read=int, route=Everywhere(max))


def create_partitions(count: int, lease: float) -> Call[None]:
    """Fix the number of partitions of a database in which nothing was written yet.

    Raises PartitionsDiffer if it has another number, and FormatRefused while a listener beats that
    knows only format 1.
    """
    return script(
        "create_partitions", count, milliseconds(lease),
        read=lambda _: None, route=Creation(count, lease),
    )  # fmt: skip
