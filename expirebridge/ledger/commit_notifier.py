"""Notifies listeners of committed rows, without making the application wait."""

import contextlib
import logging
import threading
import time
from collections.abc import Collection, Iterable
from functools import partial
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
from expirebridge.task.commit_message import MOST_IDS, commit_message
from expirebridge.task.forks import renew_after_fork
from expirebridge.task.transactions import Transaction

logger = logging.getLogger("expirebridge")

GAP = 0.005
"""The least seconds between two notifications: one covers all commits before it."""


class Committed:
    """What a notification says: the ids of new rows, and whether there are others."""

    def __init__(self) -> None:
        self.ids: dict[str, None] = {}
        self.has_others = False

    def add(self, ids: Collection[str] | None) -> None:
        """Add new rows of these ids; None: others. Beyond a few ids, they are others, too."""
        if ids is not None and len(self.ids) + len(ids) <= MOST_IDS:
            self.ids |= dict.fromkeys(ids)
        else:
            self.has_others = True

    def messages(self) -> list[str]:
        """What is published: ids first, since the rows that they name are sent early."""
        named = [commit_message(self.ids)] if self.ids else []
        return named + ([] if named and not self.has_others else [commit_message()])


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
        self._own = threading.local()
        """What was made in transactions of this thread whose commit is not seen from here."""
        self._funcs = set[str]()
        """Functions about which the listeners are still to be asked."""
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Forget the thread, which a fork leaves behind."""
        self._wanted = threading.Event()
        self._lock = threading.Lock()
        self._is_started = False
        self._committed: Committed | None = None

    def notify(self) -> None:
        """Have listeners look at the ledger; returns at once."""
        committed = self._noted_here()
        del self._own.noted
        committed.add(None)
        self._publish(committed)

    def _publish(self, committed: Committed) -> None:
        with self._lock:
            if self._committed is None:
                self._committed = committed
            else:
                self._committed.add(committed.ids)
                self._committed.has_others |= committed.has_others
        self._wake()

    def _noted_here(self) -> Committed:
        if not hasattr(self._own, "noted"):
            self._own.noted = Committed()
        noted: Committed = self._own.noted
        return noted

    def _wake(self) -> None:
        if not self._is_started:
            self._start()
        self._wanted.set()

    def look_up(self, funcs: Collection[str]) -> None:
        """Warn of those of these functions that no listener knows; returns at once."""
        if new := set[str]().union(*(one.new_among(funcs) for one in self._lookups)):
            with self._lock:
                self._funcs |= new
            self._wake()

    def note(self, transaction: Transaction, ids: Collection[str] | None) -> None:
        """Notify listeners when this transaction of a Session or of Django is committed.

        `ids` are those of new rows in it; None: something else was changed. Of other transactions
        the ids are kept until `notify` is called in this thread.
        """
        if isinstance(transaction, scoped_session):
            transaction = transaction()
        if isinstance(transaction, Session):
            transaction.info.setdefault(self, Committed()).add(ids)
            if not event.contains(transaction, "after_commit", self.on_commit):
                event.listen(transaction, "after_commit", self.on_commit)
        elif hasattr(transaction, "vendor") and hasattr(transaction, "on_commit"):
            committed = Committed()
            committed.add(ids)
            transaction.on_commit(partial(self._publish, committed))
        else:
            self._noted_here().add(ids)

    def on_commit(self, session: Session) -> None:
        """Notify listeners: this session was committed. A savepoint is not yet."""
        if not session.in_nested_transaction():
            committed = session.info.pop(self, None) or Committed()
            self._publish(committed)

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
                with self._lock:
                    funcs, self._funcs = self._funcs, set()
                    committed, self._committed = self._committed, None
                for message in committed.messages() if committed else ():
                    server.client.publish(server.database.doorbell_channel, message)
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
