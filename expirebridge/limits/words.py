"""The words of the command about limits and holds."""

from collections.abc import Mapping

from expirebridge.cli.words import Word

WORDS: Mapping[str, Word] = {
    "limits": Word("Looking", 40, "limits.command.limits"),
    "let-pass": Word("Operating", 10, "limits.command.let_pass"),
    "limit": Word("Operating", 15, "limits.command.limit"),
    "weight": Word("Operating", 20, "limits.command.weight"),
    "hold": Word("Operating", 50, "limits.command.hold"),
    "release": Word("Operating", 60, "limits.command.release"),
    "holds": Word("Operating", 70, "limits.command.holds"),
}
