"""The fingerprint says whether two listeners know the same."""

from collections.abc import Callable
from typing import Any

from expirebridge import handler
from expirebridge.handlers import Handler, Registry
from expirebridge.handlers.signatures import Fingerprint


def fingerprint_of(**functions: Callable[..., Any]) -> Fingerprint:
    names = {name.replace("_", "."): function for name, function in functions.items()}
    return Fingerprint.of(Registry({name: Handler.of(name, each) for name, each in names.items()}))


def send(to: str) -> None: ...


def send_typed(to: object) -> None: ...


def send_more(to: str, subject: str = "") -> None: ...


@handler(aliases=["mail.send_old"])
def send_renamed(to: str) -> None: ...


def test_it_is_the_same_for_the_same_names_and_shapes_in_any_order() -> None:
    one = fingerprint_of(mail_send=send, mail_read=send)
    assert one == fingerprint_of(mail_read=send_typed, mail_send=send)
    assert len(one.digest) == 16
    assert set(one.digest) <= set("0123456789abcdef")
    assert one.shapes == {"mail.send": "(to)", "mail.read": "(to)"}


def test_another_name_or_another_shape_makes_another() -> None:
    digests = {
        fingerprint_of(**functions).digest
        for functions in (
            {}, {"mail_send": send}, {"mail_read": send}, {"mail_send": send_more},
            {"mail_send": send, "mail_read": send},
        )
    }  # fmt: skip
    assert len(digests) == 5


def test_aliases_are_known_names() -> None:
    renamed = fingerprint_of(mail_renamed=send_renamed)
    assert renamed.shapes == {"mail.renamed": "(to)", "mail.send_old": "(to)"}
