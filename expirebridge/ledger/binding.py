"""The binding of a ledger to one Redis and one database, and the check that these are they.

One side may change its address, or its server, while the other is as it was. What changes on both
sides at once may be a copy of both. See docs/adr/0059-a-ledger-is-bound-to-two-databases.md.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import orjson
from sqlalchemy import URL, Connection, Table, text

from expirebridge.connection.urls import PORT, Address, read_cluster_url, read_sentinel_url
from expirebridge.errors import LedgerUnsuitable
from expirebridge.ledger.calls import RedisCheckpoint
from expirebridge.ledger.relay_statements import RelayProgress, RelayState
from expirebridge.settings import Settings

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

    @classmethod
    def first(cls, seen: Seen) -> "Met":
        """Return the record of the first binding."""
        place = seen.place
        return cls(
            redis=place.redis, run=seen.run, sql=(place.sql,), identities=(seen.identity,),
            partitions=place.partitions,
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
            identities=_added(self.identities, (seen.identity,)),
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


# The two sides of a ledger: how settings spell where they are, and what they say of themselves.

MEMORY: Final = ":memory:"
_PORTS: Final = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}

# An ordinary role may call pg_control_system(), unless that was revoked.
_MAY_ASK = text("SELECT has_function_privilege('pg_control_system()', 'EXECUTE')")
_SYSTEM = text("SELECT system_identifier FROM pg_control_system()")
_OIDS = text(
    "SELECT d.oid::bigint, CAST(CAST(:name AS regclass) AS oid)::bigint "
    "FROM pg_database d WHERE d.datname = current_database()"
)
# MariaDB has no server_uuid, and its server_uid is made of the port and the network card.
_UUID = text("SHOW GLOBAL VARIABLES LIKE 'server_uuid'")
_CREATED = text(
    "SELECT table_schema, unix_timestamp(create_time) FROM information_schema.tables "
    "WHERE table_schema = coalesce(:schema, database()) AND table_name = :name"
)


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


def identity_of(connection: Connection, table: Table) -> str:
    """Return what identifies this database; a dump that is restored elsewhere has another identity.

    `table` is one of the ledger's. What an ordinary login may not ask is left out.
    """
    ask = {"postgresql": _of_postgresql, "sqlite": _of_sqlite}.get(
        connection.dialect.name, _of_mysql
    )
    return ask(connection, table)


def _of_postgresql(connection: Connection, table: Table) -> str:
    """The cluster's number, and those of database and table: there may be several of them."""
    system = connection.scalar(_SYSTEM) if connection.scalar(_MAY_ASK) else "?"
    name = connection.dialect.identifier_preparer.format_table(table)
    database, own = connection.execute(_OIDS, {"name": name}).one()
    return f"postgresql {system} {database} {own}"


def _of_mysql(connection: Connection, table: Table) -> str:
    """The server's uuid, and when the table was created: a dump that is read creates it anew."""
    uuid = connection.execute(_UUID).first()
    found = connection.execute(_CREATED, {"schema": table.schema, "name": table.name}).first()
    schema, created = found or ("?", 0)
    return f"mysql {uuid[1] if uuid else '?'} {schema} {int(created or 0)}"


def _of_sqlite(connection: Connection, __: Table) -> str:
    """The file's inode: the number of its device may be another one after a restart."""
    databases = connection.exec_driver_sql("PRAGMA database_list")
    [path] = [file for _, name, file in databases if name == "main"]
    return f"sqlite {Path(path).stat().st_ino}" if path else f"sqlite {MEMORY}"
