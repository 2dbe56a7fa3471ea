"""Limits of handlers: bound to an argument when the folder is loaded, and declared."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from expirebridge import Limit, Rate, handler
from expirebridge.errors import HandlersError, InvalidTask
from expirebridge.handlers import Handler, Registry
from expirebridge.limits.bound_limits import bind_limits
from expirebridge.limits.declared_limits import LimitsDeclaration, declaration
from tests.kit.cases import each
from tests.kit.lane_values import hashed
from tests.kit.modules import forgotten, put

HEAD = "from expirebridge import Limit, Rate, handler\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "limited_"
    folder.mkdir()
    with forgotten(tmp_path):
        yield folder


def declared(folder: Path) -> dict[str, str]:
    return {field: json.decode() for field, json in declaration(Registry.load(folder).names())}


def refusal(folder: Path) -> str:
    with pytest.raises(HandlersError) as caught:
        Registry.load(folder)
    return str(caught.value)


# The declaration


def test_each_function_and_each_limit_is_declared(folder: Path) -> None:
    put(folder, "mail.py", f"""
        {HEAD}
        @handler(limit=Limit(5))
        def send(to): ...
        @handler(limit=[Limit(50), Limit(5, per="customer", wait="5m")])
        def export(month, customer): ...
        @handler(rate=Rate(100, "1m", per="account", burst=20), limit=Limit(2, name="sms"))
        def text(*, account=17): ...
        def plain(): ...
        """)  # fmt: skip
    fields = declaration(Registry.load(folder).names())
    assert fields == sorted(fields)
    assert {field: json.decode() for field, json in fields} == {
        "f mail.export": '[["mail.export:customer",1,"customer",null],["mail.export"]]',
        "f mail.plain": "[]",
        "f mail.send": '[["mail.send"]]',
        "f mail.text": '[["mail.text:account#rate",-1,"account","17"],["sms"]]',
        "l mail.export": '{"most":50}',
        "l mail.export:customer": '{"most":5,"wait":300000}',
        "l mail.send": '{"most":5}',
        "l mail.text:account#rate": '{"starts":100,"every":60000000,"burst":20}',
        "l sms": '{"most":2}',
    }


def test_handlers_without_limits_declare_that(folder: Path) -> None:
    put(folder, "mail.py")
    registry = Registry.load(folder)
    assert declaration(registry.names()) == [("f mail.send", b"[]")]
    assert not LimitsDeclaration.of(registry.names()).fingerprint


def test_a_former_name_shares_the_lanes(folder: Path) -> None:
    put(folder, "mail.py", f"""
        {HEAD}
        @handler(aliases=["letters.post"], limit=Limit(5, per="to"))
        def send(to): ...
        """)  # fmt: skip
    assert declared(folder) == {
        "f letters.post": '[["mail.send:to",0,"to",null]]',
        "f mail.send": '[["mail.send:to",0,"to",null]]',
        "l mail.send:to": '{"most":5}',
    }


def test_a_listener_of_some_functions_declares_those(folder: Path) -> None:
    put(folder, "mail.py", f"{HEAD}@handler(limit=Limit(5))\ndef send(): ...\ndef plain(): ...")
    registry = Registry.load(folder)
    assert LimitsDeclaration.of(registry.names()).fingerprint
    assert declaration(registry.only(["mail.plain"]).names()) == [("f mail.plain", b"[]")]
    assert not LimitsDeclaration.of(registry.only(["mail.plain"]).names()).fingerprint
    assert registry.only(["mail.send"]).find("mail.send") == registry.find("mail.send")


# The argument that chooses the lane


def entry(function: Any, per: str) -> list[str | int | None]:
    [bound] = bind_limits([Limit(1, per=per)], function, "a.b")
    return bound.entry()[1:]


def test_an_argument_has_its_place_among_the_positional_ones() -> None:
    def example(a: int, /, b: str = "x", *rest: int, c: int = 3, d: int, **others: int) -> None: ...

    assert entry(example, "a") == [0, "a", None]
    assert entry(example, "b") == [1, "b", "x"]
    assert entry(example, "c") == [-1, "c", "3"]
    assert entry(example, "d") == [-1, "d", None]
    assert entry(example, "e") == [-1, "e", None]


@each(
    ("default", "value"),
    [
        (17, "17"), (17.0, "17"), (0.1, "0.10000000000000001"), (True, "true"), (None, "null"),
        ("", ""), ("é", "é"), ("a\n", hashed("a\n")), (2**70, str(2**70)),
    ],
)  # fmt: skip
def test_a_default_chooses_the_lane_of_that_value(default: Any, value: str) -> None:
    def example(to: Any = default) -> None: ...

    assert entry(example, "to") == [0, "to", value]


@pytest.mark.parametrize("default", [(), [], {}, b"x", float("nan"), float("inf"), "\ud800", Path])
def test_a_default_that_no_client_can_write_is_refused(default: Any) -> None:
    def example(to: Any = default) -> None: ...

    with pytest.raises(InvalidTask, match=r"^per='to': its default .* is not text, a number"):
        entry(example, "to")
    assert bind_limits([Limit(1)], example, "a.b")[0].entry() == ["a.b"]


def test_a_signature_that_cannot_be_read_is_refused() -> None:
    def misled(to: int) -> None: ...

    misled.__signature__ = 42  # type: ignore[attr-defined]
    with pytest.raises(InvalidTask, match=r"^per='to': the function's signature cannot be read"):
        entry(misled, "to")
    assert bind_limits([Limit(1)], misled, "a.b")


@pytest.mark.parametrize(
    ("decorator", "parameters", "why"),
    [
        ("limit=Limit(1, per='user')", "to, text=''", "no such parameter; it has: to, text"),
        ("limit=Limit(1, per='user')", "", "no such parameter; it has: none"),
        ("limit=Limit(1, per='to')", "*to", "*to holds many arguments"),
        ("limit=Limit(1, per='to')", "**to", "**to holds many arguments"),
        ("rate=Rate(1, 1, per='to')", "to=()", "its default () is not text"),
        ("limit=[Limit(1, per='to', name='x'), Limit(2, name='x')]", "to", "the name 'x'"),
    ],
)  # fmt: skip
def test_a_limit_that_does_not_fit_its_function_is_told_with_its_place(
    folder: Path, decorator: str, parameters: str, why: str
) -> None:
    path = put(folder, "mail.py", f"{HEAD}@handler({decorator})\ndef send({parameters}): ...")
    message = refusal(folder)
    assert message.startswith(f"mail.send ({path}, line 2): ")
    assert why in message


def test_a_limit_that_cannot_be_is_told_with_its_line(folder: Path) -> None:
    path = put(folder, "mail.py", f"{HEAD}\n@handler(limit=Limit(0))\ndef send(): ...")
    assert refusal(folder) == (
        f"{path} does not import: line 3: most=0: it must be a whole number, 1 to 1000000"
    )


def test_a_decorator_refuses_limits_that_cannot_be_together() -> None:
    with pytest.raises(InvalidTask, match=r"^rate=: 4 on one handler; at most 3"):
        handler(limit=[Limit(1, per="to"), Limit(5)], rate=[Rate(1, "1s")] * 4)


# One limit of several handlers


def sharing(first: str, second: str) -> str:
    return (
        f"{HEAD}@handler({first})\ndef a(customer): ...\n"
        f"@handler({second})\ndef b(text, client='x'): ..."
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("limit=Limit(2, name='sms')", "limit=Limit(2, name='sms')"),
        (
            "limit=Limit(2, per='customer', name='sms', wait='1m')",
            "limit=Limit(2, per='client', name='sms', wait=60)",
        ),
        ("rate=Rate(60, '1m', name='sms')", "rate=Rate(60, 60, name='sms')"),
    ],
)
def test_handlers_share_a_limit_by_its_name(folder: Path, first: str, second: str) -> None:
    put(folder, "mail.py", sharing(first, second))
    assert [field for field in declared(folder) if field.startswith("l ")] == ["l sms"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("limit=Limit(2, name='sms')", "limit=Limit(3, name='sms')"),
        ("limit=Limit(2, name='sms')", "limit=Limit(2, name='sms', wait=1)"),
        ("limit=Limit(2, name='sms')", "limit=Limit(2, name='sms', per='client')"),
        ("limit=Limit(2, name='sms')", "limit=Limit(2, name='sms', fair='client')"),
        ("limit=Limit(1, name='sms')", "limit=Limit(1, name='sms', ordered=True)"),
        (
            "limit=Limit(1, name='sms', ordered=True)",
            "limit=Limit(1, name='sms', ordered=True, on_failed='hold')",
        ),
        ("limit=Limit(2, name='sms')", "rate=Rate(2, 1, name='sms')"),
        ("rate=Rate(2, 1, name='sms')", "rate=Rate(2, 1, name='sms', burst=2)"),
    ],
)
def test_handlers_that_disagree_about_a_limit_are_refused(
    folder: Path, first: str, second: str
) -> None:
    path = put(folder, "mail.py", sharing(first, second))
    message = refusal(folder)
    assert message.startswith(f"mail.b ({path}, line 4): the limit 'sms' is ")
    assert f"for mail.a ({path}, line 2): give both the same numbers" in message


def test_one_function_under_two_names_needs_a_name_for_its_limit() -> None:
    @handler(limit=Limit(5))
    def send() -> None: ...

    @handler(limit=Limit(5, name="mail"))
    def post() -> None: ...

    with pytest.raises(HandlersError, match=r"a\.send and a\.again are one function.*name='sh"):
        Registry({name: Handler.of(name, send) for name in ("a.send", "a.again")})
    assert len(Registry({name: Handler.of(name, post) for name in ("a.post", "a.again")})) == 2
