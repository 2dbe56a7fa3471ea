"""What a listener does for limits: it declares those of its handlers."""

from expirebridge.limits.calls import declare_limits
from expirebridge.limits.declared_limits import LimitsDeclaration
from expirebridge.listener.execution.leases import HandlersDeclaration
from expirebridge.listener.partition.capability_roles import (
    CapabilityRoles,
    Partition,
    PartitionRoles,
)
from expirebridge.settings import Settings


class LimitsRoles(PartitionRoles):
    """Declares the limits of handlers in the database of a partition."""

    def __init__(self, partition: Partition) -> None:
        limits = LimitsDeclaration.of(partition.registry.names())
        self.declaration = HandlersDeclaration(limits.fingerprint, declare_limits(*limits))


def roles_of(_settings: Settings) -> CapabilityRoles:
    """Declare limits, whatever the settings are: also that there are none."""
    return CapabilityRoles(in_partition=LimitsRoles)
