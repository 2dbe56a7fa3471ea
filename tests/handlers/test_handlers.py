"""The registry: what is found in the handlers' folder, and what never is."""

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from expirebridge import handler
from expirebridge.errors import HandlersError, InvalidTask
from expirebridge.handlers import (
    Handler,
    Registry,
    check_binding,
    name_of,
)
from expirebridge.settings import Settings
from expirebridge.task.policies import Delays, Exponential, check_timeout
from tests.kit.cases import each
from tests.kit.modules import forgotten, put


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty handlers' folder. Its name is new: modules are imported under it."""
    folder = tmp_path / f"handlers_{uuid4().hex}"
    folder.mkdir()
    with forgotten(tmp_path):
        yield folder


def names(folder: Path) -> list[str]:
    return [handler.name for handler in Registry.load(folder)]


def found(folder: Path, name: str) -> Handler:
    handler = Registry.load(folder).find(name)
    assert handler is not None
    return handler


def traps(folder: Path) -> tuple[str, Path]:
    """A module's text that leaves a mark where it is executed, and the mark."""
    mark = folder.parent / "executed"
    return f"open({str(mark)!r}, 'w').close()\ndef send(): ...", mark


# What is found


def test_public_functions_are_found_by_file_and_name(folder: Path) -> None:
    put(folder, "mail.py", "def send(): ...\nasync def fetch(): ...")
    put(folder, "shop/orders.py", "def rate(): ...")
    put(folder, "shop/eu/vat.py", "def file(): ...")
    registry = Registry.load(folder)
    assert [handler.name for handler in registry] == [
        "mail.fetch", "mail.send", "shop/eu/vat.file", "shop/orders.rate",
    ]  # fmt: skip
    assert len(registry) == 4
    assert found(folder, "mail.fetch").is_async
    assert not found(folder, "mail.send").is_async


def test_a_handler_is_the_very_function_that_a_producer_imports(folder: Path) -> None:
    put(folder, "shop/mail.py")
    function = found(folder, "shop/mail.send").function
    assert function is sys.modules[f"{folder.name}.shop.mail"].send
    assert name_of(function, folder) == "shop/mail.send"


def test_an_empty_folder_has_no_handlers(folder: Path) -> None:
    assert names(folder) == []


def test_a_wrapped_function_is_found_where_it_is_defined(folder: Path) -> None:
    put(folder, "tools.py", """
        import functools
        def logged(function):
            @functools.wraps(function)
            def wrapper(*args): return function(*args)
            return wrapper
        """)  # fmt: skip
    put(folder, "mail.py", f"""
        from expirebridge import handler
        from {folder.name}.tools import logged
        @logged
        @handler(timeout=5)
        def send(to): return to
        """)  # fmt: skip
    assert names(folder) == ["mail.send", "tools.logged"]
    send = found(folder, "mail.send")
    assert send.function(42) == 42
    assert send.timeout == 5
    assert name_of(send.function, folder) == "mail.send"
    with pytest.raises(InvalidTask):
        check_binding(send.function, [], {})


# What is not found


def test_what_is_merely_imported_is_not_found(folder: Path) -> None:
    put(folder, "mail.py", """
        import os
        import functools
        from os import system, path
        from os.path import join
        from textwrap import dedent
        from expirebridge import make_task
        relay = functools.wraps(dedent)(lambda text: text)
        def send(): ...
        """)  # fmt: skip
    assert names(folder) == ["mail.send"]


def test_only_plain_functions_are_found(folder: Path) -> None:
    put(folder, "mail.py", """
        import functools
        class Sender:
            def send(self): ...
        sender = Sender()
        method = sender.send
        partial = functools.partial(print, 1)
        number = 42
        def _private(): ...
        def __dunder__(): ...
        """)  # fmt: skip
    assert names(folder) == []


@pytest.mark.parametrize(
    "file",
    [
        "_private.py", "__init__.py", "_hidden/mail.py", "__pycache__/mail.py", ".git/mail.py",
        "my-mail.py", "my-shop/mail.py", "1.py", "mail.txt", "mail.pyi", "é.py",
    ],
)  # fmt: skip
def test_a_file_with_such_a_name_is_not_loaded(folder: Path, file: str) -> None:
    put(folder, file)
    assert names(folder) == []


