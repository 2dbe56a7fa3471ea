"""The commands that move tasks: export, and import."""

import typer

from expirebridge.cli.export import export
from expirebridge.cli.importing import import_


def add_to(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("export")(export)
    app.command("import")(import_)
