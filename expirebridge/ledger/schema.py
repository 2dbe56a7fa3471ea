"""Creates the ledger's tables, prints their DDL, and checks which version of them is there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    ClauseElement,
    Connection,
    Insert,
    MetaData,
    Table,
    create_mock_engine,
    inspect,
    select,
    text,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError

from expirebridge.errors import LedgerUnsuitable
from expirebridge.ledger.db_errors import is_missing
from expirebridge.ledger.sql_tables import VERSION, Tables, extras, own_tables, tables
from expirebridge.ledger.sql_types import NAME as VIEW

_URLS: Final = {
    "postgresql": "postgresql+psycopg://",
    "sqlite": "sqlite://",
    "mysql": "mysql+pymysql://",
    "mariadb": "mariadb+pymysql://",
}
DIALECTS: Final = tuple(_URLS)
"""The databases that can hold a ledger, as SQLAlchemy calls them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    """Which tables a database holds."""

    version: int
    identity: str
    """Drawn when they were created: tells this database from another."""


def ddl(dialect: str) -> str:
    """The statements that create tables, view and version, as a script for `psql` and its like.

    Raises LedgerUnsuitable for a dialect that cannot hold a ledger.
    """
    header = f"-- The ledger of expirebridge for {dialect}, version {VERSION}.\n\n"
    return header + "\n\n".join(f"{statement};" for statement in creation(dialect)) + "\n"


def creation(dialect: str) -> list[str]:
    """The statements that create tables, view and version, in their order.

    Raises LedgerUnsuitable for a dialect that cannot hold a ledger.
    """
    if dialect not in _URLS:
        raise LedgerUnsuitable(f"{dialect!r} cannot hold a ledger: one of {', '.join(DIALECTS)}")
    written: list[str] = []

    def write(statement: Any, *_: Any, **__: Any) -> None:
        written.append(_text(statement, engine.dialect))

    engine = create_mock_engine(_URLS[dialect], write)
    metadata = MetaData()
    tables(metadata)
    metadata.create_all(engine, checkfirst=False)
    written.sort(key=_place)
    return written


def removal() -> list[str]:
    """The statements that drop what `creation` creates, with all rows."""
    names = [table.name for table in own_tables().all()]
    return [f"DROP VIEW {VIEW}", *(f"DROP TABLE {name}" for name in names)]


def _place(statement: str) -> tuple[int, str]:
    """Indices, which are a set, in an order of their own, and the version when all else is done."""
    if statement.startswith("INSERT"):
        return 2, ""
    return (1, statement) if statement.startswith("CREATE INDEX") else (0, "")


def _text(statement: ClauseElement, dialect: Dialect) -> str:
    options = {"literal_binds": True} if isinstance(statement, Insert) else {}
    return str(statement.compile(dialect=dialect, compile_kwargs=options)).strip()


def create(connection: Connection, made: Tables) -> bool:
    """Create tables, view and version; False if they are there already.

    What an interrupted `create` left out is added: some databases cannot roll DDL back. Raises
    LedgerUnsuitable for tables of another version, for others of these names, and for a database
    whose encoding is none.
    """
    check_encoding(connection)
    present = inspect(connection)
    schema = made.task.schema
    known = present.has_table(made.schema.name, schema=schema)
    if known and (found := _read(connection, made)) is not None:
        upgrade(found)
        _check_columns(connection, made)
        return False
    if present.has_table(made.task.name, schema=schema):
        _check_columns(connection, made)
    made.task.metadata.create_all(connection, made.all())
    view, version = extras(made)
    present.clear_cache()
    if VIEW not in present.get_view_names(schema=schema):
        connection.execute(view)
    if _read(connection, made) is None:
        connection.execute(version)
    return True


def check_encoding(connection: Connection) -> None:
    """Raise LedgerUnsuitable for a PostgreSQL database that takes any bytes for text.

    One row that is no UTF-8 would make a query fail, with all its rows.
    """
    if connection.dialect.name != "postgresql":
        return
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
    if encoding in {"SQL_ASCII", b"SQL_ASCII"}:
        raise LedgerUnsuitable(
            "the encoding of this database is SQL_ASCII, which takes any bytes for text: give the "
            "ledger a database that was created with ENCODING 'UTF8'"
        )


def upgrade(found: Schema) -> None:
    """Bring the tables of an earlier version to this one, in the transaction of `create`.

    Version 1 is the first, so there is no step yet. A change of the tables raises VERSION and adds
    its step here: the statements that bring the tables from the version before to the new one, and
    last the new number in `expirebridge_schema`. MySQL cannot roll DDL back, so a step that was
    interrupted must be able to run again.

    Raises LedgerUnsuitable for a version that this expirebridge does not know.
    """
    check_version(found)


def find(connection: Connection, made: Tables) -> Schema:
    """Read which tables there are. Raises LedgerUnsuitable unless they can be used.

    In PostgreSQL the transaction is aborted if they are missing.
    """
    try:
        found = _read(connection, made)
    except DBAPIError as error:
        if is_missing(error):
            raise missing(made) from error
        raise
    return checked(found, made)


def missing(made: Tables) -> LedgerUnsuitable:
    """There are no tables."""
    return LedgerUnsuitable(
        f"there is no table {made.schema.fullname} in this database: is it the ledger's? "
        "`expirebridge ledger create` creates the tables"
    )


def checked(found: Schema | None, made: Tables) -> Schema:
    """Return what was read of the tables. Raises LedgerUnsuitable unless they can be used."""
    if found is None:
        raise LedgerUnsuitable(
            f"the table {made.schema.fullname} is empty: `expirebridge ledger create` completes it"
        )
    check_version(found)
    return found


def check_version(found: Schema) -> None:
    """Raise LedgerUnsuitable unless these are the tables that this expirebridge knows."""
    if found.version > VERSION:
        raise LedgerUnsuitable(
            f"the ledger's tables are of version {found.version}, and this expirebridge knows "
            f"{VERSION}: upgrade expirebridge"
        )
    if found.version < VERSION:
        raise LedgerUnsuitable(
            f"the ledger's tables are of version {found.version}, which this expirebridge "
            f"does not know: it needs {VERSION}"
        )


def _read(connection: Connection, made: Tables) -> Schema | None:
    row = connection.execute(
        select(made.schema.c.version, made.schema.c.identity).order_by(made.schema.c.version.desc())
    ).first()
    return None if row is None else Schema(version=row.version, identity=row.identity)


def _check_columns(connection: Connection, made: Tables) -> None:
    """Raise LedgerUnsuitable unless the table has the columns of this version."""
    columns = inspect(connection).get_columns(made.task.name, schema=made.task.schema)
    missing = {column.name for column in made.task.columns} - {one["name"] for one in columns}
    if missing:
        raise other_table(made, f"it lacks {', '.join(sorted(missing))}")


def other_table(made: Tables, fault: str) -> LedgerUnsuitable:
    """There is a table of this name that this expirebridge cannot use."""
    return LedgerUnsuitable(
        f"there is a table {made.task.fullname} that is not the ledger's, or that an expirebridge "
        f"before the first release has made: {fault}. Drop the ledger's tables; `expirebridge "
        "ledger create` creates them anew"
    )


# Which database holds them.

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
    return f"sqlite {Path(path).stat().st_ino}" if path else "sqlite :memory:"
