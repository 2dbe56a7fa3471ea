"""The words of the command about the ledger."""

from collections.abc import Mapping

from expirebridge.cli.words import Word

WORDS: Mapping[str, Word] = {
    "ledger": Word("Tasks", 170, "ledger.command.group"),
}
