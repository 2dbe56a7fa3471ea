"""The desk: what a station does for its ledger."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from expirebridge.errors import InvalidSetting
from expirebridge.hooks import Hooks
from expirebridge.listener.ledger.gate import Gate
from expirebridge.listener.ledger.gatekeeper import Gatekeeper
from expirebridge.listener.ledger.pruner import Pruner
from expirebridge.listener.ledger.relayer import Relayer
from expirebridge.listener.ledger.row_check import Clerk
from expirebridge.listener.session import Footing
from expirebridge.listener.standing import Standing
from expirebridge.listener.wakeups import Doorbell
from expirebridge.settings import Settings
from expirebridge.store import commands

if TYPE_CHECKING:
    from expirebridge.ledger.partition import Office


class Desk:
    """The roles of a station that has a ledger, and what they share."""

    def __init__(
        self, office: "Office", footing: Footing, *, doorbell: Doorbell, standing: Standing,
        hooks: Hooks,
    ) -> None:  # fmt: skip
        settings = office.settings
        self.gate = gate = Gate(footing)
        self._books = books = office.books(lambda: footing.now.heart_store, lambda: gate.link)
        self.clerk = Clerk(books, gate)
        self._gatekeeper = Gatekeeper(
            footing, books, gate, doorbell=doorbell, pause=settings.lease / commands.BEATS_PER_LEASE
        )
        self.relayer = Relayer(footing, books, standing, hooks=hooks)
        self._pruner = Pruner(books, standing, keep=settings.ledger_keep)

    def roles(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What it does, each for ever."""
        return {
            "relay of the ledger": self.relayer.run(),
            "gate": self._gatekeeper.run(),
            "old rows of the ledger": self._pruner.run(),
        }


def desk_of(
    office: "Office | None", footing: Footing, hooks: Hooks, *, doorbell: Doorbell,
    standing: Standing,
) -> Desk | None:  # fmt: skip
    """The desk for this office; None if there is none."""
    if office is None:
        return None
    return Desk(office, footing, doorbell=doorbell, standing=standing, hooks=hooks)


def office_of(settings: Settings) -> "Office | None":
    """The office for the ledger that the settings name; None if they name none.

    Raises InvalidSetting for a URL that cannot be used.
    """
    if settings.ledger is None:
        return None
    # Here, so that SQLAlchemy is imported only where there is a ledger.
    try:
        from expirebridge.ledger.partition import Office  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise InvalidSetting(f"the ledger: {missing}") from None
    return Office(settings)
