"""The words of the command about series."""

from collections.abc import Mapping

from expirebridge.cli.words import Word

WORDS: Mapping[str, Word] = {
    "series": Word("Tasks", 160, "series.command.group"),
}
