"""The name that may have been meant."""

import difflib
from collections.abc import Iterable
from pathlib import Path


def suggestion(name: str, known: Iterable[str]) -> str:
    """What may have been meant by a name that is not known, as a half sentence; or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def inner_name(dotted: str, folder: Path) -> str | None:
    """The name of a handler by what Python calls it, `tasks.mail.send`; None if it has none.

    What leads to the handlers' folder is no part of the name.
    """
    parts = dotted.split(".")
    above = folder.parts
    for count in range(min(len(above), len(parts)), 0, -1):
        if tuple(parts[:count]) == above[-count:]:
            parts = parts[count:]
            break
    *modules, function = parts
    if not modules or not all(part.isidentifier() and part.isascii() for part in parts):
        return None
    return f"{'/'.join(modules)}.{function}"