@pytest.mark.parametrize(
    "name",
    [
        "os.system", "mail.os", "mail.system", "mail.os.system", "../mail.send", "./mail.send",
        "mail.send ", "mail/send", "mail", "send", "", "mail.__class__", "mail._private",
    ],
)  # fmt: skip
def test_only_an_exact_name_is_found(folder: Path, name: str) -> None:
    put(folder, "mail.py", "import os\nfrom os import system\ndef send(): ...\ndef _private(): ...")
    registry = Registry.load(folder)
    assert registry.find(name) is None
    assert registry.find(f"{folder}/mail.send") is None


def test_a_file_beside_the_folder_is_not_found(folder: Path) -> None:
    text, mark = traps(folder)
    put(folder.parent, "outside.py", text)
    put(folder, "mail.py")
    registry = Registry.load(folder)
    assert registry.find("../outside.send") is None
    assert [handler.name for handler in registry] == ["mail.send"]
    assert not mark.exists()


@pytest.mark.parametrize("link", ["mail.py", "__init__.py", "shop/__init__.py"])
def test_a_link_to_a_file_outside_is_never_executed(folder: Path, link: str) -> None:
    text, mark = traps(folder)
    outside = put(folder.parent, "outside.py", text)
    put(folder, "orders.py")
    put(folder, "shop/vat.py")
    (folder / link).symlink_to(outside)
    # Refusing the folder would be as good as leaving the file out.
    with suppress(HandlersError):
        assert "mail.send" not in names(folder)
    assert not mark.exists()


def test_a_link_to_a_folder_outside_is_never_executed(folder: Path) -> None:
    text, mark = traps(folder)
    put(folder.parent, "elsewhere/mail.py", text)
    (folder / "shop").symlink_to(folder.parent / "elsewhere")
    assert names(folder) == []
    assert not mark.exists()


def test_a_link_that_stays_inside_is_followed(folder: Path) -> None:
    put(folder, "mail.py")
    (folder / "post.py").symlink_to(folder / "mail.py")
    assert names(folder) == ["mail.send", "post.send"]


def test_the_folder_itself_may_be_a_link(folder: Path) -> None:
    put(folder, "mail.py")
    link = folder.parent / "current"
    link.symlink_to(folder)
    assert names(link) == ["mail.send"]


# What cannot be loaded


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import a_module_that_nobody_has", "ModuleNotFoundError"),
        ("def send(:", "SyntaxError"),
        ("import sys\nsys.exit('enough')", "SystemExit: enough"),
        ("raise SystemExit", "SystemExit"),
        ("from expirebridge import handler\n@handler(timeout=0)\ndef f(): ...", "timeout=0"),
    ],
)
def test_a_module_that_does_not_import_is_told_with_its_traceback(
    folder: Path, source: str, shown: str
) -> None:
    path = put(folder, "shop/mail.py", source)
    with pytest.raises(HandlersError) as caught:
        Registry.load(folder)
    message = str(caught.value)
    assert message.startswith(f"{path} does not import:")
    assert shown in message
    # The frames of the import machinery would hide the user's own.
    assert "importlib" not in message
    assert "expirebridge/handlers" not in message


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(HandlersError, match=r"missing does not exist.*--tasks"):
        Registry.load(tmp_path / "missing")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(HandlersError, match="is not a folder"):
        Registry.load(put(tmp_path, "mail.py"))


def test_a_folder_must_be_named_like_a_package(tmp_path: Path) -> None:
    (tmp_path / "my-tasks").mkdir()
    with pytest.raises(HandlersError, match="named like a Python package"):
        Registry.load(tmp_path / "my-tasks")


