"""Constants that Lua and Python both have are the same in both."""

import re
from typing import Any

from expirebridge import settings
from expirebridge.ledger import calls as ledger
from expirebridge.ledger import series_ticks
from expirebridge.series import replies
from expirebridge.store.script_loader import SHIPPED
from expirebridge.task import durations, keys, new_task, reasons
from expirebridge.task.calls import inspection
from expirebridge.task.partitions import _TAGS
from tests.kit.lua import FUNCTIONS, SCRIPTS, SHARED
from tests.machine import model

FOREVER = 2**53 - 1
"""The last whole number that Lua reads exactly; in ms, later than any time."""

DAY = 86_400_000


def constants_in(text: str) -> dict[str, Any]:
    """The constants that a file defines with a number, a string or a list of them."""
    found = {}
    for names, values in re.findall(
        r"^local ([A-Z_]+(?:, [A-Z_]+)*) = (\{[^}]*\}|'[^'\n]*'|[^'{\n]*?)(?: *--.*)?$",
        text,
        re.MULTILINE,
    ):
        if values.startswith("{"):
            found[names] = re.findall(r"'([^']*)'", values) or number_list(values)
        elif values.startswith("'"):
            found[names] = values.strip("'")
        else:
            found |= dict(zip(names.split(", "), map(number, values.split(", ")), strict=False))
    return found


def number_list(values: str) -> list[int | None]:
    return [number(value) for value in values.strip("{} ").split(", ")]


def number(value: str) -> int | None:
    """The value of a product or a power of numbers, less a number; None if it is anything else."""
    if not re.fullmatch(r"[\d *^-]+", value):
        return None
    return int(eval(value.replace("^", "**")))  # noqa: S307 - digits and operators alone


BOTH = [
    ("include/gate", "MOST_DIRTY", ledger.MOST_DIRTY),
    ("include/series", "NEVER", replies.NEVER),
    ("include/series", "NEVER", series_ticks.NEVER),
    ("include/series", "NEVER", FOREVER),
    ("include/series", "SHOWN_OF_SERIES", list(replies._NAMES)),
    ("include/timer_edits", "WHILE_PAUSED", series_ticks.NEVER),
    ("include/timer_edits", "CHECK_PAUSED_AFTER", model.CHECK_PAUSED_AFTER * 1000),
    ("include/records", "LATE_EVENTS", settings.LEAST_KEPT * 1000),
    ("include/tally", "STEPS", list(inspection.STEPS)),
    ("include/records", "ERASED", "?" + keys.ERASED.decode()),
    ("include/format", "FIRST_TAG", "{" + _TAGS[:3] + "}"),
    ("include/fleet", "UNKNOWN_TIMEOUT", model.UNKNOWN_TIMEOUT * 1000),
    ("include/fleet", "UNKNOWN_TIMEOUT", DAY),  # as outcome.py says it: "for a day"
    ("include/claims", "LAPSES_UNTIL_ALONE", model.LAPSES_UNTIL_ALONE),
    ("include/claims", "LAPSES_UNTIL_ALONE", reasons.LAPSES_UNTIL_ALONE),
    ("sweep", "MAX_LAPSES", model.MAX_LAPSES),
    ("functions/include/checks", "LONGEST", durations.LONGEST * 1000),
    ("functions/include/checks", "MAX_ARGS", keys.MAX_ARGS),
    ("functions/include/checks", "MAX_ARGS_IN_KEY", keys.MAX_ARGS_IN_KEY),
    ("functions/include/checks", "MAX_FUNC", keys.MAX_FUNC),
    ("functions/make", "LONGEST_WINDOW", new_task.LONGEST_WINDOW),
    ("functions/cancel", "KEEP", settings.Settings.keep_succeeded * 1000),
]
"""The file, its constant, and what it is in Python."""


def test_a_constant_is_the_same_in_lua_and_in_python() -> None:
    for file, name, value in BOTH:
        is_function = file.startswith("functions/")
        text = (FUNCTIONS / f"{file}.lua").read_text() if is_function else SHIPPED.text(file)
        assert constants_in(text)[name] == value, (file, name)


def test_a_constant_stands_in_one_lua_file() -> None:
    """Two files that need the same limit share it, or they would drift apart."""
    found: dict[str, list[str]] = {}
    for path in (*SCRIPTS, *SHARED):
        for name, value in constants_in(path.read_text()).items():
            if isinstance(value, int) and value >= 5000:
                found.setdefault(name, []).append(path.stem)
    assert {name: files for name, files in found.items() if len(files) > 1} == {}
    assert "LATE_EVENTS" in found
