"""Finds the number of partitions, by asking the other partitions."""

from typing import NamedTuple

from expirebridge import errors
from expirebridge.store.errors import CountUnknown
from expirebridge.store.partition_availability import (
    UNAVAILABLE_ERRORS,
    Request,
    Requests,
    UnavailablePartitions,
)
from expirebridge.task.calls import partitions
from expirebridge.task.partitions import PARTITIONS_OF_CLUSTER, PartitionLayout


class NothingWritten(Exception):
    """No partition has the number stored: the database is new."""


class PartitionCount(NamedTuple):
    """Stores the number of partitions in partitions that lack it."""

    prefix: str
    spread: bool
    """True if the partitions are on several nodes."""
    unavailable: UnavailablePartitions

    def mark(self, layout: PartitionLayout, number: int, *, reads: bool) -> Requests[None]:
        """Write to a partition that does not know it how many there are.

        If it is only to be read (`reads`), nothing is written. Raises PartitionsDiffer if the other
        partitions have another number, and NothingWritten if a new database is only to be read.
        """
        known = yield from self._is_known(layout)
        if reads:
            if not known:
                raise NothingWritten
        elif known:
            yield Request(layout, number, partitions.mark_partition(), sure=True)
        else:
            yield from self.create(layout.count)  # unavailable ones get it later

    def create(self, count: int) -> Requests[errors.ServerError | None]:
        """Fix the number of partitions: the first one decides, then it is written to each.

        Returns why it could not be written to one. Raises PartitionsDiffer for another number.
        """
        if count == 1:
            raise too_few(self.prefix)
        layout = PartitionLayout(self.prefix, count)
        if not (yield from self._is_known(layout)):
            first = layout if self.spread else PartitionLayout(self.prefix)
            try:
                yield Request(first, 0, partitions.create_partitions(count), sure=True)
            except errors.PartitionsDiffer as other:
                raise errors.PartitionsDiffer(other.count, count) from other
        fault = None
        for number in range(count):
            try:
                yield Request(layout, number, partitions.mark_partition(), sure=True)
            except errors.ServerError as error:
                fault = error
        return fault

    def _is_known(self, layout: PartitionLayout) -> Requests[bool]:
        """True if any partition has the number stored, and it is this one.

        Those of 16 are asked in any case: of each lesser number, all partitions are among them, and
        of each greater one, some. Raises PartitionsDiffer for another number, and a ServerError if
        none has it, but not all answer.
        """
        sixteen = PartitionLayout(self.prefix, PARTITIONS_OF_CLUSTER)
        asked = layout if layout.count > PARTITIONS_OF_CLUSTER else sixteen
        fault: errors.ServerError | None = None
        known = False
        for number in range(asked.count):
            if recent := self.unavailable.fault_of(asked, number):
                fault = recent
                continue
            node = self.unavailable.node_of(asked, number)
            try:
                count = yield Request(
                    asked, number, partitions.read_partitions(), fail_fast=self.spread
                )
            except CountUnknown:
                continue
            except errors.PartitionsDiffer as other:
                count = other.count
            except errors.ServerError as error:
                if isinstance(error, UNAVAILABLE_ERRORS):
                    self.unavailable.note(asked, number, error, node)
                fault = error
                continue
            known = True
            if count != layout.count:
                raise errors.PartitionsDiffer(count, layout.count)
        if fault is not None and not known:
            raise fault
        return known


def too_few(prefix: str) -> errors.InvalidSetting:
    """The refusal of a single partition in a cluster."""
    return errors.InvalidSetting(
        f"prefix={prefix!r}: in a cluster there are at least 2 partitions; with a hash tag of your "
        f"own, such as '{{eb}}{prefix}', there is one, and all names are in one slot"
    )
