"""The words of the command about lateness."""

from collections.abc import Mapping

from expirebridge.cli.words import Word

WORDS: Mapping[str, Word] = {
    "forecast": Word("Looking", 50, "lateness.forecast_command.forecast"),
    "scale": Word("Looking", 60, "lateness.scale_command.scale"),
}
