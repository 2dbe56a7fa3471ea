"""The binding of a ledger to one Redis and one database, and the check that these are they.

One side may change its address, or its server, while the other is as it was. What changes on both
sides at once may be a copy of both. See docs/adr/0059-a-ledger-is-bound-to-two-databases.md.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import orjson
from sqlalchemy import URL

from expirebridge.connection.urls import PORT, Address, read_cluster_url, read_sentinel_url
from expirebridge.errors import LedgerUnsuitable
from expirebridge.ledger import calls
from expirebridge.ledger.backlog import horizon_ms
from expirebridge.ledger.calls import RedisCheckpoint
from expirebridge.ledger.relay_statements import RelayProgress, RelayState
from expirebridge.ledger.relay_store import RelayStore, new_nonce
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")

MOST = 50
"""The number of addresses that are stored for a side; an older one is dropped."""
SHOWN = 5
"""The number of them that an error names."""
_LISTS = ("redis", "sql", "identities")
REBUILD = "Nothing is sent. `expirebridge ledger rebuild --yes` binds them to each other"


class Addresses(NamedTuple):
    """The addresses of both sides, as settings spell them, without logins."""

    redis: tuple[str, ...]
    """The addresses at which Redis is found, each with its database and prefix; any of them will
    do."""
    database: str
    """The database's number in Redis, and the prefix."""
    sql: str
    """The address of the SQL database."""
    partitions: int = 1


class Seen(NamedTuple):
    """The present addresses and identities of both sides."""

    place: Addresses
    identity: str
    """The identity of this SQL database; a dump that is restored elsewhere has another one."""
    run_id: str | None
    """The server's process; None if it does not say."""
    horizon: int | None = None
    """How many ms ahead rows are relayed; None: all are."""

    @property
    def run(self) -> str | None:
        """The process, and the database in it."""
        return self.run_id and f"{self.run_id} {self.place.database}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Met:
    """The addresses and identities of both sides that a ledger has stored since they were bound."""

    redis: tuple[str, ...] = ()
    """The addresses at which Redis was met."""
    run: str | None = None
    """Its process and database when it last said so; None: it never did."""
    sql: tuple[str, ...] = ()
    """The addresses at which the SQL database was met."""
    identities: tuple[str, ...] = ()
    """The identities that it had: a cluster of MariaDB has several servers."""
    partitions: int = 0
    horizon: int | None = None
    """How many ms ahead rows are relayed by the listener that connected last; None: all are."""

    @classmethod
    def first(cls, seen: Seen) -> "Met":
        """Return the record of the first binding."""
        place = seen.place
        return cls(
            redis=place.redis, run=seen.run, sql=(place.sql,), identities=(seen.identity,),
            partitions=place.partitions, horizon=seen.horizon,
        )  # fmt: skip

    @classmethod
    def read(cls, text: str | None) -> "Met":
        """As `text` writes it."""
        fields = orjson.loads(text or "{}")
        lists = {name: tuple(fields[name]) for name in _LISTS if name in fields}
        return cls(**(fields | lists))

    @property
    def text(self) -> str:
        """As the column `met` holds it."""
        return orjson.dumps(asdict(self)).decode()

    def with_(self, seen: Seen) -> "Met":
        """Return it with the present addresses and identities; earlier addresses are kept."""
        place = seen.place
        return replace(
            self, redis=_added(self.redis, place.redis), run=seen.run or self.run,
            sql=_added(self.sql, (place.sql,)),
            identities=_added(self.identities, (seen.identity,)), horizon=seen.horizon,
        )  # fmt: skip


def check_numbers(numbers: RelayState | RelayProgress, known: RedisCheckpoint) -> None:
    """Raise LedgerUnsuitable unless server and ledger have the same pairing id and batch numbers.

    A server without a checkpoint may have lost everything.
    """
    if known.nonce not in {"", numbers.nonce}:
        raise LedgerUnsuitable(f"Redis belongs to another ledger. {REBUILD}")
    if known.number > numbers.number:
        raise LedgerUnsuitable(
            f"Redis has seen pass {known.number}, the ledger only {numbers.number}: was it "
            f"restored from a backup? {REBUILD}"
        )


