"""Lists the files that run code while a task goes from `make_task` to its outcome.

`python -m tests.kit.walk plain` prints those of the package that somebody has to open who follows
such a task: the modules in which a function runs, in the producer or in its listener, and the Lua
files of which something is in a script that the server ran.

It is the first task of its producer and of its database: whatever is looked up once is part of the
walk. What a listener does at its start is not, nor what it repeats anyway, such as its heartbeats:
here it does so once a day.
"""

import argparse
import asyncio
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import expirebridge
from expirebridge import Bridge, Limit, Settings, Then, handler
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.hooks import End, Scanned
from expirebridge.lateness.roles import DurationRecorder
from expirebridge.store import script_loader
from tests.kit.witness import Witness, listening

PACKAGE = Path(expirebridge.__file__).parent
DAY = 86400.0
DELAY = 2.0
"""Seconds until a task is due: until then all has come to an end that follows its making."""
QUIET = 0.5
"""Seconds in which nothing runs that has not run before: what was to come has come."""
# Names that a shared file gives are declared before its block, and defined without `local`.
_DEFINITION = re.compile(r"^(?:local )?(\w.*)", re.MULTILINE)

Make = Callable[[], object]
"""Makes the tasks of a walk."""


class Tracer:
    """Notes the functions of the package that run, in all threads that are started after it."""

    def __init__(self) -> None:
        self._root = f"{PACKAGE}/"
        self.forget()
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def forget(self) -> None:
        """Start from nothing."""
        self._functions: set[CodeType] = set()
        self._scripts: set[str] = set()

    async def until_quiet(self) -> None:
        """Wait until no function runs that has not run before."""
        known = -1
        while known != len(self._functions):
            known = len(self._functions)
            await asyncio.sleep(QUIET)  # time passes: there is no signal that nothing comes

    def files(self) -> list[str]:
        """Their files by name, Python before Lua."""
        python = {function.co_filename.removeprefix(self._root) for function in self._functions}
        sent = "".join(script_loader.load(name).plain.text for name in self._scripts)
        lines = set(_DEFINITION.findall(sent))
        lua = [path for path in PACKAGE.rglob("*.lua") if self._was_sent(path, lines)]
        return [*sorted(python), *sorted(str(path.relative_to(PACKAGE)) for path in lua)]

    def _was_sent(self, path: Path, lines: set[str]) -> bool:
        """Whether it is a script that ran, or something that it shares is among these lines."""
        match path.parent.name:
            case "functions":  # of other languages
                return False
            case "include":
                definitions = re.findall(
                    r"^local (.*)", path.read_text(encoding="utf-8"), re.MULTILINE
                )
                return not lines.isdisjoint(definitions)
            case _:
                return path.stem in self._scripts

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        function = frame.f_code
        if event != "call" or not function.co_filename.startswith(self._root):
            return
        if function is script_loader.load.__code__:
            self._scripts.add(frame.f_locals["name"])
        if function not in self._functions and not _is_imported(frame):
            self._functions.add(function)


def _is_imported(frame: FrameType) -> bool:
    """Whether it runs only because a module is imported."""
    outer: FrameType | None = frame
    while outer is not None:
        if outer.f_code.co_name == "<module>" and outer.f_globals["__name__"] != "__main__":
            return True
        outer = outer.f_back
    return False


async def send(user: int) -> None:
    """A handler."""


@handler(limit=Limit(1, per="user"))
async def charge(user: int) -> None:
    """A handler that runs for one user at a time."""


@contextmanager
def _plain(settings: Settings) -> Iterator[Make]:
    with Bridge(settings.url) as bridge:
        yield lambda: bridge.make_task("test.send", [1], DELAY)


@contextmanager
def _limited(settings: Settings) -> Iterator[Make]:
    """Of the two one has to wait."""
    with Bridge(settings.url) as bridge:
        yield lambda: [bridge.make_task("test.charge", [1], DELAY) for _ in range(2)]


@contextmanager
def _group(settings: Settings) -> Iterator[Make]:
    """One member, and the follow-up."""
    members = [{"func": "test.send", "args": [1], "delay": DELAY}]
    with Bridge(settings.url) as bridge:
        yield lambda: bridge.make_group("import-7", members, then=Then("test.send", [2]))


@contextmanager
def _ledger(settings: Settings) -> Iterator[Make]:
    from sqlalchemy import create_engine

    from expirebridge.ledger import Ledger

    assert settings.ledger is not None
    engine = create_engine(settings.ledger)
    try:
        ledger = Ledger(engine, redis=settings.url)
        ledger.create()

        def make() -> None:
            with engine.begin() as connection:
                ledger.make_task(connection, "test.send", [1], DELAY)

        yield make
    finally:
        engine.dispose()


WALKS = {
    "plain": (_plain, 1),
    "limited": (_limited, 2),
    "group": (_group, 2),
    "ledger": (_ledger, 1),
}
"""By name: who makes the tasks, and how many come to an outcome."""


async def walk(name: str, settings: Settings) -> list[str]:
    """Follow the walk of this name in this process, and return the names of its files."""
    maker, outcomes = WALKS[name]
    tracer, witness = Tracer(), Witness()
    DurationRecorder.retry_pause = DAY
    with maker(settings) as make:
        async with listening(settings, witness, send=send, charge=charge):
            await witness.until(lambda: witness.seen(Scanned))
            await tracer.until_quiet()
            tracer.forget()
            await asyncio.to_thread(make)
            await witness.until_ended(outcomes, End.SUCCEEDED)
            await tracer.until_quiet()
            return tracer.files()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kit.walk", description=__doc__)
    parser.add_argument("walk", choices=WALKS)
    name = parser.parse_args().walk
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer() as server:
        ledger = f"sqlite:///{folder}/ledger.db" if name == "ledger" else None
        files = asyncio.run(walk(name, Settings(url=server.url, lease=DAY, ledger=ledger)))
    for file in files:
        print(file)  # noqa: T201 - what it is for
    kinds = Counter(Path(file).suffix for file in files)
    print(f"{kinds['.py']} Python files, {kinds['.lua']} Lua files")  # noqa: T201


if __name__ == "__main__":
    main()
