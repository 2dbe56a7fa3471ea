"""The meaning of a driver's error, also if SQLAlchemy or Django wrapped it."""

import re
from typing import Any, Final

_NO_COLUMN: Final = {"42703", 1054}
"""No such column: SQLSTATE of PostgreSQL, number of MySQL."""
_NO_COLUMN_SQLITE: Final = ("no such column", "has no column named")
_NO_TABLE: Final = {"42P01", "3F000", 1146} | _NO_COLUMN
"""No such table, column or schema: SQLSTATE of PostgreSQL, numbers of MySQL."""
_NO_TABLE_SQLITE: Final = ("no such table", *_NO_COLUMN_SQLITE)
_DUPLICATE_MYSQL: Final = 1062
_AWAY_MYSQL: Final = {2002, 2003, 2006, 2013, 2055, 1040, 1053}
"""No connection, a lost one, too many of them, a server that stops."""
_AWAY_SQLSTATES: Final = {"53300", "57P01", "57P02", "57P03"}
"""Of PostgreSQL: too many connections, a server that stops, one that starts or recovers."""
_LOCKED: Final = {"55P03", 1205}
"""Another transaction has a row locked: SQLSTATE of PostgreSQL, number of MySQL."""
_REFUSALS: Final = ("22", "23", "44", "45", "P0", "XX")
"""Classes of SQLSTATEs that are about a row: a value, a constraint, a trigger, a damaged row."""
_REFUSAL_MYSQL: Final = 1644
"""A trigger refused a row."""
_SQLSTATE: Final = re.compile(r"[0-9A-Z]{5}")


def driver_error(error: BaseException) -> BaseException:
    """The error of the driver itself."""
    wrapped = getattr(error, "orig", None)
    if wrapped is None and type(error).__module__ == "django.db.utils":
        wrapped = error.__cause__
    return wrapped if isinstance(wrapped, BaseException) else error


def reason_of(error: BaseException) -> str:
    """The first line of what the driver says: no statement, no parameters."""
    said = driver_error(error)
    text = str(said.args[-1]) if said.args else str(said)
    return text.strip().partition("\n")[0] or type(said).__name__


def _code_of(error: BaseException) -> Any:
    """A number of MySQL, or an SQLSTATE; the message of a driver that has neither."""
    said = driver_error(error)
    first = said.args[0] if said.args else None
    if isinstance(first, int):
        return first
    return getattr(said, "sqlstate", None) or getattr(said, "pgcode", None) or first


def is_missing(error: BaseException) -> bool:
    """Return whether a statement failed because a table or a column is missing."""
    code = _code_of(error)
    if isinstance(code, str) and any(text in code for text in _NO_TABLE_SQLITE):
        return True
    return code in _NO_TABLE


def lacks_column(error: BaseException) -> bool:
    """Return whether a statement failed because the table has not this column."""
    code = _code_of(error)
    if isinstance(code, str) and any(text in code for text in _NO_COLUMN_SQLITE):
        return True
    return code in _NO_COLUMN


def is_duplicate(error: BaseException) -> bool:
    """Return whether MySQL refused a row with a duplicate key."""
    return bool(_code_of(error) == _DUPLICATE_MYSQL)


def is_locked(error: BaseException) -> bool:
    """Return whether a statement waited too long for a lock of another transaction."""
    code = _code_of(error)
    return code in _LOCKED or (isinstance(code, str) and "is locked" in code)


def is_refusal(error: BaseException) -> bool:
    """Return whether the database, or its driver, refused a row for what is in it."""
    if isinstance(driver_error(error), UnicodeError):
        return True
    code = _code_of(error)
    if isinstance(code, str) and _SQLSTATE.fullmatch(code):
        return code.startswith(_REFUSALS)
    kind = type(driver_error(error)).__name__
    return code == _REFUSAL_MYSQL or kind in {"DataError", "IntegrityError"}


def is_unreachable(error: BaseException) -> bool:
    """Return whether the database did not answer: no connection, a broken or a forbidden one."""
    said = driver_error(error)
    code = _code_of(error)
    if isinstance(code, int):
        return code in _AWAY_MYSQL
    if isinstance(code, str) and _SQLSTATE.fullmatch(code):
        return code[:2] == "08" or code in _AWAY_SQLSTATES
    # Without a code it is what a client says by itself; SQLite has none, and its files are here.
    return type(said).__name__ == "OperationalError" and type(said).__module__ != "sqlite3"
