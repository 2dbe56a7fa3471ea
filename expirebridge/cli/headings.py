"""Help that lists commands below headings."""

from typing import Any

from typer.core import TyperGroup


class HeadedGroup(TyperGroup):
    """A group whose help lists its commands by their help panels.

    Typer shows panels only with rich's markup, which would read [server] and [default: ...] in
    the help as markup.
    """

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each panel, in the order of the commands."""
        longest = max(map(len, self.commands), default=0)
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.commands[name]
            text = command.get_short_help_str(formatter.width - longest - 6)
            sections.setdefault(command.rich_help_panel or "Commands", []).append(
                (name.ljust(longest), text)
            )
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)
