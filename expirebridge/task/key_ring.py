"""Seals arguments, results and errors with keys that the server does not have, and opens them.

What is sealed is text: `sealed:<name of the key>:<base64>`. JSON never begins so. AES-SIV gives the
same text for the same arguments of the same task, so that `if_exists="extend"` can compare it.
"""

import functools
import hmac
import re
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Callable
from enum import StrEnum

from expirebridge.errors import InvalidSetting

MARK = b"sealed:"
"""What sealed text begins with."""
LONGEST_LINE = 200
"""How many characters of an error a line of a task's history has; see history.lua."""
SEALED = rb"sealed:([A-Za-z0-9_-]{1,32}):([A-Za-z0-9+/]+={0,2})"
"""Sealed text, with the name of its key, and its base64."""
_ARGUMENTS = "arguments"
_DIGESTS = b"expirebridge: digests"
_CHECK = b"expirebridge: check"
_KEY = r"([A-Za-z0-9_-]{1,32}):(\S+)"
_SIZES = {32, 48, 64}
_LINE = rb"(?m)^((?:\S+ ){5})(" + SEALED + rb")$"
"""A line of a history whose error is sealed; see history.lua."""
_TICK = r"(?:@[0-9]+)+\Z"
_ADVICE = "write name:base64, the base64 of 32, 48 or 64 random bytes; separate keys by spaces"


class Content(StrEnum):
    """What is sealed beside arguments: one does not open as the other."""

    RESULT = "result"
    ERROR = "error"
    SIGNAL = "signal"


class NotOpened(ValueError):
    """Sealed text was not opened; the message says why."""


class KeyRing:
    """Keys by their names, of which the first one seals and all open. Safe for threads.

    Raises InvalidSetting for what are no keys, and if `cryptography` is not installed.
    """

    def __init__(self, text: str) -> None:
        keys = parse_keys(text)
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESSIV  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as missing:
            raise InvalidSetting(
                f"keys: sealing needs {missing.name}: pip install 'expirebridge[crypto]'"
            ) from None
        self._ciphers = {name: AESSIV(key) for name, key in keys.items()}
        self._digest_keys = {
            name: hmac.digest(key, _DIGESTS, "sha256") for name, key in keys.items()
        }
        self.checks = tuple(
            f"{name}:{hmac.digest(key, _CHECK, 'sha256').hex()[:12]}" for name, key in keys.items()
        )
        """The name of each key, and what tells it from another of that name; no secret."""
        self.names = frozenset(keys)
        """The names of all keys."""
        self.first = next(iter(keys))
        """The name of the key that seals."""

    def seal_arguments(self, plain: bytes, id: str, *funcs: str) -> bytes:
        """Seal the arguments of a task: for no other functions do they open.

        There are two if a signal chooses: that of the deadline, and that of the signal.
        """
        return self._seal(plain, _bound_to(id, _ARGUMENTS, *funcs))

    def open_arguments(self, stored: bytes, id: str, *funcs: str) -> bytes:
        """Open the arguments of a task, without values that stand behind them. Raises NotOpened."""
        return self._open(stored.partition(b" ")[0], _bound_to(id, _ARGUMENTS, *funcs))

    def seal(self, plain: bytes, id: str, content: Content) -> bytes:
        """Seal a part of the task of this id; what is empty stays so."""
        return self._seal(plain, _bound_to(id, content)) if plain else plain

    def open(self, stored: bytes, id: str, content: Content) -> bytes:
        """Open what was sealed for the task of this id. Raises NotOpened."""
        return self._open(stored, _bound_to(id, content))

    def _seal(self, plain: bytes, bound: list[bytes]) -> bytes:
        sealed = self._ciphers[self.first].encrypt(plain, bound)
        return MARK + self.first.encode() + b":" + b2a_base64(sealed, newline=False)

    def _open(self, stored: bytes, bound: list[bytes]) -> bytes:
        # Here, so that a producer that only seals does without.
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

        form = re.fullmatch(SEALED, stored)
        if form is None:
            raise NotOpened("it was damaged")
        name = form[1].decode()
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise NotOpened(f"it is sealed with key {name}, which is not among the keys here")
        try:
            return cipher.decrypt(a2b_base64(form[2]), bound)
        except (InvalidTag, Error, ValueError):
            raise NotOpened(
                f"it is sealed with key {name}, and the key of that name here does not open it: "
                "it is another key, or the record was changed, or copied from another task"
            ) from None

    def digests(self, text: bytes) -> list[str]:
        """A digest of a text by each key, that of the first one first, with its name.

        Nobody without the key can try what a digest is of.
        """
        return [
            f"{name}:{hmac.digest(key, text, 'sha256').hex()}"
            for name, key in self._digest_keys.items()
        ]

    def seal_error(self, text: bytes, id: str) -> bytes:
        """Seal an error, and again its last line, which is what a task's history keeps."""
        sealed = self.seal(text, id, Content.ERROR)
        if len(sealed) <= LONGEST_LINE:
            return sealed
        return sealed + b"\n" + self.seal_line(text.rpartition(b"\n")[2], id)

    def seal_line(self, line: bytes, id: str) -> bytes:
        """Seal an error's last line, cut so that a line of a history has room for it."""
        # As base64, with the 16 bytes that AES-SIV adds.
        most = (LONGEST_LINE - len(MARK) - len(self.first) - 1) // 4 * 3 - 16
        return self.seal(line[:most], id, Content.ERROR)


@functools.lru_cache(maxsize=16)
def key_ring(text: str) -> KeyRing:
    """Return the ring of these keys, which all bridges and listeners of a process share."""
    return KeyRing(text)


def parse_keys(text: object) -> dict[str, bytes]:
    """Read a key ring from text. Raises InvalidSetting, which never quotes a key."""
    if not isinstance(text, str):
        raise InvalidSetting(f"keys: it must be text: {_ADVICE}")
    keys: dict[str, bytes] = {}
    for place, word in enumerate(text.replace(",", " ").split(), start=1):
        found = re.fullmatch(_KEY, word)
        try:
            key = a2b_base64(found[2], strict_mode=True) if found is not None else b""
        except ValueError:
            key = b""
        if found is None or len(key) not in _SIZES:
            raise InvalidSetting(f"keys: number {place} is no key: {_ADVICE}")
        if found[1] in keys:
            raise InvalidSetting(f"keys: number {place} has the name of another, {found[1]!r}")
        keys[found[1]] = key
    if not keys:
        raise InvalidSetting(f"keys: there is none: {_ADVICE}")
    return keys


def key_of(stored: bytes) -> str | None:
    """The name of the key with which this was sealed; None if it was not."""
    form = re.match(SEALED, stored)
    return form[1].decode() if form is not None else None


def note_of(stored: bytes) -> str:
    """What is shown in place of what was sealed and is not opened."""
    name = key_of(stored)
    return "(sealed, and damaged)" if name is None else f"(sealed with key {name})"


def replace_in_history(history: bytes, replace: Callable[[bytes], bytes]) -> bytes:
    """Replace each sealed error in a history."""
    if MARK not in history:
        return history
    return re.sub(_LINE, lambda line: line[1] + replace(line[2]), history)


def _bound_to(id: str, *what: str) -> list[bytes]:
    """The associated data. A tick, `<series>@<ms>`, has what was sealed for its series.

    The id of a series may end so, too.
    """
    return [part.encode() for part in ("expirebridge", re.sub(_TICK, "", id), *what)]