def check_partitions(met: Met, partitions: int) -> None:
    """Raise LedgerUnsuitable for another number of partitions: rows know that of their id."""
    if met.partitions != partitions:
        raise LedgerUnsuitable(
            f"Redis has another number of partitions ({partitions}) than the ledger knows "
            f"({met.partitions}). {REBUILD}"
        )


def check_sides(met: Met, seen: Seen, known: RedisCheckpoint) -> None:
    """Raise LedgerUnsuitable unless one side is as it was, and what it says of the other holds.

    If Redis has no checkpoint, it lost everything; then both must be as they were.
    """
    place = seen.place
    same_run = seen.run is not None and seen.run == met.run
    redis_is_known = same_run or not set(place.redis).isdisjoint(met.redis)
    same_identity = seen.identity in met.identities
    sql_is_known = same_identity and place.sql in met.sql
    if known.nonce and (sql_is_known or (redis_is_known and (same_identity or same_run))):
        return
    if not known.nonce and sql_is_known and redis_is_known:
        return
    faults = "; ".join(_faults(met, seen, known))
    raise LedgerUnsuitable(f"the ledger and this Redis may be copies: {faults}. {REBUILD}")


def _faults(met: Met, seen: Seen, known: RedisCheckpoint) -> list[str]:
    """Name the changes of both sides."""
    place, faults = seen.place, []
    if not known.nonce:
        faults.append("Redis knows no ledger")
    if set(place.redis).isdisjoint(met.redis):
        faults.append(f"Redis is at {_shown(place.redis)}, and was met at {_shown(met.redis)}")
    elif known.nonce:
        process = "is another process than the one met last"
        unknown = "does not say which process it is"
        faults.append(f"Redis at {_shown(place.redis)} {process if seen.run else unknown}")
    if seen.identity not in met.identities:
        faults.append(
            f"the SQL database at {place.sql} says that it is {seen.identity!r}, and was met as "
            f"{_shown(met.identities)!r}"
        )
    if place.sql not in met.sql:
        faults.append(f"the SQL database is at {place.sql}, and was met at {_shown(met.sql)}")
    return faults


def news_of(before: Met, after: Met) -> list[str]:
    """Name new addresses and identities for the log; a restart is not one."""
    news = [f"Redis is at {one}" for one in after.redis if one not in before.redis]
    news += [f"the SQL database is at {one}" for one in after.sql if one not in before.sql]
    fresh = [one for one in after.identities if one not in before.identities]
    return news + [f"the SQL database says that it is {one!r}" for one in fresh]


def _added(known: Sequence[str], seen: Sequence[str]) -> tuple[str, ...]:
    return (*known, *(one for one in seen if one not in known))[-MOST:]


def _shown(addresses: Sequence[str]) -> str:
    return ", ".join(addresses[-SHOWN:])


TRIES: Final = 5
"""How often a change of an address or identity is written, while others write, too."""


