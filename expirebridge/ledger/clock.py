"""SQL expressions that each dialect writes in its own way: the time, and a random text."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import BigInteger, String
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

# In PostgreSQL now() is when the transaction began. In MySQL UNIX_TIMESTAMP(NOW()) passes through
# the session's time zone, and its repeated hour.
_MYSQL_NOW = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)"
_NOW: Final = {
    "postgresql": "(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)",
    "sqlite": "(CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))",
    "mysql": _MYSQL_NOW,
    "mariadb": _MYSQL_NOW,
}
_RANDOM: Final = {
    "postgresql": "(replace(gen_random_uuid()::text, '-', ''))",
    "sqlite": "(lower(hex(randomblob(16))))",
    "mysql": "(replace(uuid(), '-', ''))",
    "mariadb": "(replace(uuid(), '-', ''))",
}


class NowMs(FunctionElement[int]):
    """The database's clock when the statement runs, in whole milliseconds since 1970."""

    type = BigInteger()
    inherit_cache = True
    name = "now_ms"


class RandomId(FunctionElement[str]):
    """A text of 32 hexadecimal digits that nothing else has: an id for a task."""

    type = String(32)
    inherit_cache = True
    name = "random_id"


_ahead: Callable[[], int] = int


def ahead() -> int:
    """Milliseconds that are added to the database's clock where the ticks of series are computed.

    0, but in tests: they move Redis's clock, and the times of ticks are compared with that.
    """
    return _ahead()


@contextmanager
def moved(by: Callable[[], int]) -> Iterator[None]:
    """While the block runs, `ahead` returns what this returns."""
    global _ahead  # noqa: PLW0603 - the one place that says how far tests moved the clock
    before, _ahead = _ahead, by
    try:
        yield
    finally:
        _ahead = before


@compiles(NowMs)
def _now(_: NowMs, compiler: SQLCompiler, **__: Any) -> str:
    return _NOW[compiler.dialect.name]


@compiles(RandomId)
def _random(_: RandomId, compiler: SQLCompiler, **__: Any) -> str:
    return _RANDOM[compiler.dialect.name]
