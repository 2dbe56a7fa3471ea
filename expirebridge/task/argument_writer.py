"""Writes the arguments of new tasks as their records hold them: as JSON, encoded, or sealed."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from expirebridge.capabilities import given
from expirebridge.task import keys
from expirebridge.task.calls.call import Outside, Steps
from expirebridge.task.calls.producing import NewTask
from expirebridge.task.codec import Codec, encode_large, load_codec

if TYPE_CHECKING:
    from expirebridge.task.key_ring import KeyRing


class ClearValues(Protocol):
    """Finds what a capability reads of arguments, to have it in clear beside hidden ones."""

    def of(self, funcs: Sequence[str], args: bytes) -> Steps[bytes]:
        """Return what stands behind these arguments in a record, for each of the functions."""


class GivesClearValues(Protocol):
    """The module `clear_values` of a capability."""

    def values_in_clear(self) -> ClearValues:
        """Return what finds them for one bridge."""


class ArgumentWriter:
    """Writes arguments for the tasks of one bridge, once the id of each is final."""

    def __init__(self, codec: Codec | str | None = None, key_ring: "KeyRing | None" = None) -> None:
        self._codec = codec
        self._key_ring = key_ring

    @functools.cached_property
    def _clear_values(self) -> Sequence[ClearValues]:
        modules = cast("tuple[GivesClearValues, ...]", given("clear_values"))
        return [module.values_in_clear() for module in modules]

    @property
    def is_plain(self) -> bool:
        """True if all arguments stay as they are."""
        return self._codec is None and self._key_ring is None

    @property
    def takes_large(self) -> bool:
        """True if arguments may have more than 64 KiB."""
        return self._codec is not None

    @property
    def seals(self) -> bool:
        """True if arguments are sealed, and so are never in a key's name."""
        return self._key_ring is not None

    def write(self, new: NewTask) -> Steps[NewTask]:
        """Return the task with its arguments as the record holds them.

        Raises InvalidTask or InvalidSetting if the codec cannot be used, and what it raises itself.
        """
        args = new.fields.get("args")
        if self.is_plain or not isinstance(args, bytes):
            return new
        stored = yield from self.stored(new.funcs, new.id, args)
        return new._replace(fields=new.fields | {"args": stored})

    def stored(self, funcs: Sequence[str], id: str, args: bytes) -> Steps[bytes]:
        """Return arguments of a task, JSON, as its record holds them. Raises as `write`.

        `funcs` are its function, and that of its signal, if it may have one.
        """
        stored = args
        if self._codec is not None and len(args) > keys.MAX_ARGS:
            codec = load_codec(self._codec)
            stored = yield from Outside(functools.partial(encode_large, codec, args, id))
        stored = self.sealed(stored, id, *funcs)
        if stored is not args:
            for values in self._clear_values:
                stored += yield from values.of(funcs, args)
        return stored

    def sealed(self, args: bytes, id: str, *funcs: str) -> bytes:
        """Return arguments sealed for a task or a series, if there is a key."""
        return args if self._key_ring is None else self._key_ring.seal_arguments(args, id, *funcs)

    def definition(self, name: str, digest: str) -> str:
        """What is stored of a group that has this digest, with which nobody can try arguments.

        With keys one word for each, of which the first is stored, and any is compared.
        """
        if self._key_ring is None:
            return digest
        return " ".join(self._key_ring.digests(f"{name} {digest}".encode()))


PLAIN = ArgumentWriter()
"""Writes JSON, and nothing else."""