@pytest.mark.parametrize("source", ["def pages(): yield", "async def pages(): yield"])
def test_a_generator_is_a_helper_unless_it_is_marked_as_a_handler(
    folder: Path, caplog: pytest.LogCaptureFixture, source: str
) -> None:
    path = put(folder, "shop/mail.py", f"def send(): ...\n{source}")
    assert names(folder) == ["shop/mail.send"]
    [told] = caplog.messages
    assert told.startswith(f"shop/mail.pages ({path}, line 2) is a generator function, which")
    assert told.endswith(": not registered")
    path = put(folder, "bad.py", f"from expirebridge import handler\n@handler\n{source}")
    with pytest.raises(HandlersError, match=rf"^bad\.pages \({path}, line 2\) is a generator"):
        Registry.load(folder)


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("größe/mail.py", "def send(): ..."),
        ("shop/größe/mail.py", "def send(): ..."),
        ("mail.py", "def grüße(): ..."),
        ("mail.py", f"def {'s' * 200}(): ..."),
    ],
)
def test_what_no_task_can_name_is_no_handler(
    folder: Path, caplog: pytest.LogCaptureFixture, file: str, source: str
) -> None:
    put(folder, file, source)
    put(folder, "orders.py", "def rate(): ...")
    assert names(folder) == ["orders.rate"]
    [told] = caplog.messages
    assert str(folder / file.partition("mail")[0]).rstrip("/") in told
    assert "no task can name" in told


def test_the_folder_goes_before_any_package_of_its_name_on_the_path(folder: Path) -> None:
    theirs = put(folder.parent, f"theirs/{folder.name}/mail.py", "def theirs(): ...")
    put(theirs.parent, "__init__.py", "")
    sys.path.insert(0, str(folder.parent / "theirs"))
    put(folder, "mail.py", "def ours(): ...")
    assert names(folder) == ["mail.ours"]


def test_a_folder_whose_name_is_taken_by_an_imported_package_is_told(folder: Path) -> None:
    theirs = put(folder.parent, f"theirs/{folder.name}/__init__.py", "")
    sys.path.insert(0, str(folder.parent / "theirs"))
    importlib.import_module(folder.name)
    put(folder, "mail.py")
    with pytest.raises(HandlersError, match=rf"{folder} is hidden by {theirs}.*rename one of them"):
        Registry.load(folder)


def test_a_package_that_does_not_import_is_told(folder: Path) -> None:
    put(folder, "__init__.py", "1 / 0")
    put(folder, "mail.py")
    with pytest.raises(HandlersError, match=r"__init__.py does not import:\nTraceback(.|\n)*Zero"):
        Registry.load(folder)


# Policies


def test_a_function_without_a_decorator_has_no_policy_of_its_own(folder: Path) -> None:
    put(folder, "mail.py")
    send = found(folder, "mail.send")
    assert (send.retry, send.timeout) == (None, None)


@pytest.mark.parametrize("decorator", ["@handler", "@handler()"])
def test_a_bare_decorator_says_nothing(folder: Path, decorator: str) -> None:
    put(folder, "mail.py", f"from expirebridge import handler\n{decorator}\ndef send(): ...")
    send = found(folder, "mail.send")
    assert names(folder) == ["mail.send"]
    assert (send.retry, send.timeout) == (None, None)


def test_a_decorator_gives_a_policy_and_leaves_the_function_as_it_is(folder: Path) -> None:
    put(folder, "mail.py", """
        from expirebridge import handler, Exponential
        @handler(retry=[15, "1m"], timeout="30s", late="1s")
        async def send(to): return to
        @handler(retry=[])
        def once(): ...
        @handler(retry=Exponential(first=2))
        def grow(): ...
        """)  # fmt: skip
    send = found(folder, "mail.send")
    assert (send.retry, send.timeout, send.late) == (Delays((15, 60)), 30, 1)
    assert send.is_async
    assert found(folder, "mail.once").late is None
    assert found(folder, "mail.once").retry == Delays(())
    assert found(folder, "mail.grow").retry == Exponential(first=2)


def test_a_decorator_refuses_a_policy_that_cannot_be() -> None:
    with pytest.raises(InvalidTask, match=r"^retry\[0\]=-1"):
        handler(retry=[-1])
    with pytest.raises(InvalidTask, match=r"^timeout=0: it must be above 0"):
        handler(timeout=0)
    with pytest.raises(InvalidTask, match=r"^late=0: it must be above 0"):
        handler(late=0)
    with pytest.raises(InvalidTask, match=r"^late='soon': not a duration"):
        handler(late="soon")


