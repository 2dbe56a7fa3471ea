"""What a listener does for urgent tasks: it declares which of its functions are urgent."""

from expirebridge.listener.partition.capability_roles import (
    CapabilityRoles,
    Partition,
    PartitionRoles,
)
from expirebridge.settings import Settings
from expirebridge.urgent.calls import declaration_of


class UrgentRoles(PartitionRoles):
    """Declares urgent functions in the database of a partition."""

    def __init__(self, partition: Partition) -> None:
        self.marks = declaration_of(partition.registry.names())


def roles_of(_settings: Settings) -> CapabilityRoles:
    """Declare them, whatever the settings are: also that there are none."""
    return CapabilityRoles(in_partition=UrgentRoles)
