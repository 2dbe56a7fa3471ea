"""The words of the command about other clients."""

from collections.abc import Mapping

from expirebridge.cli.words import Word

WORDS: Mapping[str, Word] = {
    "functions": Word("Other languages", 20, "foreign.command.group"),
}
