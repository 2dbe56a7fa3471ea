"""`@every`: what it declares, and what is refused where it stands, or when it is loaded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from expirebridge import every, handler
from expirebridge.errors import HandlersError, InvalidTask
from expirebridge.handlers import Registry
from expirebridge.series.schedule import SeriesSpec
from tests.kit.modules import forgotten, put


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty handlers' folder. Its name is new: modules are imported under it."""
    folder = tmp_path / f"handlers_{uuid4().hex}"
    folder.mkdir()
    with forgotten(tmp_path):
        yield folder


IMPORTS = "from expirebridge import every, handler\n"


def loaded(folder: Path, source: str, *, file: str = "reports.py", **options: Any) -> Registry:
    put(folder, file, IMPORTS + source)
    return Registry.load(folder, **options)


def shown(series: tuple[SeriesSpec, ...]) -> list[tuple[str, str, bytes, str]]:
    return [(one.id, one.func, one.args, str(one.schedule)) for one in series]


def test_a_series_is_found_with_its_handler(folder: Path) -> None:
    registry = loaded(
        folder,
        """
@every("30 2 * * *", tz="Europe/Berlin", id="nightly", retry=[15], timeout="1m", tags=["night"])
def send(): ...
""",
    )
    [series] = registry.series
    assert (series.id, series.func, series.args) == ("nightly", "reports.send", b"[]")
    assert str(series.schedule) == "30 2 * * * Europe/Berlin"
    assert series.fields == {"retry": "[15.0]", "timeout": 60.0, "tags": "night"}
    found = registry.find("reports.send")
    assert found is not None
    assert found.is_declared


def test_a_handler_without_a_series_declares_none(folder: Path) -> None:
    assert loaded(folder, "def send(): ...").series == ()


def test_the_name_of_the_handler_is_the_id_of_a_series_without_one(folder: Path) -> None:
    source = "@every('15m')\ndef send(): ..."
    loaded(folder, source)
    series = loaded(folder, source, file="daily/reports.py").series
    assert [one.id for one in series] == ["daily.reports.send", "reports.send"]


def test_a_function_can_have_several_series(folder: Path) -> None:
    registry = loaded(
        folder,
        """
@every("1h", id="hourly", args=[7])
@handler(retry=[])
@every("@daily", id="daily", kwargs={"customer": 8})
def send(customer): ...
""",
    )
    assert shown(registry.series) == [
        ("daily", "reports.send", b'{"customer":8}', "0 0 * * * UTC"),
        ("hourly", "reports.send", b"[7]", "every 1h"),
    ]
    found = registry.find("reports.send")
    assert found is not None
    assert found.retry is not None


@pytest.mark.parametrize(
    "decorators", ["@every('1h')\n@handler(timeout=5)", "@handler(timeout=5)\n@every('1h')"]
)
def test_both_decorators_stand_in_any_order(folder: Path, decorators: str) -> None:
    registry = loaded(folder, f"{decorators}\ndef send(): ...", only_marked=True)
    [found] = registry
    assert found.timeout == 5
    assert len(registry.series) == 1


def test_a_wrapped_function_keeps_its_series(folder: Path) -> None:
    source = """
import functools

def _logged(function):
    @functools.wraps(function)
    def inner(): ...
    return inner

@_logged
@every("1h", id="inner")
@every("2h", id="outer")
def send(): ...
"""
    assert [one.id for one in loaded(folder, source).series] == ["inner", "outer"]


def test_a_function_with_two_names_has_its_series_once(folder: Path) -> None:
    source = "@every('1h')\ndef send(): ...\na_second_name = send"
    registry = loaded(folder, source)
    assert [one.func for one in registry.series] == ["reports.send"]
    # A listener for the second name alone must not declare another series.
    assert registry.only(["reports.a_second_name"]).series == ()
    assert registry.only(["reports.s*"]).series == registry.series


def test_typed_arguments_are_converted(folder: Path) -> None:
    source = """
from datetime import date

@handler(typed=True)
@every("1h", args=[date(2026, 1, 2)])
def send(day: date): ...
"""
    assert loaded(folder, source).series[0].args == b'["2026-01-02"]'


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            "@every('1h', id='x')\ndef a(): ...\n@every('2h', id='x')\ndef b(): ...",
            r"'x' is declared twice: by reports\.a \(.*, line 2\), every 1h; and by reports\.b "
            r"\(.*, line 4\), every 2h",
        ),
        (
            "@every('1h', id='x')\ndef a(): ...\n@every('1h', id='x')\ndef b(): ...",
            "'x' is declared twice",
        ),
        (
            "@every('1h')\n@every('2h')\ndef a(): ...",
            r"reports\.a \(.*\): two @every have the id 'reports\.a': every 2h and every 1h",
        ),
        ("@every('1h')\ndef send(to): ...", r"reports\.send .*missing a required argument: 'to'"),
        ("@every('1h', args=[1])\ndef send(): ...", "too many positional arguments"),
        (
            "@every('1h', args=[{1, 2}])\ndef send(to): ...",
            r"args\[0\] = \{1, 2\}: JSON has no set",
        ),
        ("@every('1h')\ndef _send(): ...", r"_send \(.*\): @every marks it, but it is not a handl"),
        ("HANDLERS = []\n@every('1h')\ndef send(): ...", "it is not a handler"),
        (f"@every('1h')\ndef {'s' * 120}(): ...", "a series has at most 114"),
        ("@every('1h')\ndef send():\n    yield", "is a generator function"),
        ("@every('1m')\nclass Send: ...", "@every marks <class .*, which is not a function"),
        ("@every\ndef send(): ...", "@every: say when, such as"),
    ],
)
def test_a_series_that_cannot_be_stops_the_loading(folder: Path, source: str, problem: str) -> None:
    with pytest.raises(HandlersError, match=problem):
        loaded(folder, source)


@pytest.mark.parametrize("file", ["_private.py", "__init__.py"])
def test_a_series_in_a_module_without_handlers_is_not_lost(folder: Path, file: str) -> None:
    put(folder, file, f"{IMPORTS}@every('1h')\ndef send(): ...")
    import_it = f"import {folder.name}._private" if file == "_private.py" else ""
    with pytest.raises(HandlersError, match=r"send .*it is not a handler"):
        loaded(folder, f"{import_it}\ndef other(): ...")


def test_one_declaration_that_comes_twice_is_one(folder: Path) -> None:
    source = "@every('1h', id='x')\n@every('1h', id='x')\ndef send(): ..."
    assert len(loaded(folder, source).series) == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"id": "a b"}, "id='a b'"),
        ({"id": "x" * 115}, "a series has at most 114"),
        ({"tz": "Europe/Berlin"}, "an interval has no time zone"),
        ({"retry": "1m"}, "retry='1m'"),
        ({"timeout": 0}, "timeout=0"),
        ({"misfire": "skip"}, "add when a task is late"),
        ({"args": "text"}, "give a list of positional arguments"),
        ({"kwargs": [1]}, "give a mapping"),
    ],
)
def test_what_a_decorator_is_given_is_checked_at_once(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidTask, match=problem):
        every("15m", **options)


def test_a_decorated_function_is_the_function() -> None:
    def send(to: str) -> str:
        return to

    marked = every("15m", args=["ann"])(handler(retry=[])(send))
    assert marked is send
    assert marked("bob") == "bob"
