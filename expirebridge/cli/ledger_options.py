"""What the commands of the ledger share: their options, and the way to its database."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from expirebridge.errors import InvalidSetting
from expirebridge.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Connection

LedgerUrl = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="URL",
        help="The SQL database, without a password: that belongs into EXPIREBRIDGE_LEDGER.  "
        "[env var: EXPIREBRIDGE_LEDGER]",
        show_default=False,
    ),
]
LedgerName = Annotated[
    str | None,
    typer.Option(
        "--ledger-name",
        help="Which ledger.  [env var: EXPIREBRIDGE_LEDGER_NAME; default: default]",
        show_default=False,
    ),
]
LedgerKeep = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="How long rows of finished tasks are kept.  [env var: EXPIREBRIDGE_LEDGER_KEEP; "
        "default: 30d]",
        show_default=False,
    ),
]


@contextmanager
def extra_is_there() -> Iterator[None]:
    """Turn a missing package into an InvalidSetting that names the extra."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise InvalidSetting(str(missing)) from None


def settings_of(url: str | None, name: str | None) -> Settings:
    """The settings; a password must not stand where every user of the machine can read it."""
    refuse_password(url)
    settings = Settings.read(ledger=url, ledger_name=name)
    if settings.ledger is None:
        raise InvalidSetting("which database? Give --ledger, or set EXPIREBRIDGE_LEDGER")
    return settings


def refuse_password(url: str | None) -> None:
    """Raise InvalidSetting for a URL of the command line that holds a password."""
    if url is None:
        return
    with extra_is_there():
        from expirebridge.ledger.engine import read_url  # noqa: PLC0415
    if read_url(url).password is not None:
        raise InvalidSetting(
            "--ledger: others on this machine can read a command's arguments; put a URL with a "
            "password into EXPIREBRIDGE_LEDGER"
        )


@contextmanager
def connected(settings: Settings) -> "Iterator[Connection]":
    """A transaction in the ledger's database; what goes wrong there becomes a LedgerError."""
    from expirebridge.ledger import engine as engines  # noqa: PLC0415

    with engines.connected(settings.ledger or "") as connection:
        yield connection
