"""Writes the arguments of new tasks as their records hold them: as JSON, or encoded by a codec."""

import functools

from expirebridge.model import keys
from expirebridge.model.codec import Codec, encode_large, load_codec
from expirebridge.store.commands.call import Outside, Steps
from expirebridge.store.commands.producing import NewTask


class ArgumentWriter:
    """Writes arguments for the tasks of one bridge, once the id of each is final."""

    def __init__(self, codec: Codec | str | None = None) -> None:
        self._codec = codec

    @property
    def is_plain(self) -> bool:
        """True if all arguments stay as they are."""
        return self._codec is None

    @property
    def takes_large(self) -> bool:
        """True if arguments may have more than 64 KiB."""
        return self._codec is not None

    def write(self, new: NewTask) -> Steps[NewTask]:
        """Return the task with its arguments as the record holds them.

        Raises InvalidTask or InvalidSetting if the codec cannot be used, and what it raises itself.
        """
        args = new.fields.get("args")
        if self._codec is None or not isinstance(args, bytes) or len(args) <= keys.MAX_ARGS:
            return new
        codec = load_codec(self._codec)
        encoded = yield from Outside(functools.partial(encode_large, codec, args, new.id))
        return new._replace(fields=new.fields | {"args": encoded})


PLAIN = ArgumentWriter()
"""Writes JSON, and nothing else."""