def test_an_objective_stays_with_a_function_under_each_name_and_if_it_is_chosen(
    folder: Path,
) -> None:
    put(folder, "mail.py", """
        from expirebridge import handler
        @handler(late="250ms", process=True, aliases=["mail.old"])
        def send(): ...
        """)  # fmt: skip
    registry = Registry.of(Settings(tasks=folder, functions=("mail.*",)))
    assert {name: one.late for name, one in registry.names().items()} == {
        "mail.send": 0.25, "mail.old": 0.25,
    }  # fmt: skip


def test_a_timeout_is_read_in_seconds() -> None:
    assert check_timeout("1m") == 60
    assert check_timeout(None) is None


# A function as the name of its task


def test_a_function_outside_of_the_folder_has_no_name(folder: Path) -> None:
    with pytest.raises(InvalidTask, match="is not under the handlers' folder"):
        name_of(put, folder)


def test_a_lambda_has_no_name_wherever_it_is_from(folder: Path) -> None:
    with pytest.raises(InvalidTask, match="only functions of a module's top level"):
        name_of(lambda: None, folder)


@pytest.mark.parametrize("thing", [print, len, Path, "mail.send".upper, 42])
def test_only_a_function_has_a_name(folder: Path, thing: Any) -> None:
    with pytest.raises(InvalidTask, match="give a function defined in a module"):
        name_of(thing, folder)


@pytest.mark.parametrize("name", ["_private", "inner", "method", "unnamed"])
def test_a_function_that_is_not_registered_by_its_own_name_has_none(
    folder: Path, name: str
) -> None:
    put(folder, "mail.py", """
        def _private(): ...
        def outer():
            def inner(): ...
            return inner
        inner = outer()
        class Sender:
            def send(self): ...
        method = Sender.send
        unnamed = lambda: None
        """)  # fmt: skip
    Registry.load(folder)
    with pytest.raises(InvalidTask, match=r"^func="):
        name_of(getattr(sys.modules[f"{folder.name}.mail"], name), folder)


TESTS = [
    "test_mail.py", "mail_test.py", "tests.py", "conftest.py", "tests/mail.py", "test/mail.py",
    "shop/tests/eu/mail.py", "shop/test_mail.py", "node_modules/gyp/mail.py",
]  # fmt: skip


@pytest.mark.parametrize("file", TESTS)
def test_test_files_and_what_npm_installs_are_never_executed(
    folder: Path, caplog: pytest.LogCaptureFixture, file: str
) -> None:
    """They import pytest, which no listener has, or mark what they try out."""
    source, mark = traps(folder)
    path = put(folder, file, f"import pytest_is_not_here\n{source}")
    put(folder, "contest.py")
    put(folder, "latest/attest.py")
    with caplog.at_level(logging.INFO, "expirebridge"):
        assert names(folder) == ["contest.send", "latest/attest.send"]
    assert not mark.exists()
    [message] = caplog.messages
    assert message.endswith("is named like a test, or like what npm installs: not loaded")
    assert message.split()[0] in {str(path), *map(str, path.parents)}


def test_a_test_that_was_imported_may_mark_what_it_likes(folder: Path) -> None:
    put(folder, "mail.py")
    put(folder, "test_mail.py", """
        from expirebridge import every, handler
        @handler
        def _send(): ...
        @every("1h")
        def rate(): ...
        """)  # fmt: skip
    Registry.load(folder)
    importlib.import_module(f"{folder.name}.test_mail")
    assert names(folder) == ["mail.send"]


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("_private.py", "_private"),
        ("__init__.py", ""),
        ("_shop/mail.py", "_shop.mail"),
        ("test_mail.py", "test_mail"),
        ("tests/mail.py", "tests.mail"),
    ],
)
def test_a_function_of_a_file_that_is_not_loaded_has_no_name(
    folder: Path, file: str, module: str
) -> None:
    put(folder, file)
    put(folder, "mail.py", f"from {f'{folder.name}.{module}'.strip('.')} import send as relay")
    Registry.load(folder)
    with pytest.raises(InvalidTask, match=r"^func="):
        name_of(sys.modules[f"{folder.name}.mail"].relay, folder)


# Arguments against the signature


def example(user: int, /, subject: str, *, copies: int = 1) -> None: ...


