"""Bugs that are planted in scripts, to see that a machine finds them."""

from collections.abc import Iterator
from contextlib import contextmanager

from expirebridge.embedded.server import EmbeddedServer
from expirebridge.store import script_loader

Bug = tuple[str, str, str]
"""The file, what stands in it, and what is put in its place."""


def has_one_place(bug: Bug) -> bool:
    """True if there is just one place in the file for it."""
    name, right, _ = bug
    return script_loader.SHIPPED.text(name).count(right) == 1


@contextmanager
def planted(bug: Bug) -> Iterator[EmbeddedServer]:
    """A server to which scripts with this bug are sent. It is one on every server; one will do."""
    name, right, wrong = bug
    source = script_loader.SHIPPED.text(name)
    library = script_loader.ScriptLibrary({name: source.replace(right, wrong)})
    with script_loader.using(library), EmbeddedServer() as server:
        yield server
