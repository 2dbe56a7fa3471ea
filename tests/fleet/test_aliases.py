"""Aliases: former names of functions and modules, under which tasks may still be waiting."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from expirebridge import handler
from expirebridge.errors import HandlersError, InvalidTask
from expirebridge.handlers import Handler, Registry, name_of
from tests.kit.modules import forgotten, put


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "renamed_"
    folder.mkdir()
    with forgotten(tmp_path):
        yield folder


def marked(**functions: list[str]) -> str:
    """A module with these functions, each with its aliases."""
    return "from expirebridge import handler\n" + "".join(
        f"@handler(aliases={aliases!r})\ndef {name}(): ...\n" for name, aliases in functions.items()
    )


def renames(folder: Path, mapping: object) -> Path:
    return put(folder, "__init__.py", f"ALIASES = {mapping!r}")


def aliases(folder: Path) -> Mapping[str, str]:
    """The present name for each alias."""
    registry = Registry.load(folder)
    return {name: one.name for name, one in registry.names().items() if name != one.name}


def test_a_function_is_found_by_its_aliases(folder: Path) -> None:
    put(folder, "mail.py", marked(send=["mail.send_old", "letters.post"], rate=[]))
    registry = Registry.load(folder)
    send = registry.find("mail.send")
    assert send is not None
    assert send.aliases == ("mail.send_old", "letters.post")
    assert registry.find("mail.send_old") is registry.find("letters.post") is send
    assert registry.find("mail.rate_old") is None
    # What is listed and counted is functions; every name is there, too.
    assert [one.name for one in registry] == ["mail.rate", "mail.send"]
    assert len(registry) == 2
    assert set(registry.names()) == {"mail.send", "mail.send_old", "letters.post", "mail.rate"}
    # A new task always gets the present name.
    assert name_of(send.function, folder) == "mail.send"


def test_an_alias_may_be_what_was_meant(folder: Path) -> None:
    put(folder, "mail.py", marked(send=["letters.post_to_all"]))
    assert Registry.load(folder).suggest("letters.post_to_al") == (
        " (did you mean 'letters.post_to_all'?)"
    )


def test_a_wrapped_function_keeps_its_aliases(folder: Path) -> None:
    put(folder, "mail.py", """
        import functools
        from expirebridge import handler
        def _logged(function):
            @functools.wraps(function)
            def wrapper(): return function()
            return wrapper
        @_logged
        @handler(aliases=["mail.send_old"])
        def send(): ...
        """)  # fmt: skip
    assert aliases(folder) == {"mail.send_old": "mail.send"}


def test_renames_are_of_functions_and_of_whole_modules(folder: Path) -> None:
    put(folder, "mail.py", marked(send=["mail.send_old"], rate=[]))
    put(folder, "shop/orders.py")
    renames(folder, {
        "mail_old": "mail", "orders": "shop/orders", "a/b.post": "mail.rate",
        "mail.rate_old": "mail.rate",
    })  # fmt: skip
    assert aliases(folder) == {
        "mail.send_old": "mail.send",
        "a/b.post": "mail.rate",
        "mail.rate_old": "mail.rate",
        "mail_old.send": "mail.send",
        "mail_old.rate": "mail.rate",
        # A function may have been renamed while its module had the old name.
        "mail_old.send_old": "mail.send",
        "mail_old.rate_old": "mail.rate",
        "orders.send": "shop/orders.send",
    }
    # They belong to the handler from then on, in a part of the registry, too.
    orders = Registry.load(folder).only(["shop/*"])
    assert set(orders.names()) == {"shop/orders.send", "orders.send"}


def test_a_module_whose_functions_moved_apart_may_still_be_there(folder: Path) -> None:
    put(folder, "mail.py", marked(send=[]))
    put(folder, "letters.py", marked(post=[]))
    renames(folder, {"letters": "mail"})
    assert aliases(folder) == {"letters.send": "mail.send"}


def test_the_same_alias_twice_does_no_harm(folder: Path) -> None:
    put(folder, "mail.py", marked(send=["mail.post", "mail.post"]) + "again = send\n")
    renames(folder, {"mail.post": "mail.send"})
    assert aliases(folder) == {"mail.post": "mail.send"}


def test_a_registry_without_aliases_costs_no_name() -> None:
    def send() -> None: ...

    registry = Registry({"mail.send": Handler.of("mail.send", send)})
    assert list(registry.names()) == ["mail.send"]


# Bad input


def refusal(folder: Path) -> str:
    with pytest.raises(HandlersError) as caught:
        Registry.load(folder)
    return str(caught.value)


def test_an_alias_that_is_another_handler_s_name_names_both_places(folder: Path) -> None:
    mail = put(folder, "mail.py", marked(send=["orders.rate"]))
    orders = put(folder, "orders.py", "\ndef rate(): ...")
    assert refusal(folder) == (
        f"mail.send ({mail}, line 2): the alias 'orders.rate' of mail.send is the name of a "
        f"handler: orders.rate ({orders}, line 2). Remove one of them"
    )


def test_an_alias_that_is_its_own_name_is_refused(folder: Path) -> None:
    put(folder, "mail.py", marked(send=["mail.send"]))
    assert "the alias 'mail.send' of mail.send is the name of a handler" in refusal(folder)


def test_two_handlers_with_one_alias_are_both_named(folder: Path) -> None:
    mail = put(folder, "mail.py", marked(send=["a.b"]))
    orders = put(folder, "orders.py", marked(send=["a.b"]))
    assert refusal(folder) == (
        f"orders.send ({orders}, line 2): the alias 'a.b' of orders.send is also an alias of "
        f"mail.send: mail.send ({mail}, line 2). Remove one of them"
    )


def test_a_renamed_module_whose_functions_are_still_there_names_both_places(folder: Path) -> None:
    put(folder, "mail.py", marked(send=[]))
    old = put(folder, "mail_old.py", "def send(): ...")
    init = renames(folder, {"mail_old": "mail"})
    assert refusal(folder) == (
        f"ALIASES in {init}, 'mail_old': 'mail': the alias 'mail_old.send' of mail.send is the "
        f"name of a handler: mail_old.send ({old}, line 1). Remove one of them"
    )


def test_two_modules_with_one_old_name_are_both_named(folder: Path) -> None:
    mail = put(folder, "mail.py", marked(send=["old.send"]))
    put(folder, "orders.py", marked(send=[]))
    init = renames(folder, {"old": "orders"})
    assert refusal(folder) == (
        f"ALIASES in {init}, 'old': 'orders': the alias 'old.send' of orders.send is also an "
        f"alias of mail.send: mail.send ({mail}, line 2). Remove one of them"
    )


@pytest.mark.parametrize(
    ("mapping", "wrong"),
    [
        (["mail"], " is a list: it must be a dict of old names to present ones"),
        (
            {"old": "mial"},
            ", 'old': 'mial': no handler is in a module 'mial' (did you mean 'mail'?)",
        ),
        ({"old": "empty"}, ": no handler is in a module 'empty'"),
        ({"mail.b": "mail.sned"}, ": there is no handler 'mail.sned' (did you mean 'mail.send'?)"),
        ({"mail.b": "mail.helper"}, ": there is no handler 'mail.helper'"),
        ({"old": "mail.send"}, ", 'old': 'mail.send': give two names of functions"),
        ({"mail.b": "mail"}, "give two names of functions, such as 'mail.send', or two of modules"),
        ({1: "mail"}, ", 1: 'mail': give two names"),
        ({"old": 1}, ", 'old': 1: give two names"),
        ({"a": "b", "b": "mail"}, ", 'a': 'b': 'b' is itself an old name: give the present one"),
        ({"mail-old": "mail"}, ", 'mail-old': 'mail': func='mail-old.send': write module.function"),
        ({"../mail": "mail"}, ", '../mail': 'mail': give two names of functions"),
        ({"mail.": "mail.send"}, "func='mail.': write module.function"),
    ],
)
def test_renames_that_cannot_be_are_refused(folder: Path, mapping: Any, wrong: str) -> None:
    put(folder, "mail.py", marked(send=[]) + "def helper(): ...\nHANDLERS = [send]\n")
    put(folder, "empty.py", "")
    init = renames(folder, mapping)
    message = refusal(folder)
    assert message.startswith(f"ALIASES in {init}")
    assert wrong in message


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ("mail.send", "aliases='mail.send': give a list of names"),
        ([42], "aliases=[42]: give a list of names"),
        (42, "aliases=42: give a list of names"),
        ({"a.b": "c.d"}, "aliases={'a.b': 'c.d'}: give a list of names"),
        (["send_old"], "aliases=['send_old']: func='send_old': write module.function"),
        (["mail.größe"], "aliases=['mail.größe']: func="),
        (["m." + "s" * 200], "at most 200"),
    ],
)
def test_an_alias_that_is_no_name_is_refused(folder: Path, given: Any, wrong: str) -> None:
    with pytest.raises(InvalidTask, match=re.escape(wrong)):
        handler(aliases=given)
    path = put(folder, "mail.py", f"from expirebridge import handler\n@handler(aliases={given!r})")
    path.write_text(path.read_text() + "\ndef send(): ...")
    message = refusal(folder)
    assert message.startswith(f"{path} does not import:")
    assert wrong in message
