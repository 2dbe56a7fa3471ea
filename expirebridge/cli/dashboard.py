"""The command that runs the dashboard in a process of its own."""

import os
from typing import Annotated

import typer

from expirebridge.cli.options import LedgerName, LedgerUrl, Prefix, Url, refuse_password
from expirebridge.cli.output import print_line
from expirebridge.errors import InvalidSetting

TOKEN = "EXPIREBRIDGE_DASHBOARD_TOKEN"  # noqa: S105 - its name, not the token
USERS = "EXPIREBRIDGE_DASHBOARD_USERS"


def dashboard(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port.")] = 8321,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show tasks, but change none.")
    ] = False,
    no_arguments: Annotated[
        bool,
        typer.Option("--no-arguments", help="Never show arguments, results or errors."),
    ] = False,
    root_path: Annotated[
        str, typer.Option(help="The path under which a proxy serves it, such as /tasks.")
    ] = "",
    url: Url = None,
    prefix: Prefix = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
) -> None:
    """Show tasks and listeners in the browser.

    Runs until SIGTERM or Ctrl-C. If other machines can reach the address, users must sign in: set
    EXPIREBRIDGE_DASHBOARD_TOKEN to a secret, or EXPIREBRIDGE_DASHBOARD_USERS to name:password, with
    spaces between users.

    Example: expirebridge dashboard --port 8321
    """
    try:
        # An extra: all other commands work without it.
        import uvicorn  # noqa: PLC0415

        from expirebridge import web  # noqa: PLC0415
        from expirebridge.web.http_connection import Connection  # noqa: PLC0415
    except ImportError as missing:
        raise InvalidSetting(
            f"the dashboard needs {missing.name}: pip install 'expirebridge[web]'"
        ) from missing
    refuse_password(ledger)
    users = dict(_user(word) for word in os.environ.get(USERS, "").split())
    token = os.environ.get(TOKEN) or None
    credentials = web.Credentials(token=token, users=users) if token or users else None
    loopback = web.is_loopback(host)
    if credentials is None and not loopback:
        raise InvalidSetting(
            f"host={host!r}: anyone could use it; set {TOKEN} to a secret first, or {USERS}"
        )
    application = web.app(
        url, prefix=prefix, ledger=ledger, ledger_name=ledger_name, actions=not read_only,
        credentials=credentials, redact=web.without_arguments if no_arguments else None,
        loopback_only=loopback and credentials is None,
    )  # fmt: skip
    served = web.under(application, root_path)
    shown = f"[{host}]" if ":" in host else host
    print_line(f"http://{shown}:{port}{root_path.rstrip('/')}/")
    # Without this variable uvicorn would trust whatever connects from this machine.
    trusted = os.environ.get("FORWARDED_ALLOW_IPS", "")
    uvicorn.run(
        served, host=host, port=port, log_level="warning", proxy_headers=bool(trusted),
        forwarded_allow_ips=trusted, server_header=False, timeout_graceful_shutdown=1,
        http=Connection, ws="none",
    )  # fmt: skip


def _user(word: str) -> tuple[str, str]:
    name, colon, password = word.partition(":")
    if not colon or not name or not password:
        raise InvalidSetting(f"{USERS}: write name:password, with spaces between users")
    return name, password
