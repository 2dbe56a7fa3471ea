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
