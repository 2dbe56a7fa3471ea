"""The words of the command about limits."""

from collections.abc import Mapping

from expirebridge.cli.words import Word

WORDS: Mapping[str, Word] = {
    "limits": Word("Looking", 40, "limits.command.limits"),
    "let-pass": Word("Operating", 10, "limits.command.let_pass"),
    "weight": Word("Operating", 20, "limits.command.weight"),
}
