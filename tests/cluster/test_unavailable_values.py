"""What is known of partitions that cannot be asked now."""

import pytest
from redis.exceptions import ClusterDownError

from expirebridge.errors import ServerError, ServerUnreachable, SlotMoving, SlotUnserved
from expirebridge.store.errors import translated
from expirebridge.store.partition_availability import UnavailablePartitions
from expirebridge.task.partitions import PartitionLayout

LAYOUT = PartitionLayout("expirebridge", 16)


@pytest.mark.parametrize(
    ("fault", "is_of_node"),
    [
        (ServerUnreachable("no answer"), True),
        (translated(ClusterDownError("The cluster is down")), True),
        (translated(ClusterDownError("Hash slot not served")), False),
        (SlotUnserved("no node of the cluster serves slot 1"), False),
        (SlotMoving("slot 1 is being moved"), False),
    ],
)
def test_a_node_that_answers_for_no_slot_is_not_asked_for_each(
    fault: ServerError, *, is_of_node: bool
) -> None:
    homes = {LAYOUT.prefix_of(number): "ab"[number // 8] for number in range(16)}
    unavailable = UnavailablePartitions(homes.get)
    unavailable.note(LAYOUT, 0, fault, "a")
    assert unavailable.fault_of(LAYOUT, 0) is fault
    assert (unavailable.fault_of(LAYOUT, 1) is fault) is is_of_node
    assert unavailable.fault_of(LAYOUT, 8) is None
