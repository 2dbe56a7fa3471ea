"""Settings: given, from the environment, or the defaults."""

import math
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from expirebridge.errors import InvalidSetting
from expirebridge.settings import (
    DEFAULT_URL,
    VARIABLES,
    Doorbells,
    Settings,
    named_url,
    warn_of_variables,
)
from expirebridge.task import framework
from tests.kit.cases import each
from tests.kit.logs import Log
from tests.kit.private_keys import K1

URL = "redis://elsewhere:6380/2"


@pytest.fixture(autouse=True)
def _nothing_warned_of() -> None:
    warn_of_variables.cache_clear()


def test_without_anything_the_defaults_hold() -> None:
    assert Settings.read() == Settings()
    assert Settings().url == DEFAULT_URL == "redis://localhost:6379/1"
    assert Settings().tasks == Path("tasks")
    assert Settings().doorbell is Doorbells.BOTH


def test_the_environment_goes_before_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_URL", URL)
    monkeypatch.setenv("EXPIREBRIDGE_PREFIX", "{shop}tasks")
    monkeypatch.setenv("EXPIREBRIDGE_TASKS", "/srv/jobs")
    monkeypatch.setenv("EXPIREBRIDGE_APP_DIR", "/srv")
    assert Settings.read() == Settings(
        url=URL, prefix="{shop}tasks", tasks=Path("/srv/jobs"), app_dir=Path("/srv")
    )


OF_SETTINGS: dict[str, tuple[str, Any]] = {
    "url": (URL, URL),
    "prefix": ("p", "p"),
    "ledger": ("sqlite:///a.db", "sqlite:///a.db"),
    "ledger_name": ("shop", "shop"),
    "ledger_keep": ("7d", 7 * 86400.0),
    "ledger_horizon": ("1d", 86400.0),
    "tasks": ("jobs", Path("jobs")),
    "app_dir": ("/srv", Path("/srv")),
    "only_marked": ("yes", True),
    "functions": ("mail.*,a.b", ("mail.*", "a.b")),
    "codec": ("a.b:c", "a.b:c"),
    "keys": (K1, K1),
    "concurrency": ("7", 7),
    "processes": ("2", 2),
    "process_memory": ("512m", 512 * 1024**2),
    "doorbell": ("clock", Doorbells.CLOCK),
    "lease": ("20", 20.0),
    "grace": ("2m", 120.0),
    "timeout": ("90s", 90.0),
    "keep_succeeded": ("2h", 7200.0),
    "keep_succeeded_count": ("50", 50),
    "keep_failed": ("60d", 60 * 86400.0),
}
"""Each setting as the environment says it, and as it is read."""


def test_each_setting_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert OF_SETTINGS.keys() == {field.name for field in fields(Settings)}
    for name, (text, _) in OF_SETTINGS.items():
        monkeypatch.setenv(f"EXPIREBRIDGE_{name.upper()}", text)
    settings = Settings.read()
    assert {name: getattr(settings, name) for name in OF_SETTINGS} == {
        name: value for name, (_, value) in OF_SETTINGS.items()
    }


@pytest.mark.parametrize("name", ["CONCURRENCY", "LEASE", "TIMEOUT", "DOORBELL", "KEEP_FAILED"])
def test_a_bad_value_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(f"EXPIREBRIDGE_{name}", "x")
    with pytest.raises(InvalidSetting, match=f"^EXPIREBRIDGE_{name}=x: "):
        Settings.read()


