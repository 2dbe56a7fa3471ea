"""The commands that move tasks: export, import, and move."""

import typer

from expirebridge.cli.export import export
from expirebridge.cli.importing import import_
from expirebridge.cli.move import move


def add_to(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("export")(export)
    app.command("import")(import_)
    app.command("move")(move)
