"""The words of the command, and where its help lists them: those of no capability.

A capability has its own in its module `words`. To read them imports no command.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

PANELS = ("Tasks", "Running", "Looking", "Operating", "Moving", "Other languages")
"""The headings of the help, in their order."""


class Word(NamedTuple):
    """A command, or a group of them."""

    panel: str
    """Its heading."""
    order: int
    """Where it is below that, the lowest first."""
    function: str
    """The module and name of what is called, or of the group."""


class GivesWords(Protocol):
    """A module with words of the command."""

    WORDS: Mapping[str, Word]


WORDS: Mapping[str, Word] = {
    "make": Word("Tasks", 10, "cli.tasks.make"),
    "watch": Word("Tasks", 20, "cli.tasks.watch"),
    "beat": Word("Tasks", 30, "cli.tasks.beat"),
    "show": Word("Tasks", 40, "cli.tasks.show"),
    "why": Word("Tasks", 50, "cli.tasks.why"),
    "list": Word("Tasks", 60, "cli.tasks.list_"),
    "cancel": Word("Tasks", 70, "cli.tasks.cancel"),
    "reschedule": Word("Tasks", 80, "cli.tasks.reschedule"),
    "put-off": Word("Tasks", 90, "cli.tasks.put_off"),
    "pause": Word("Tasks", 100, "cli.tasks.pause"),
    "resume": Word("Tasks", 110, "cli.tasks.resume"),
    "run": Word("Tasks", 120, "cli.tasks.run"),
    "edit": Word("Tasks", 130, "cli.edit.edit"),
    "failed": Word("Tasks", 140, "cli.failed.group"),
    "listen": Word("Running", 10, "cli.listen.listen"),
    "handlers": Word("Running", 20, "cli.handlers.handlers"),
    "server": Word("Running", 30, "cli.server.server"),
    "init": Word("Running", 40, "cli.init.init"),
    "demo": Word("Running", 50, "cli.demo.demo"),
    "count": Word("Looking", 10, "cli.tasks.count"),
    "stats": Word("Looking", 20, "cli.stats.stats"),
    "top": Word("Looking", 30, "cli.stats.top"),
    "dashboard": Word("Looking", 70, "cli.dashboard.dashboard"),
    "doctor": Word("Operating", 30, "cli.doctor.doctor"),
    "check": Word("Operating", 40, "cli.doctor.check"),
    "acl": Word("Operating", 80, "cli.acl.acl"),
    "partitions": Word("Operating", 110, "cli.partitions.group"),
    "key": Word("Other languages", 10, "cli.tasks.key"),
}
