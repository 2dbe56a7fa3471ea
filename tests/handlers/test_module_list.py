"""Handlers whose modules a function lists, in place of a folder."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from expirebridge.errors import HandlersError, InvalidTask
from expirebridge.handlers import Registry, name_of, watched
from expirebridge.handlers.aliases import inner_name

LISTING = """
def modules():
    inner = {"listed_shop.inner.mail": "shop/mail"}
    return {"listed_shop.orders": "shop", **inner, "listed_alone": "a"}
"""
PLACE = "listed_shop.listing:modules"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in {
        "listed_shop/__init__.py": "",
        "listed_shop/listing.py": LISTING,
        "listed_shop/orders.py": "def rate(order): pass\ndef _hidden(): pass",
        "listed_shop/inner/__init__.py": "",
        "listed_shop/inner/mail.py": "async def send(): pass",
        "listed_shop/other.py": "def helper(): pass",
        "listed_alone.py": "def do(): pass",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    yield tmp_path
    for name in list(sys.modules):
        if name.startswith("listed_"):
            del sys.modules[name]


def test_the_functions_of_listed_modules_are_handlers(package: Path) -> None:
    names = [one.name for one in Registry.load(PLACE)]
    assert names == ["a.do", "shop.rate", "shop/mail.send"]


def test_a_function_is_named_by_its_module(package: Path) -> None:
    Registry.load(PLACE)
    orders, other = sys.modules["listed_shop.orders"], __import__("listed_shop.other").other
    assert name_of(orders.rate, PLACE) == "shop.rate"
    with pytest.raises(InvalidTask, match="only public functions"):
        name_of(orders._hidden, PLACE)
    with pytest.raises(InvalidTask, match=r"listed_shop\.other is no module of handlers; those"):
        name_of(other.helper, PLACE)


def test_the_name_that_python_has_leads_to_that_of_the_handler(package: Path) -> None:
    assert inner_name("listed_shop.inner.mail.send", PLACE) == "shop/mail.send"
    assert inner_name("listed_shop.other.helper", PLACE) is None


def test_a_change_in_an_outermost_package_concerns_them(package: Path) -> None:
    assert watched(PLACE) == [package / "listed_alone.py", package / "listed_shop"]


@pytest.mark.parametrize("place", ["listed_shop.nothing:modules", "listed_shop.listing:nothing"])
def test_a_function_that_is_not_there(package: Path, place: str) -> None:
    with pytest.raises(HandlersError, match=f"are listed by {place}, which cannot be imported"):
        Registry.load(place)


def test_a_module_that_does_not_import_is_named_with_its_error(package: Path) -> None:
    (package / "listed_shop/orders.py").write_text("1 / 0")
    with pytest.raises(HandlersError, match=r"orders\.py does not import:\n(.*\n)+ZeroDivision"):
        Registry.load(PLACE)


def test_a_series_of_a_function_that_is_no_handler_is_refused(package: Path) -> None:
    (package / "listed_shop/orders.py").write_text(
        "from expirebridge import every\n@every('1h')\ndef _clean(): pass"
    )
    with pytest.raises(HandlersError, match="@every marks it, but it is not a handler"):
        Registry.load(PLACE)
