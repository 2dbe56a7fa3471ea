"""The origin of a claimed task: where its lease is kept, and its outcome recorded."""

from typing import TYPE_CHECKING, NamedTuple

from expirebridge.listener.footing import Footing
from expirebridge.listener.runner.leases import Leases

if TYPE_CHECKING:
    from expirebridge.listener.runner.clerk import Clerk
    from expirebridge.listener.runner.settler import Settler


class Origin(NamedTuple):
    """What the runner uses of the station that claimed a task."""

    footing: Footing
    leases: Leases
    settler: "Settler"
    clerk: "Clerk | None" = None
    """Who asks the ledger; None without one."""