def test_nothing_is_said_of_a_function_whose_signature_cannot_be_read() -> None:
    def misled(user: int) -> None: ...

    misled.__signature__ = 42  # type: ignore[attr-defined]
    check_binding(misled, [], {"colour": "red"})
    check_binding(iter, [], {"colour": "red"})


def test_arguments_that_fit_pass() -> None:
    check_binding(example, [1, "hi"], {})
    check_binding(example, [1], {"subject": "hi", "copies": 2})


@each(
    ("args", "kwargs", "why"),
    [
        ([], {}, "missing a required"),
        ([1], {}, "missing a required argument: 'subject'"),
        ([1, "hi", 3], {}, "too many positional arguments"),
        ([1, "hi"], {"colour": "red"}, "unexpected keyword argument 'colour'"),
        ([1, "hi"], {"subject": "ho"}, "multiple values for argument 'subject'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_the_signature(
    args: list[Any], kwargs: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidTask) as caught:
        check_binding(example, args, kwargs)
    assert str(caught.value).startswith("example(user: int, /, subject: str")
    assert why in str(caught.value)


def test_the_registry_can_be_made_of_functions() -> None:
    function: Callable[..., None] = example
    registry = Registry({"a.example": Handler.of("a.example", function)})
    assert [handler.function for handler in registry] == [function]


def test_hooks_and_lifespans_are_found_and_are_no_handlers(folder: Path) -> None:
    put(
        folder,
        "app.py",
        """
        from expirebridge import hook, lifespan

        @lifespan
        async def pool():
            yield

        @hook
        def tell(event): ...

        def send(): ...
        """,
    )
    registry = Registry.load(folder)
    assert [handler.name for handler in registry] == ["app.send"]
    assert [one.__name__ for one in registry.hooks] == ["tell"]
    assert [one.__name__ for one in registry.lifespans] == ["pool"]


@pytest.mark.parametrize("wrong", ["async def tell(e): ...", "def tell(e): yield"])
def test_a_hook_whose_body_would_never_run_is_refused(folder: Path, wrong: str) -> None:
    path = put(folder, "mail.py", f"from expirebridge import hook\n@hook\n{wrong}")
    with pytest.raises(HandlersError) as caught:
        Registry.load(folder)
    assert str(caught.value).startswith(f"mail.tell ({path}, line 2): @hook marks a plain function")


@pytest.mark.parametrize("wrong", ["async def pool(): ...", "async def pool(it):\n    yield"])
def test_a_lifespan_that_is_none_is_refused(folder: Path, wrong: str) -> None:
    put(folder, "app.py", f"from expirebridge import lifespan\n@lifespan\n{wrong}")
    with pytest.raises(HandlersError, match=r"app\.pool: @lifespan marks"):
        Registry.load(folder)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("@every('61 * * * *')", "line 3: cron='61 * * * *': '61' is not a valid minute"),
        ("@every('1h', jitter='x')", "line 3: jitter='x'"),
        ("@handler(timeout=0)", "line 3: timeout=0"),
        ("@handler(retry=Exponential(attempts=0))", "line 3: Exponential(first=1.0, "),
    ],
)
def test_a_value_that_is_refused_is_one_line_with_its_place(
    folder: Path, source: str, line: str
) -> None:
    above = "from expirebridge import Exponential, every, handler\n\n"
    path = put(folder, "shop/mail.py", f"{above}{source}\ndef f(): ...")
    with pytest.raises(HandlersError) as caught:
        Registry.load(folder)
    message = str(caught.value)
    assert message.startswith(f"{path} does not import: {line}")
    assert "\n" not in message


def test_a_value_that_is_refused_elsewhere_is_told_with_that_file(folder: Path) -> None:
    put(folder, "__init__.py", "")
    shared = put(folder, "_shared.py", "from expirebridge import every\nhourly = every('nope')")
    path = put(folder, "mail.py", f"from {folder.name}._shared import hourly")
    with pytest.raises(HandlersError) as caught:
        Registry.load(folder)
    assert str(caught.value).startswith(f"{path} does not import: {shared}, line 2: ")


def test_a_function_of_another_folder_is_refused_with_what_a_ledger_takes_too(
    folder: Path,
) -> None:
    with pytest.raises(InvalidTask, match=r"give `tasks` to the Bridge or Ledger"):
        name_of(put, folder)
