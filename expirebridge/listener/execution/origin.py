"""The origin of a claimed task: where its lease is kept, and its outcome recorded."""

from typing import TYPE_CHECKING, NamedTuple

from expirebridge.listener.execution.leases import Leases
from expirebridge.listener.session import Footing

if TYPE_CHECKING:
    from expirebridge.listener.execution.settler import Settler
    from expirebridge.listener.ledger.row_check import Clerk


class Origin(NamedTuple):
    """What the runner uses of the station that claimed a task."""

    footing: Footing
    leases: Leases
    settler: "Settler"
    clerk: "Clerk | None" = None
    """Who asks the ledger; None without one."""
