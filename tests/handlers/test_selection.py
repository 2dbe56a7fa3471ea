"""What of a module tasks may call: all public functions, marked ones, or those that it lists."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from expirebridge.errors import HandlersError, InvalidTask
from expirebridge.handlers import Registry, name_of
from expirebridge.handlers.selection import helper_kind
from tests.kit.modules import forgotten, put


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "selected_"
    folder.mkdir()
    with forgotten(tmp_path):
        yield folder


def names(folder: Path, *, only_marked: bool = False) -> list[str]:
    return [handler.name for handler in Registry.load(folder, only_marked=only_marked)]


def listing(folder: Path, entries: str) -> Path:
    """A module with this HANDLERS, beside all that may stand in it."""
    put(
        folder.parent,
        "library_.py",
        "def bare(function): return lambda: function()\ndef far(): ...",
    )
    return put(folder, "mail.py", f"""
        from expirebridge import handler, hook
        from library_ import bare, far
        def send(): ...
        def rate(): ...
        def helper(): ...
        def pages(): yield
        def grüße(): ...
        def _private(): ...
        short = lambda: None
        again = rate
        wrapped = bare(send)
        class Sender: ...
        @hook
        def tell(event): ...
        number = 42
        HANDLERS = {entries}
        """)  # fmt: skip


# HANDLERS


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ("[send, rate]", ["mail.rate", "mail.send"]),
        ("['send', 'rate']", ["mail.rate", "mail.send"]),
        ("(send, 'rate')", ["mail.rate", "mail.send"]),
        ("[send, 'send']", ["mail.send"]),
        ("['again']", ["mail.again"]),
        ("[again]", ["mail.rate"]),
        ("[short]", ["mail.short"]),
        ("[]", []),
    ],
)
@pytest.mark.parametrize("only_marked", [False, True])
def test_a_module_that_lists_its_handlers_has_exactly_those(
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    entries: str,
    found: list[str],
    only_marked: bool,
) -> None:
    listing(folder, entries)
    registry = Registry.load(folder, only_marked=only_marked)
    assert [handler.name for handler in registry] == found
    assert all(handler.is_declared for handler in registry)
    # What is not listed was not asked for; and what is marked as something else still is that.
    assert caplog.messages == []
    assert [one.__name__ for one in registry.hooks] == ["tell"]


@pytest.mark.parametrize(
    ("entries", "wrong"),
    [
        ("{'send': send}", "is a dict: it must be a list"),
        ("'send'", "is a str: it must be a list"),
        ("send", "is a function: it must be a list"),
        ("None", "is a NoneType: it must be a list"),
        ("['sned']", "sned is not in this module (did you mean send?)"),
        ("['mail.send']", "mail.send is not in this module"),
        ("[43]", "43 is not in this module"),
        ("[lambda: None]", "<lambda>"),
        ("[far]", "far is a function of library_: list it there"),
        ("['wrapped']", "wrapped is a function of library_: list it there (if it is decorated"),
        ("[Sender]", "Sender is a class, not a function"),
        ("['number']", "number is a value of type int, not a function"),
        ("['_private']", "_private begins with an underscore"),
        ("[_private]", "_private begins with an underscore"),
        ("[tell]", "tell is a hook, which no task can name"),
        ("[pages]", "is a generator function, which no handler can be"),
        ("['grüße']", "no task can name mail.grüße"),
    ],
)
def test_what_cannot_be_listed_is_refused(folder: Path, entries: str, wrong: str) -> None:
    path = listing(folder, entries)
    with pytest.raises(HandlersError) as caught:
        Registry.load(folder)
    assert wrong in str(caught.value)
    assert str(path) in str(caught.value)


def test_what_a_module_does_not_list_has_no_name(folder: Path) -> None:
    listing(folder, "[send]")
    send = Registry.load(folder).find("mail.send")
    assert send is not None
    module = send.function.__globals__
    assert name_of(module["send"], folder) == "mail.send"
    with pytest.raises(InvalidTask, match=r"^func=rate: HANDLERS in its module does not list it"):
        name_of(module["rate"], folder)
    module["HANDLERS"] = "send"
    with pytest.raises(InvalidTask, match=r"^func=send: HANDLERS in .*mail\.py is a str"):
        name_of(module["send"], folder)


# Only marked functions


MARKED = """
    import functools
    from expirebridge import handler
    def logged(function):
        @functools.wraps(function)
        def wrapper(): return function()
        return wrapper
    @handler
    def send(): ...
    @logged
    @handler(timeout=5)
    def rate(): ...
    def helper(): ...
    """


def test_with_only_marked_just_what_is_marked_is_a_handler(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(folder, "mail.py", MARKED + "def pages(): yield\n    class Sender: ...")
    assert names(folder, only_marked=True) == ["mail.rate", "mail.send"]
    assert caplog.messages == []


def test_what_is_marked_and_cannot_be_a_handler_is_refused(folder: Path) -> None:
    path = put(folder, "mail.py", "from expirebridge import handler\n@handler\nclass Sender: ...")
    for only_marked in (False, True):
        with pytest.raises(HandlersError, match=rf"^mail\.Sender \({path}\) is a class"):
            Registry.load(folder, only_marked=only_marked)


@pytest.mark.parametrize(
    ("marked", "named"),
    [
        ("functools.partial(helper, 1)", r"functools\.partial\(<function helper"),
        ("Sender()", r"<\w+\.mail\.Sender object"),
        ("Sender().send", "<bound method Sender.send"),
        ("functools.cache(helper)", "<functools._lru_cache_wrapper"),
        ("staticmethod(helper)", "<staticmethod"),
    ],
)
def test_what_is_marked_and_is_no_function_is_refused_with_its_place(
    folder: Path, marked: str, named: str
) -> None:
    """It would be left out silently: only functions are looked for."""
    path = put(folder, "mail.py", MARKED + f"""
    class Sender:
        def send(self): ...
        def __call__(self): ...
    fetch = handler(process=True)({marked})
    """)  # fmt: skip
    for only_marked in (False, True):
        with pytest.raises(HandlersError, match=rf"@handler marks {named}.* not a function") as bad:
            Registry.load(folder, only_marked=only_marked)
        assert re.match(rf"{path} does not import: line \d+: @handler marks", str(bad.value))


# Classes and helpers


def test_a_public_class_is_named_and_ends_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = put(folder, "mail.py", """
        from pathlib import Path
        class Sender: ...
        class Broken(Exception): ...
        class _Private: ...
        def send(): ...
        """)  # fmt: skip
    assert names(folder) == ["mail.send"]
    [told] = caplog.messages
    assert told.startswith(f"mail.Sender ({path}) is a class, which no handler can be")
    assert told.endswith("not registered")


def test_helpers_are_what_nobody_declared(folder: Path) -> None:
    put(folder, "mail.py", MARKED + """
    short = lambda: None
    again = helper
    def outer():
        def inner(): ...
        return inner
    made = outer()
    made.__name__ = "made"
    """)  # fmt: skip
    helpers = {one.name: helper_kind(one) for one in Registry.load(folder) if not one.is_declared}
    assert helpers == {
        "mail.again": "second name of helper",
        "mail.helper": "function",
        "mail.logged": "decorator",
        "mail.made": "inner function",
        "mail.outer": "function",
        "mail.short": "lambda",
    }


# What somebody wrote as a handler, and is none


LIBRARY = """
    import functools
    def bare(function): return lambda *args: function(*args)
    def nothing(function): pass
    class Registered:
        def __init__(self, function): self.function = function
        def __call__(self): ...
    """
HIDDEN = {
    "without wraps": "@bare\ndef send(): ...",
    "without wraps, marked below": "@bare\n@handler\ndef send(): ...",
    "by a class": "@Registered\ndef send(): ...",
    "cached": "@functools.cache\ndef send(): ...",
    "to nothing": "@nothing\ndef send(): ...",
    "async": "@bare\nasync def send(): ...",
    "in a block": "try:\n    @bare\n    def send(): ...\nfinally: pass",
}
PRELUDE = "import functools\nfrom expirebridge import handler, hook\nfrom library_ import *\n"


@pytest.mark.parametrize("source", HIDDEN.values(), ids=HIDDEN)
def test_a_function_that_its_decorator_hides_is_named(
    folder: Path, caplog: pytest.LogCaptureFixture, source: str
) -> None:
    """No task could name it, and nobody would say so."""
    put(folder.parent, "library_.py", LIBRARY)
    path = put(folder, "mail.py", PRELUDE + source)
    assert names(folder) == []
    line = 1 + ["def send" in text for text in (PRELUDE + source).splitlines()].index(True)
    [message] = caplog.messages
    assert message.startswith(f"mail.send ({path}, line {line}) is no handler: its decorator")
    assert "functools.wraps" in message
    caplog.clear()
    assert names(folder, only_marked=True) == []
    assert [text.split()[0] for text in caplog.messages] == ["mail.send"] * ("@handler" in source)


@pytest.mark.parametrize(
    "source",
    [
        "@bare\ndef _send(): ...",
        "@bare\ndef pages(): ...\nHANDLERS = []",
        "@bare\ndef pages(): ...\ndel pages",
        "@hook\ndef tell(event): ...",
        "class _Sender:\n    @property\n    def send(self): ...",
        "def _make():\n    @bare\n    def send(): ...",
        "from library_ import bare as send",
    ],
)
def test_what_is_not_meant_to_be_one_is_not_named(
    folder: Path, caplog: pytest.LogCaptureFixture, source: str
) -> None:
    put(folder.parent, "library_.py", LIBRARY)
    put(folder, "mail.py", PRELUDE + source)
    names(folder)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("mail.py", "@handler()\ndef _send(): ..."),
        ("mail.py", "@handler\nasync def _send(): ..."),
        ("_mail.py", "@handler\ndef send(): ..."),
        ("__init__.py", "@handler\ndef send(): ..."),
        ("shop/__init__.py", "@handler\ndef send(): ..."),
    ],
)
def test_a_marked_function_that_is_not_public_is_refused(
    folder: Path, file: str, source: str
) -> None:
    """What is in a private module is known if something imports it."""
    put(folder, "shop/orders.py", f"import {folder.name}._mail" if file == "_mail.py" else "")
    path = put(folder, file, "from expirebridge import handler\n" + source)
    with pytest.raises(HandlersError) as caught:
        Registry.load(folder)
    assert re.match(rf"_?send \({path}, line 2\): @handler marks it, but", str(caught.value))


def test_a_marked_function_may_have_a_private_name_beside_its_public_one(folder: Path) -> None:
    put(
        folder,
        "mail.py",
        "from expirebridge import handler\n@handler\ndef send(): ...\n_s = send",
    )
    assert names(folder) == ["mail.send"]


def test_a_marked_function_that_its_module_does_not_list_is_left_out(folder: Path) -> None:
    put(folder, "mail.py", """
        from expirebridge import handler
        @handler
        def send(): ...
        def rate(): ...
        HANDLERS = [rate]
        """)  # fmt: skip
    assert names(folder) == ["mail.rate"]