class Binder:
    """Checks on each new connection that a ledger and a partition of a server are bound together.

    A new address or identity of one of them is stored with the relay's progress. `link` identifies
    the connections to both: as long as it is equal, neither is asked again.
    """

    def __init__(
        self, relay_store: RelayStore, store: Callable[[], Store], place: Addresses,
        link: Callable[[], object],
    ) -> None:  # fmt: skip
        self._relay_store = relay_store
        self._store = store
        self._place = place
        self._link = link
        horizon = relay_store.horizon
        self._horizon = None if horizon is None else horizon_ms(horizon)
        self._checked: object = None
        """The pairing ids, and the link, of the last check."""

    def begin(self, checkpoint: RedisCheckpoint) -> None:
        """Bind the two to each other, if neither was bound before. Raises LedgerUnsuitable."""
        if checkpoint.nonce:
            raise LedgerUnsuitable(
                "Redis belongs to another ledger, or this one was restored to before its first "
                f"pass. {REBUILD}"
            )
        for text in self._relay_store.met_by_all():
            check_partitions(Met.read(text), self._place.partitions)
        self._relay_store.begin(new_nonce(), Met.first(self._see()).text)

    def rebind(self, *, above: int) -> str:
        """Bind the ledger to this server, whatever was there; returns the new pairing id.

        The server has seen no batch beyond `above`.
        """
        nonce, met = new_nonce(), Met.first(self._see()).text
        if self._relay_store.read() is None:
            self._relay_store.begin(nonce, met)
        self._relay_store.rebind(nonce, met, above=above)
        return nonce

    def check(self, state: RelayState, checkpoint: RedisCheckpoint) -> None:
        """Raise LedgerUnsuitable unless both are bound to each other: see `check_sides`.

        The server learns how far ahead rows are relayed.
        """
        check_numbers(state, checkpoint)
        present = self._present(state, checkpoint)
        if present != self._checked:
            self._check_identities(state.nonce, checkpoint)
            self._checked = present
        if checkpoint.horizon != self._horizon:
            self._store().run(calls.note_horizon(self._horizon))

    def is_checked(self, state: RelayState, checkpoint: RedisCheckpoint) -> bool:
        """True if `check` would find nothing and ask neither side."""
        in_order = checkpoint.number <= state.number and checkpoint.horizon == self._horizon
        return in_order and self._present(state, checkpoint) == self._checked

    def _present(self, state: RelayState, checkpoint: RedisCheckpoint) -> object:
        """The pairing ids, and the link."""
        return state.nonce, checkpoint.nonce, self._link()

    def _check_identities(self, nonce: str, checkpoint: RedisCheckpoint) -> None:
        """Compare the identities of both with those that are stored, and store a new one."""
        seen = self._see()
        for _ in range(TRIES):
            text = self._relay_store.met()
            met = Met.read(text)
            check_partitions(met, seen.place.partitions)
            check_sides(met, seen, checkpoint)
            now = met.with_(seen)
            if now == met:
                return
            if self._relay_store.remember(nonce, now.text, instead_of=text):
                _report(news_of(met, now))
                return

    def _see(self) -> Seen:
        run_id = self._store().run(calls.read_run_id())
        return Seen(self._place, self._relay_store.identity(), run_id, self._horizon)


def _report(news: list[str]) -> None:
    for each in news:
        logger.info("the ledger has learnt: %s", each, extra=event("ledger learnt", news=each))


# The addresses of both sides, as settings spell them.

MEMORY: Final = ":memory:"
_PORTS: Final = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}


def place_of(settings: Settings, url: URL, partitions: int = 1) -> Addresses:
    """Return the addresses of both sides in these settings; `url` is that of the SQL database."""
    number, addresses = _redis(settings.url)
    database = f"{number} {settings.prefix}"
    return Addresses(
        tuple(f"{address}/{database}" for address in addresses), database, _sql(url), partitions
    )


def _redis(url: str) -> tuple[str, list[str]]:
    """The number of the database, and each address."""
    if sentinels := read_sentinel_url(url):
        # A service of another name is another Redis.
        found = [f"{_address(one)}/{sentinels.name}" for one in sentinels.sentinels]
        return _number(sentinels.primary_url), found
    if cluster := read_cluster_url(url):
        return _number(cluster.node_url), [_address(one) for one in cluster.nodes]
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return _number(url), [parts.path]
    return _number(url), [_address(Address(parts.hostname or "localhost", parts.port or PORT))]


def _number(url: str) -> str:
    """Of the database that a URL of one server names."""
    parts = urlsplit(url)
    named = parse_qs(parts.query).get("db", [""])[0]
    return named or ("" if parts.scheme == "unix" else parts.path[1:]) or "0"


def _address(address: Address) -> str:
    return str(address._replace(host=address.host.lower()))


def _sql(url: URL) -> str:
    dialect = url.get_backend_name()
    if dialect == "sqlite":
        path = url.database or MEMORY
        return path if path == MEMORY else str(Path(path).resolve())
    elsewhere = [
        ",".join(url.normalized_query[name])
        for name in ("host", "port", "unix_socket")
        if url.query.get(name)
    ]
    address = ":".join(elsewhere) or f"{url.host or 'localhost'}:{url.port or _PORTS[dialect]}"
    return f"{address.lower()}/{url.database or ''}"
