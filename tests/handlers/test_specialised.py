"""A registry that is restricted to some functions, by patterns."""

import pytest

from expirebridge import handler
from expirebridge.errors import InvalidSetting
from expirebridge.handlers import Handler, Registry
from expirebridge.hooks import Event


@handler(aliases=["letters.post", "orders.ask"])
def send() -> None: ...


def other() -> None: ...


def tell(event: Event) -> None: ...


NAMES = ["mail.send", "mail.Send", "orders.rate", "orders.refund", "shop/eu/vat.file"]


@pytest.fixture
def registry() -> Registry:
    functions = {name: send if name == "mail.send" else other for name in NAMES}
    handlers = {name: Handler.of(name, function) for name, function in functions.items()}
    return Registry(handlers, hooks=[tell])


@pytest.mark.parametrize(
    ("patterns", "taken"),
    [
        (["mail.*"], {"mail.Send", "mail.send"}),
        (["mail.send"], {"mail.send"}),
        (["*.s*"], {"mail.send"}),
        (["*.[sS]end"], {"mail.Send", "mail.send"}),
        (["orders.r?te"], {"orders.rate"}),
        (["shop/*"], {"shop/eu/vat.file"}),
        (["mail.send", "orders.*"], {"mail.send", "orders.rate", "orders.refund"}),
        (["mail.send", "mail.*"], {"mail.Send", "mail.send"}),
        (["*"], set(NAMES)),
    ],
)
def test_patterns_choose_handlers_by_their_present_names(
    registry: Registry, patterns: list[str], taken: set[str]
) -> None:
    restricted = registry.only(patterns)
    assert {one.name for one in restricted} == taken
    assert (len(restricted), restricted.loaded) == (len(taken), len(NAMES))
    assert restricted.hooks == (tell,)
    for name in NAMES:
        assert (restricted.find(name) is not None) == (name in taken)


def test_a_handler_is_taken_under_all_its_names_or_none(registry: Registry) -> None:
    mail, orders = registry.only(["mail.send"]), registry.only(["orders.*"])
    assert set(mail.names()) == {"mail.send", "letters.post", "orders.ask"}
    # A former name in another module does not bring a handler to those who run that module.
    assert set(orders.names()) == {"orders.rate", "orders.refund"}


def test_it_can_be_restricted_further(registry: Registry) -> None:
    twice = registry.only(["mail.*"]).only(["*.send"])
    assert [one.name for one in twice] == ["mail.send"]
    assert twice.loaded == len(NAMES)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("mial.*", "no handler matches (did you mean 'mail.*'"),
        ("orders.rtae", "no handler matches (did you mean 'orders.rate'"),
        ("MAIL.*", "no handler matches"),
        ("xyz", "no handler matches"),
        ("mail", "no handler matches (did you mean 'mail.*'"),
        ("letters.*", "it matches only former names: give the present ones: mail.send"),
    ],
)
def test_a_pattern_that_matches_nothing_is_refused(
    registry: Registry, pattern: str, why: str
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        registry.only(["mail.*", pattern])
    assert str(caught.value).startswith(f"functions={pattern!r}: {why}")
