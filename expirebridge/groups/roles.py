"""What a listener does for groups: it cancels the members of cancelled ones."""

from expirebridge.groups.calls import cancel_group
from expirebridge.listener.partition.capability_roles import (
    CapabilityRoles,
    Partition,
    PartitionRoles,
)
from expirebridge.settings import Settings
from expirebridge.task.calls.reconciling import Sweep


class GroupRoles(PartitionRoles):
    """Cancels the next members of cancelled groups, after each sweep."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._keep = partition.settings.keep_succeeded

    async def after_sweep(self, sweep: Sweep) -> None:
        """Cancel some members of each group that the sweep named. Raises a ServerError."""
        for group in sweep.stopping:
            await self._partition.session.store.run(cancel_group(group, keep=self._keep))


def roles_of(_settings: Settings) -> CapabilityRoles:
    """Cancel members, whatever the settings are."""
    return CapabilityRoles(in_partition=GroupRoles)
