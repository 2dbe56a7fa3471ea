"""The words of the command about sealed arguments."""

from collections.abc import Mapping

from expirebridge.cli.words import Word

WORDS: Mapping[str, Word] = {
    "reseal": Word("Operating", 100, "sealing.command.reseal"),
}
