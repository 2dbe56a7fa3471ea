"""The words of the command about listeners with different code."""

from collections.abc import Mapping

from expirebridge.cli.words import Word

WORDS: Mapping[str, Word] = {
    "compat": Word("Operating", 90, "fleet.command.compat"),
}
