"""The two sides of a ledger: how settings spell where they are, and what they say of themselves."""

from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from sqlalchemy import URL, Connection, Table, text

from expirebridge.connection.urls import PORT, Address, read_cluster_url, read_sentinel_url
from expirebridge.ledger.binding import Addresses
from expirebridge.settings import Settings

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
