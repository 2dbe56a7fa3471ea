"""docs/reference/python-api.md: every public name is on it."""

import re
from dataclasses import fields
from pathlib import Path

import expirebridge
from expirebridge import Bridge, Settings, events
from expirebridge.capabilities import given
from expirebridge.settings import VARIABLES
from expirebridge.task import explaining, reasons
from expirebridge.task.missing_ability import MissingAbility

PAGE = (Path(__file__).parents[2] / "docs/reference/python-api.md").read_text(encoding="utf-8")
WORDS = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]+`", PAGE))))


def test_the_public_names_are_there() -> None:
    assert set(expirebridge.__all__) <= WORDS


def test_the_methods_of_a_bridge_are_there() -> None:
    assert {name for name in dir(Bridge) if not name.startswith("_")} - {"close"} <= WORDS


def test_the_events_are_there() -> None:
    classes = {name for name, value in vars(events).items() if hasattr(value, "__match_args__")}
    here = {name for name in classes if getattr(events, name).__module__ == events.__name__}
    assert {"Started", "Ended"} <= here <= WORDS


def test_the_settings_are_there() -> None:
    names = {field.name for field in fields(Settings)}
    assert names | {VARIABLES + name.upper() for name in names} <= WORDS


def test_the_codes_of_reasons_are_there() -> None:
    section = PAGE.partition("\n### Reasons\n")[2].partition("\n## ")[0]
    sources = [explaining, reasons, *given("explain"), *given("remarks")]
    source = "".join(Path(one.__file__ or "").read_text(encoding="utf-8") for one in sources)
    codes = re.findall(
        r'(?:(?:reason|obstacle)\(\s*found, |code, text(?:, \w+)? = |code=)"([a-z-]+)"', source
    )
    assert {"slot", "full", "no-ttl", "rests", "failed"} <= {*codes}
    assert {*codes, *(one.value for one in MissingAbility)} == {
        *re.findall(r"`([a-z-]+)`", section)
    }
