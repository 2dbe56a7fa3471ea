"""The books: one ledger and one server, as a listener that has both uses them."""

import asyncio
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec, TypeVar
from urllib.parse import urlsplit

from sqlalchemy import URL, MetaData
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from expirebridge.errors import LedgerError
from expirebridge.hooks import Passed
from expirebridge.ledger import patience
from expirebridge.ledger.archive import Archive, Place, Pruned
from expirebridge.ledger.completer import Completer
from expirebridge.ledger.engines import engine_of, ledger_error, read_url
from expirebridge.ledger.entries import Fate, Numbers
from expirebridge.ledger.passbook import Passbook
from expirebridge.ledger.patience import Waiters, too_slow
from expirebridge.ledger.relay import INTERRUPTED, Pass, Relay, finish
from expirebridge.ledger.schema import find
from expirebridge.ledger.tables import tables
from expirebridge.settings import Settings
from expirebridge.store.calls import ledger as calls
from expirebridge.store.store import Store

P = ParamSpec("P")
T = TypeVar("T")
THREADS = 4
TRIES = 5


class Books:
    """What a listener does with its ledger.

    Each method waits; `run` calls one in a thread, and does not wait for long.

    Each raises a LedgerError if the ledger's database fails, and a ServerError if the server does.
    """

    def __init__(
        self, settings: Settings, store: Callable[[], Store], *, partition: int = 0
    ) -> None:
        assert settings.ledger is not None  # noqa: S101 - the caller's to see
        self._url = read_url(settings.ledger)
        self._made = tables(MetaData())
        self._engine = engine_of(self._url, pool_pre_ping=True)
        self._passbook = Passbook(
            self._engine, self._made, name=settings.ledger_name, partition=partition
        )
        self.name = settings.ledger_name
        self.relay = Relay(self._passbook, store, settings, place=place_of(settings, self._url))
        self._archive = Archive(
            self._engine, self._made, self.relay, store, name=self.name, partition=partition
        )
        self._store = store
        self._one_pass = threading.Lock()
        self._waiters = Waiters(THREADS)

    async def run(self, method: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call one of the other methods in a thread, and await it.

        Raises LedgerUnreachable if that takes longer than 5 s. A call that has begun goes on.
        """
        waited = patience.PATIENCE
        try:
            async with asyncio.timeout(waited):
                return await self.begin(method, *args, **options)
        except TimeoutError:
            raise too_slow(waited) from None

    def begin(
        self, method: Callable[P, T], *args: P.args, **options: P.kwargs
    ) -> asyncio.Future[T]:
        """Call one of the other methods in a thread, however long it takes."""
        return asyncio.wrap_future(self._waiters.submit(partial(method, *args, **options)))

    def check(self) -> None:
        """See that the tables are there and of this version. Raises LedgerUnsuitable if not."""
        with self._translated(), self._engine.connect() as connection:
            find(connection, self._made)

    def pass_once(self) -> int:
        """Make a pass in each direction; returns how many rows were carried by the fuller one."""
        with self._translated(), self._one_pass:
            return max(_repeated(self.relay.carry), _repeated(self.relay.bring_back))

    def take_passed(self) -> list[Passed]:
        """The passes that were made since this was called last, for hooks."""
        passed = self.relay.passed
        return [passed.popleft() for _ in range(len(passed))]

    def fence(self, seen: int) -> None:
        """Take a number, so that passes which stalled are fenced out; see `Passbook.fence`."""
        with self._translated():
            self._passbook.fence(seen)

    def read(self) -> Numbers | None:
        """What the ledger knows of its passes."""
        with self._translated():
            return self._passbook.read()

    def ask(self, ids: Iterable[str]) -> dict[str, Fate]:
        """What it says of these tasks; those without a row are left out."""
        with self._translated():
            return self._passbook.ask(ids)

    def completer(self, id: str, life: calls.Life, attempt: int) -> Completer:
        """What lets the handler of this attempt complete its task."""
        return Completer(self.name, id, life.generation, life.revision, attempt)

    def prune(self, keep: float, place: Place | None = None) -> Pruned:
        """Delete one batch of the rows that ended more than `keep` seconds ago.

        `place` is where the batch before said to go on.
        """
        with self._translated():
            return self._archive.prune(keep, place or Place())

    def rebuild(self) -> None:
        """Bind ledger and server to each other, and have every row carried again."""
        with self._translated():
            self.relay.rebind()

    def known(self) -> calls.Known:
        """What the server knows of its ledger."""
        return self._store().run(calls.read_ledger())

    def close(self) -> None:
        """Close the connections to the database; one in use ends with its call, or the process."""
        self._waiters.close(self._engine.dispose)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise ledger_error(error, self._url) from error
        except SQLAlchemyError as error:
            raise LedgerError(f"the ledger's database cannot be used: {error}") from error


def _repeated(make: Callable[[], Pass[int]]) -> int:
    """Make a pass, again if another came before; that is tried so often, for the next look."""
    for _ in range(TRIES):
        if (carried := finish(make())) != INTERRUPTED:
            return carried
    return 0


def place_of(settings: Settings, url: URL) -> str:
    """Where server and ledger are, as a short hash: logins and passwords are no part of it."""
    server = urlsplit(settings.url)
    parts = (
        server.netloc.rpartition("@")[2].lower(), server.path, settings.prefix, url.host or "",
        str(url.port or ""), url.database or "",
    )  # fmt: skip
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
