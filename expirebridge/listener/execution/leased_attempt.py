"""A leased attempt: another listener may have its task once its lease has lapsed."""

from expirebridge.handlers import Handler
from expirebridge.listener.execution.attempt import Attempt
from expirebridge.listener.execution.not_started import Unbegun
from expirebridge.listener.execution.origin import Origin
from expirebridge.store.task_records import ClaimedTask


class LeasedAttempt(Attempt):
    """An attempt of a listener, which must begin before its lease can have lapsed."""

    def __init__(
        self,
        claimed: ClaimedTask,
        handler: Handler | None,
        origin: Origin,
        unbegun: Unbegun,
        *,
        hint: str,
        timeout: float,
    ) -> None:
        super().__init__(claimed, handler, hint=hint, timeout=timeout)
        self.origin = origin
        self._unbegun = unbegun

    @property
    def has_row(self) -> bool:
        """Whether the ledger is asked for its row before its handler is called."""
        return self.claimed.ledger is not None and self.origin.clerk is not None

    def has_lease(self) -> bool:
        """Whether its lease cannot have lapsed yet; see Leases.is_fresh."""
        return self.origin.leases.is_fresh(self.claimed.id, self.claimed.token)

    def lease_end(self) -> float:
        """See Leases.fresh_until."""
        return self.origin.leases.fresh_until(self.claimed.id, self.claimed.token)

    def now(self) -> float:
        """The estimate of the server's clock."""
        return self.origin.footing.now.server_clock.now()

    def begin(self) -> None:
        """See Unbegun.begin. Raises NotBegun."""
        self._unbegun.begin(self)
        super().begin()
