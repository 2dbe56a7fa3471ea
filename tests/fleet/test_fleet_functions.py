"""What a fleet knows, as far as its listeners say it."""

import pytest

from expirebridge.fleet.operations import KnownFunctions
from expirebridge.handlers.signatures import Fingerprint
from expirebridge.task.calls.fleet import Fleet, FleetListener
from tests.kit.witness import registry_of


def send(to: int) -> None: ...


SEND = Fingerprint.of(registry_of(send=send))
READ = Fingerprint.of(registry_of(read=send, send=send))


def fleet(*codes: str | None, declared: tuple[Fingerprint, ...] = (SEND, READ)) -> Fleet:
    listeners = [FleetListener(f"host:{n}:aa", 1.0, code) for n, code in enumerate(codes)]
    return Fleet(listeners, {each.digest: dict(each.shapes) for each in declared})


def test_all_that_any_listener_knows_is_known() -> None:
    known = KnownFunctions.of(fleet(SEND.digest, READ.digest, SEND.digest))
    assert known == KnownFunctions(frozenset({"test.send", "test.read"}), telling=3, silent=0)
    assert known.unknown(["test.send", "test.read"]) == {}
    assert known.unknown(["a.b", "test.sned", "a.b"]) == {
        "a.b": "no listener knows it",
        "test.sned": "no listener knows it (did you mean 'test.send'?)",
    }
    assert known.all_tell


def test_without_listeners_nothing_is_known() -> None:
    known = KnownFunctions.of(fleet(declared=()))
    assert known.why_unknown("a.b") is None
    assert not known.all_tell


def test_an_older_listener_may_know_anything() -> None:
    known = KnownFunctions.of(fleet(SEND.digest, None))
    assert known.why_unknown("test.sned") == (
        "1 of 2 listeners do not know it (did you mean 'test.send'?), the others do not say"
    )
    assert not known.all_tell
    alone = KnownFunctions.of(fleet(None))
    assert alone.why_unknown("a.b") is None
    assert not alone.all_tell


@pytest.mark.parametrize(
    "shapes", [{}, {"test.send": "(to)", "a.b": "()"}, {"test.send": "()"}, {"test.send": "\\xff"}]
)
def test_a_declaration_that_was_overwritten_is_not_believed(shapes: dict[str, str]) -> None:
    overwritten = fleet(SEND.digest, READ.digest)
    overwritten.codes[SEND.digest] = shapes
    known = KnownFunctions.of(overwritten)
    assert (known.telling, known.silent) == (1, 1)
    assert known.names == set(READ.shapes)
    assert not known.all_tell
    assert overwritten.believed == {READ.digest: READ.shapes}
