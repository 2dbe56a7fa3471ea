"""The series that the commands see: those of Redis, and of a ledger if one is named."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from expirebridge.cli.ledger_options import connected, extra_is_there, refuse_password
from expirebridge.cli.stats import store_of
from expirebridge.errors import NotPermitted, ServerUnreachable
from expirebridge.model.task import Change
from expirebridge.producer.bridge import Bridge
from expirebridge.series.merged_listing import cursors_in, joined
from expirebridge.series.state import Series, SeriesListing
from expirebridge.settings import Settings
from expirebridge.store.commands.ledger import read_ledgers

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from expirebridge.ledger import Ledger

NAME_IT = "give --ledger, or set EXPIREBRIDGE_LEDGER"


class AllSeries:
    """Finds a series in the ledger, if one is named, and else in Redis."""

    def __init__(self, bridge: Bridge, settings: Settings) -> None:
        self._bridge = bridge
        self._settings = settings

    @property
    def has_ledger(self) -> bool:
        """Whether one is named."""
        return self._settings.ledger is not None

    def lacks_ledger(self) -> bool:
        """Whether none is named, although this database of Redis belongs to one."""
        if self.has_ledger:
            return False
        with closing(store_of(self._settings)) as store:
            try:
                return any(known.nonce for known in store.run(read_ledgers()).values())
            except (NotPermitted, ServerUnreachable):  # not known: what is asked next says why
                return False

    def get(self, id: str) -> Series | None:
        """The series of this id."""
        found: Series | None = self._in_ledger(lambda ledger, at: ledger.get_series(at, id))
        return found or self._bridge.get_series(id)

    def list(self, limit: int, cursor: str | None) -> SeriesListing:
        """A page of all: up to so many of Redis, and as many of the ledger."""
        if not self.has_ledger:
            return self._bridge.list_series(limit=limit, cursor=cursor)
        here, there = cursors_in(cursor)
        return joined(
            None if here == "" else self._bridge.list_series(limit=limit, cursor=here),
            None if there == "" else self._in_ledger(
                lambda ledger, at: ledger.list_series(at, limit=limit, cursor=there)
            ),
        )  # fmt: skip

    def pause(self, id: str) -> Change:
        """Let a series make no ticks."""
        found = self._in_ledger(lambda ledger, at: ledger.pause_series(at, id))
        return found if _is_there(found) else self._bridge.pause_series(id)

    def resume(self, id: str) -> Change:
        """Let a paused series go on."""
        found = self._in_ledger(lambda ledger, at: ledger.resume_series(at, id))
        return found if _is_there(found) else self._bridge.resume_series(id)

    def run(self, id: str) -> Any:
        """Make one more tick; returns its task, here or in the ledger."""
        found = self._in_ledger(lambda ledger, at: ledger.run_series(at, id))
        return found or self._bridge.run_series(id)

    def remove(self, id: str) -> Change:
        """Remove a series."""
        found = self._in_ledger(lambda ledger, at: ledger.unschedule(at, id))
        return found if _is_there(found) else self._bridge.unschedule(id)

    def _in_ledger(self, call: "Callable[[Ledger, Connection], Any]") -> Any:
        """What a call of the ledger answers, in a transaction of its own; None without a ledger."""
        if not self.has_ledger:
            return None
        with extra_is_there():
            from expirebridge.ledger import Ledger  # noqa: PLC0415
        ledger = Ledger(self._settings.ledger, name=self._settings.ledger_name)
        with connected(self._settings) as connection:
            return call(ledger, connection)


def _is_there(change: Change | None) -> bool:
    return change not in {None, Change.NOT_FOUND}


@contextmanager
def all_series(url: str | None, ledger: str | None, ledger_name: str | None) -> Iterator[AllSeries]:
    """All series of what these options name."""
    refuse_password(ledger)
    settings = Settings.read(url=url, ledger=ledger, ledger_name=ledger_name)
    with Bridge(url) as bridge:
        yield AllSeries(bridge, settings)
