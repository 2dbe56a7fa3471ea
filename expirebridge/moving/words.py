"""The words of the command about moving tasks elsewhere."""

from collections.abc import Mapping

from expirebridge.cli.words import Word

WORDS: Mapping[str, Word] = {
    "move": Word("Moving", 10, "moving.command.move"),
    "export": Word("Moving", 20, "moving.export_command.export"),
    "import": Word("Moving", 30, "moving.import_command.import_"),
}
