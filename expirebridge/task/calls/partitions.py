"""The calls about the number of partitions of a database: read it, and fix it."""

from expirebridge.task.calls.call import Command, Creation, Everywhere, script


def read_partitions() -> Command[int]:
    """Read how many partitions there are, in each of them. Raises PartitionsDiffer if one differs.

    To a store, which assumes their number, that error also tells it.
    """
    return script("read_partitions", read=int, route=Everywhere(max))


def create_partitions(count: int) -> Command[None]:
    """Fix the number of partitions of a database in which nothing was written yet.

    Raises PartitionsDiffer if it has another number.
    """
    return script("create_partitions", count, read=lambda _: None, route=Creation(count))


def mark_partition() -> Command[None]:
    """Write the number of partitions to each that lacks it."""
    return script("mark_partition", read=lambda _: None, route=Everywhere(lambda _: None))
