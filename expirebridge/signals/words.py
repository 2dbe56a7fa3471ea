"""The word of the command about signals."""

from collections.abc import Mapping

from expirebridge.cli.words import Word

WORDS: Mapping[str, Word] = {
    "signal": Word("Tasks", 125, "signals.command.signal"),
}
