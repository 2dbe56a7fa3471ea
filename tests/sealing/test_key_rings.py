"""Key rings: what opens, what does not, and what errors show."""

import sys

import pytest

from expirebridge import InvalidSetting
from expirebridge.settings import Settings
from expirebridge.task.key_ring import (
    LONGEST_LINE,
    Content,
    KeyRing,
    NotOpened,
    key_of,
    note_of,
    parse_keys,
    replace_in_history,
)
from expirebridge.task.keys import is_hidden
from tests.kit.private_keys import K1, K2, key

PLAIN = b'["secret", 17]'
RING = KeyRing(f"{K1} {K2}")


def test_what_was_sealed_opens_as_what_it_was() -> None:
    sealed = RING.seal_arguments(PLAIN, "a", "m.f")
    assert sealed.startswith(b"sealed:k1:")
    assert b"secret" not in sealed
    assert is_hidden(sealed)
    assert RING.open_arguments(sealed, "a", "m.f") == PLAIN
    assert RING.seal_arguments(PLAIN, "a", "m.f") == sealed  # if_exists="extend" compares it
    assert RING.seal(b"", "a", Content.RESULT) == b""


def test_all_keys_open_and_the_first_seals() -> None:
    sealed = KeyRing(K2).seal_arguments(PLAIN, "a", "m.f")
    assert key_of(sealed) == "k2"
    assert note_of(sealed) == "(sealed with key k2)"
    assert RING.open_arguments(sealed, "a", "m.f") == PLAIN


@pytest.mark.parametrize("series", ["nightly", "tenant@17", "a@1@2"])
def test_the_ticks_of_a_series_have_what_was_sealed_for_it(series: str) -> None:
    sealed = RING.seal_arguments(PLAIN, series, "m.f")
    assert RING.open_arguments(sealed, f"{series}@1795253566123", "m.f") == PLAIN


def test_only_whole_errors_of_a_history_are_taken_for_sealed_ones() -> None:
    sealed = RING.seal_error(b"boom", "a")
    lines = [
        b"1795253566123 retry 1 1795253566000 1 " + sealed,
        b"1795253566123 retry 2 1795253566000 1 it says " + sealed,
        b"1795253566123 put_off 1795253566000 1795253567000 1",
    ]
    history = b"\n".join(lines) + b"\n"
    opened = replace_in_history(history, lambda one: RING.open(one, "a", Content.ERROR))
    assert opened == history.replace(sealed, b"boom", 1)


SEALED = RING.seal_arguments(PLAIN, "a", "m.f")


@pytest.mark.parametrize(
    ("ring", "stored", "id", "func", "fault"),
    [
        (RING, SEALED, "b", "m.f", "does not open it"),
        (RING, SEALED, "a", "m.g", "does not open it"),
        (KeyRing(key("k1", 9)), SEALED, "a", "m.f", "it is another key"),
        (RING, SEALED[:-4] + b"AAA=", "a", "m.f", "the record was changed"),
        (RING, b"sealed:k1:AAAA", "a", "m.f", "does not open it"),
        (RING, b"sealed:k1:A", "a", "m.f", "does not open it"),
        (RING, b"sealed:", "a", "m.f", "it was damaged"),
        (KeyRing(K2), SEALED, "a", "m.f", "sealed with key k1, which is not among"),
        (RING, RING.seal(PLAIN, "a", Content.RESULT), "a", "m.f", "does not open it"),
    ],
)
def test_nothing_else_opens(ring: KeyRing, stored: bytes, id: str, func: str, fault: str) -> None:
    with pytest.raises(NotOpened, match=fault):
        ring.open_arguments(stored, id, func)


def test_arguments_do_not_open_as_a_result() -> None:
    for content in Content:
        with pytest.raises(NotOpened, match="does not open it"):
            RING.open(SEALED, "a", content)


@pytest.mark.parametrize("line", ["b" * 120, "x" * 500, "ä" * 300])
@pytest.mark.parametrize("name", ["k", "k" * 32])
def test_the_last_line_of_an_error_fits_into_the_history(line: str, name: str) -> None:
    ring = KeyRing(key(name))
    text = f"Traceback\n{line}".encode()
    sealed, last = ring.seal_error(text, "a").split(b"\n")
    assert ring.open(sealed, "a", Content.ERROR) == text
    assert len(last) <= LONGEST_LINE
    assert line.encode().startswith(ring.open(last, "a", Content.ERROR))
    assert len(ring.open(last, "a", Content.ERROR)) >= 100


def test_a_short_error_is_one_line() -> None:
    assert b"\n" not in RING.seal_error(b"boom", "a")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "there is none"),
        ("k1", "number 1 is no key"),
        (f"{K1} k2:AAAA", "number 2 is no key"),
        (f"{K1} k2:no-base64", "number 2 is no key"),
        (f"{K1},{K1}", "number 2 has the name of another, 'k1'"),
        (f"a b:{K1}", "number 1 is no key"),
    ],
)
def test_what_are_no_keys_is_refused_and_not_shown(
    text: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_KEYS", text or " ")
    with pytest.raises(InvalidSetting, match=fault) as refused:
        Settings.read()
    assert K1.partition(":")[2] not in str(refused.value)
    assert "AAAA" not in str(refused.value)


def test_settings_do_not_show_keys() -> None:
    settings = Settings(keys=f"{K1} {K2}")
    assert K1.partition(":")[2] not in repr(settings)
    assert list(parse_keys(settings.keys)) == ["k1", "k2"]
    ring = settings.key_ring
    assert ring is not None
    assert ring.first == "k1"
    assert Settings().key_ring is None


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(InvalidSetting, match=r"pip install 'expirebridge\[crypto\]'"):
        KeyRing(K1)