def test_variables_that_are_no_settings_are_named_once(
    monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    for name in (
        "CONCURENCY", "COLOUR", "LEASE", "DASHBOARD_TOKEN", "WORKER", "PORT", "SERVICE_HOST",
        "PORT_6379_TCP_ADDR", "DASHBOARD_SERVICE_PORT_HTTP",
    ):  # fmt: skip
        monkeypatch.setenv(f"EXPIREBRIDGE_{name}", "1")
    for _ in range(2):
        warn_of_variables()
    named = [fields["variable"] for fields in log.fields("unknown variable")]
    assert named == ["EXPIREBRIDGE_COLOUR", "EXPIREBRIDGE_CONCURENCY"]
    assert "did you mean 'EXPIREBRIDGE_CONCURRENCY'?" in log.text()


def test_what_tests_start_finds_no_variable_of_the_suite() -> None:
    """A command would warn of it, on the stderr that its test expects to be empty."""
    assert [name for name in os.environ if name.startswith(VARIABLES)] == []


def test_the_ledger_and_its_name_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (Settings().ledger, Settings().ledger_name) == (None, "default")
    monkeypatch.setenv("EXPIREBRIDGE_LEDGER", "postgresql://shop:hunter2@db/shop")
    monkeypatch.setenv("EXPIREBRIDGE_LEDGER_NAME", "shop")
    settings = Settings.read()
    assert settings.ledger == "postgresql://shop:hunter2@db/shop"
    assert settings.ledger_name == "shop"
    assert "hunter2" not in repr(settings)


def test_how_long_rows_are_kept_is_a_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().ledger_keep == 30 * 86400
    monkeypatch.setenv("EXPIREBRIDGE_LEDGER_KEEP", "36h")
    assert Settings.read().ledger_keep == 36 * 3600
    monkeypatch.setenv("EXPIREBRIDGE_LEDGER_KEEP", "long")
    with pytest.raises(InvalidSetting, match="EXPIREBRIDGE_LEDGER_KEEP=long: write it like"):
        Settings.read()


@each("name", ["", "a b", "a" * 65, "Ä", 7])
def test_a_ledger_has_a_plain_name(name: Any) -> None:
    with pytest.raises(InvalidSetting, match="ledger_name"):
        Settings(ledger_name=name)


def test_what_is_given_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_URL", "redis://unused")
    monkeypatch.setenv("EXPIREBRIDGE_TASKS", "unused")
    assert Settings.read(url=URL, tasks="jobs") == Settings(url=URL, tasks=Path("jobs"))


def test_none_means_that_nothing_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_URL", URL)
    assert Settings.read(url=None, tasks=None, lease=None) == Settings(url=URL)


def test_an_empty_variable_counts_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_URL", "")
    monkeypatch.setenv("EXPIREBRIDGE_TASKS", "")
    assert Settings.read() == Settings()


def test_a_setting_may_be_at_its_limit() -> None:
    Settings(
        concurrency=1, lease=0.5, grace=0, timeout=0.001,
        keep_succeeded=15, keep_succeeded_count=0, keep_failed=15,
    )  # fmt: skip


@each(
    ("name", "value"),
    [
        ("concurrency", 0),
        ("concurrency", -1),
        ("lease", 0.4),
        ("lease", math.nan),
        ("grace", -1),
        ("grace", math.nan),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", math.nan),
        ("keep_succeeded", 14.9),
        ("keep_failed", 14.9),
        ("keep_succeeded_count", -1),
        ("prefix", ""),
        ("prefix", "a?b"),
        # These go to the server in whole milliseconds.
        ("lease", math.inf),
        ("keep_succeeded", math.inf),
        ("keep_failed", math.inf),
        # Of the wrong kind, as from a configuration file.
        ("concurrency", "many"),
        ("lease", "ten"),
        ("grace", "2 s"),
        ("timeout", "10"),
        ("prefix", 5),
        ("doorbell", "bells"),
        ("doorbell", "events"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidSetting, match=f"^{name}={value!r}".replace("?", r"\?")):
        Settings.read(**{name: value})


@each(("text", "seconds"), [("2", 2), ("0.5", 0.5), ("2s", 2), ("1m30s", 90), ("750ms", 0.75)])
def test_lease_and_grace_are_seconds_or_text_with_units(text: str, seconds: float) -> None:
    settings = Settings.read(lease=text, grace=text)
    assert (settings.lease, settings.grace) == (seconds, seconds)


@each("doorbell", list(Doorbells))
def test_a_doorbell_may_be_given_by_its_name(doorbell: Doorbells) -> None:
    assert Settings.read(doorbell=str(doorbell)).doorbell is doorbell


@each(
    ("wrong", "right"),
    [
        ("conurrency", "concurrency"),
        ("leese", "lease"),
        ("task", "tasks"),
        ("keep_fail", "keep_failed"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_that_is_known(wrong: str, right: str) -> None:
    with pytest.raises(InvalidSetting, match=f"'{wrong}' is not a setting; did you mean '{right}'"):
        Settings.read(**{wrong: 1})


def test_an_unknown_name_like_no_other_is_refused_without_advice() -> None:
    with pytest.raises(InvalidSetting, match=r"^'zzz' is not a setting$"):
        Settings.read(zzz=None)


@pytest.mark.parametrize(
    ("text", "read"), [("1", True), ("true", True), ("Yes", True), ("0", False), ("no", False)]
)
def test_a_variable_switches_a_setting_on_or_off(
    monkeypatch: pytest.MonkeyPatch, text: str, read: bool
) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_ONLY_MARKED", text)
    assert Settings.read().only_marked is read


def test_a_variable_that_says_neither_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_ONLY_MARKED", "perhaps")
    wrong = r"^EXPIREBRIDGE_ONLY_MARKED=perhaps: one of 1, true, yes, 0"
    with pytest.raises(InvalidSetting, match=wrong):
        Settings.read()
    with pytest.raises(InvalidSetting, match=r"^only_marked='perhaps': one of"):
        Settings.read(only_marked="perhaps")


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("PROCESSES", "two", "it must be a whole number"),
        ("PROCESSES", "0", "it must be a whole number, at least 1"),
        ("PROCESS_MEMORY", "much", "give a size, such as 512m or 2g"),
        ("PROCESS_MEMORY", "63m", "it must be from 64m to 4194303t"),
        ("FUNCTIONS", "mail.*,", "a pattern is empty"),
    ],
)
def test_a_wrong_variable_is_named_with_what_it_holds(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, fault: str
) -> None:
    monkeypatch.setenv(f"EXPIREBRIDGE_{name}", text)
    with pytest.raises(InvalidSetting) as refused:
        Settings.read()
    assert str(refused.value) == f"EXPIREBRIDGE_{name}={text}: {fault}"
    given: dict[str, Any] = {name.lower(): text}
    with pytest.raises(InvalidSetting) as refused:
        Settings.read(**given)
    assert str(refused.value) == f"{name.lower()}={text!r}: {fault}", "what is given goes before it"


@each(
    ("given", "read"),
    [
        ("mail.*", ("mail.*",)),
        ("mail.*, orders.rate", ("mail.*", "orders.rate")),
        (["mail.*,orders.rate", "shop/*"], ("mail.*", "orders.rate", "shop/*")),
        ((), ()),
    ],
)
def test_patterns_of_functions_are_read_from_texts(given: Any, read: tuple[str, ...]) -> None:
    assert Settings.read(functions=given).functions == read


def test_a_variable_holds_patterns_of_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_FUNCTIONS", "mail.*,orders.rate")
    assert Settings.read().functions == ("mail.*", "orders.rate")
    assert Settings.read(functions=["shop/*"]).functions == ("shop/*",)


@each("given", [[""], "mail.*,", ",", ["mail.*", " "], 5, [5], {"mail.*": 1}])
def test_patterns_of_functions_that_cannot_be_are_refused(given: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"^functions="):
        Settings.read(functions=given)


@pytest.fixture
def of_project(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The default settings of the process's project."""
    found: dict[str, Any] = {}
    surround = framework.surrounded
    described = framework.Framework(
        defaults=lambda: found, surround=surround, function_for=lambda *_: None, hooks=tuple
    )
    monkeypatch.setattr(framework, "_registered", described)
    return found


def test_the_project_goes_before_the_defaults_only(
    of_project: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_project |= {"url": URL, "prefix": "shop", "concurrency": 7, "keep_failed": "2d"}
    assert Settings.read() == Settings(
        url=URL, prefix="shop", concurrency=7, keep_failed=2 * 86400.0
    )
    assert named_url() == URL
    monkeypatch.setenv("EXPIREBRIDGE_URL", "redis://environment/1")
    monkeypatch.setenv("EXPIREBRIDGE_PREFIX", "environment")
    read = Settings.read(prefix="argument", concurrency=3)
    assert (read.url, read.prefix, read.concurrency) == ("redis://environment/1", "argument", 3)
    assert named_url() == "redis://environment/1"


def test_what_the_project_says_wrongly_is_named(of_project: dict[str, Any]) -> None:
    of_project["concurrency"] = 0
    with pytest.raises(InvalidSetting, match=r"EXPIREBRIDGE\['CONCURRENCY'\]=0: it must be"):
        Settings.read()
    with pytest.raises(InvalidSetting, match=r"^lease=0: it must be"):
        Settings.read(concurrency=1, lease=0)


@each(
    ("given", "place"),
    [
        ("shop.listing:modules", "shop.listing:modules"),
        ("shop:modules", "shop:modules"),
        ("tasks", Path("tasks")),
        ("/srv/a:b/tasks", Path("/srv/a:b/tasks")),
        (Path("shop:modules"), "shop:modules"),
        ("", Path()),
    ],
)
def test_handlers_are_in_a_folder_or_listed_by_a_function(
    given: str | Path, place: str | Path
) -> None:
    assert Settings.read(tasks=given).tasks == place
    assert Settings(tasks=given).tasks == place
