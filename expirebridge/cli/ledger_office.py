"""The way of the ledger's commands to its database and to the server at once."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from expirebridge.cli.ledger_options import extra_is_there, settings_of
from expirebridge.cli.stats import store_of
from expirebridge.settings import Settings
from expirebridge.store.partitions import Partitions

if TYPE_CHECKING:
    from expirebridge.ledger.partition import Office


@contextmanager
def opened(
    url: str | None, prefix: str | None, ledger: str | None, ledger_name: str | None
) -> "Iterator[tuple[Partitions, Office]]":
    """The server and the ledger of a command's options, closed in the end."""
    with extra_is_there():
        from expirebridge.ledger.partition import Office  # noqa: PLC0415
    redis = Settings.read(url=url, prefix=prefix)
    with closing(store_of(redis)) as server:
        settings = replace(settings_of(ledger, ledger_name), url=redis.url, prefix=redis.prefix)
        with closing(Office(settings)) as office:
            yield server, office
