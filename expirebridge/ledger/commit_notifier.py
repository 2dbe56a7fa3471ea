"""Notifies listeners of committed rows, without making the application wait."""

import contextlib
import logging
import threading
import time
from collections.abc import Collection, Iterable
from typing import Protocol, cast

from redis import RedisError
from sqlalchemy import event
from sqlalchemy.orm import Session, scoped_session

from expirebridge.capabilities import given
from expirebridge.connection import clients
from expirebridge.errors import NotPermitted, ServerUnreachable
from expirebridge.settings import Settings
from expirebridge.store.partitions import Partitions
from expirebridge.task.calls import partitions
from expirebridge.task.calls.call import Steps
from expirebridge.task.forks import renew_after_fork
from expirebridge.task.transactions import Transaction

logger = logging.getLogger("expirebridge")

MESSAGE = "ledger"
"""The message that is published on the doorbell's channel."""
GAP = 0.005
"""The least seconds between two notifications: one covers all commits before it."""


class FunctionLookup(Protocol):
    """Looks up functions at the listeners, each once."""

    def new_among(self, funcs: Iterable[str]) -> set[str]:
        """Those of these functions about which the listeners would be asked now."""
        ...

    def warn(self, funcs: Iterable[str]) -> Steps[None]:
        """Warn of those of these functions that no listener has."""
        ...


class GivesFunctionLookup(Protocol):
    """A module that knows the functions of the listeners."""

    def lookup_for(self, settings: Settings) -> FunctionLookup:
        """Return the look-up of functions in the database of these settings."""
        ...


class CommitNotifier:
    """Publishes that rows wait to be relayed, from a thread of its own.

    Best effort: it never raises, and a notification that is lost costs a second, since the relay
    looks each second in any case. Notifications are coalesced while one is being sent. The thread
    asks the listeners about new functions, too.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        modules = cast("tuple[GivesFunctionLookup, ...]", given("function_lookup"))
        self._lookups = [module.lookup_for(settings) for module in modules]
        self._funcs = set[str]()
        """Functions about which the listeners are still to be asked."""
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Forget the thread, which a fork leaves behind."""
        self._wanted = threading.Event()
        self._lock = threading.Lock()
        self._is_started = False

    def notify(self) -> None:
        """Have listeners look at the ledger; returns at once."""
        if not self._is_started:
            self._start()
        self._wanted.set()

    def look_up(self, funcs: Collection[str]) -> None:
        """Warn of those of these functions that no listener knows; returns at once."""
        if new := set[str]().union(*(one.new_among(funcs) for one in self._lookups)):
            with self._lock:
                self._funcs |= new
            self.notify()

    def on_commit(self, session: Session) -> None:  # noqa: ARG002 - an event of SQLAlchemy
        """Notify listeners: this session was committed."""
        self.notify()

    def _start(self) -> None:
        with self._lock:
            if self._is_started:
                return
            self._is_started = True
            threading.Thread(target=self._run, name="expirebridge-notifier", daemon=True).start()

    def _run(self) -> None:
        server: Partitions | None = None
        while True:
            self._wanted.wait()
            self._wanted.clear()
            try:
                if server is None:
                    server = self._connected()
                server.client.publish(server.database.doorbell_channel, MESSAGE)
                with self._lock:
                    funcs, self._funcs = self._funcs, set()
                for lookup in self._lookups if funcs else ():
                    server.run(lookup.warn(funcs))
            except (RedisError, OSError, ServerUnreachable) as error:
                logger.debug("no notification: %s", error)
            except Exception:
                logger.exception("no more notifications: rows are relayed within a second")
                return
            time.sleep(GAP)

    def _connected(self) -> Partitions:
        client = clients.probe_client(self._settings.url)
        server = Partitions(client, prefix=self._settings.prefix)
        with contextlib.suppress(NotPermitted):  # then it has one partition, as far as we know
            server.run(partitions.read_partitions())
        return server


def notify_after_commit(transaction: Transaction, notifier: CommitNotifier) -> None:
    """Notify listeners when this transaction of a Session or of Django is committed."""
    if isinstance(transaction, scoped_session):
        transaction = transaction()
    if isinstance(transaction, Session):
        if not event.contains(transaction, "after_commit", notifier.on_commit):
            event.listen(transaction, "after_commit", notifier.on_commit)
    elif hasattr(transaction, "vendor") and hasattr(transaction, "on_commit"):
        transaction.on_commit(notifier.notify)
