"""The words of the command about groups."""

from collections.abc import Mapping

from expirebridge.cli.words import Word

WORDS: Mapping[str, Word] = {
    "groups": Word("Tasks", 150, "groups.command.group"),
}
