"""A Django project in a folder of its own, whose commands and listeners are processes."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from expirebridge import Bridge, Task
from tests.kit.patience import PATIENCE, until
from tests.kit.prepared_python import Process, Python
from tests.kit.process_logs import noted
from tests.kit.processes import ROOT

MANAGE = """
import os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
SETTINGS = """
import os
SECRET_KEY = "of a test"
INSTALLED_APPS = ["expirebridge.contrib.django", "shop"]
DATABASES = {databases!r}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
EXPIREBRIDGE = {expirebridge!r}
"""
SQLITE_OPTIONS = {"transaction_mode": "IMMEDIATE", "timeout": PATIENCE}
"""Of a database that a listener writes into as well: docs/reference/ledger.md."""
HANDLERS = """
import os
from django.apps import apps
import redis

def _report(word):
    assert apps.ready
    redis.Redis.from_url(os.environ["REPORTS"]).rpush("reports", word)
"""
"""The begin of a module of handlers."""


class DjangoProject:
    """A project `mysite` with an app `shop`."""

    def __init__(self, folder: Path, url: str, python: Python) -> None:
        self.folder = folder
        self.python = python
        self._versions = 0
        self.url = url
        sqlite = {
            "ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "db.sqlite3"),
            "OPTIONS": SQLITE_OPTIONS,
        }  # fmt: skip
        self.databases: dict[str, dict[str, Any]] = {"default": sqlite}
        self.expirebridge: dict[str, Any] = {"URL": url}
        """The setting EXPIREBRIDGE."""
        self.more_settings = ""
        self.write("manage.py", MANAGE)
        self.write("mysite/__init__.py", "")
        self.write("shop/__init__.py", "")
        self.write("shop/models.py", "")
        self._place = f"{url.rpartition('/')[0]}/2"
        """Where handlers report: in another database."""
        self._reports = redis.Redis.from_url(self._place, socket_timeout=PATIENCE + 10)

    def write(self, name: str, text: str) -> None:
        """Write a file, whose parents are made. A process that starts reads all of it, or none."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f"{file.name}.new")
        new.write_text(text)
        # Python takes byte code for that of a file with the same size and second.
        self._versions += 1
        os.utime(new, (self._versions, self._versions))
        new.replace(file)

    def close(self) -> None:
        """Close the connection on which handlers report."""
        self._reports.close()

    def report(self) -> str:
        """Wait for the next word that a handler reports."""
        popped: Any = self._reports.blpop(["reports"], timeout=PATIENCE)
        assert popped is not None, f"no report in {PATIENCE} s\n{self.log}"
        return str(popped[1].decode())

    def until_state(self, id: str, state: str) -> Task:
        """Wait until a task is in this state."""
        with Bridge(self.url) as bridge:

            def found() -> Task | None:
                task = bridge.get(id)
                return task if task is not None and task.state == state else None

            return until(found, f"task {id}, {state}")

    def environment(self, **more: str) -> dict[str, str]:
        """What processes of the project find there: no setting but what is given here."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("EXPIREBRIDGE_", "DJANGO_", "PYTEST_"))
        }
        return kept | {"PYTHONPATH": str(ROOT), "REPORTS": self._place} | more

    def _write_settings(self) -> None:
        text = SETTINGS.format(databases=self.databases, expirebridge=self.expirebridge)
        self.write("mysite/settings.py", text + self.more_settings)

    def manage(self, *words: str, code: int = 0, **env: str) -> str:
        """Run `manage.py` to its end, which has this exit code; return what it printed."""
        return self.run("manage.py", *words, code=code, **env)

    def run(self, *words: str, code: int = 0, **env: str) -> str:
        """Run Python in the folder to its end, which has this exit code; return what it printed."""
        self._write_settings()
        output = self.folder / "output"
        output.write_text("")
        process = self.python.started(words, self.folder, self.environment(**env), output)
        try:
            ended = process.wait()
        finally:
            process.send_signal(signal.SIGKILL)  # if it runs on
        assert ended == code, output.read_text()
        return output.read_text()

    def program(self, text: str, **env: str) -> str:
        """Run a program in the project, which is set up, and succeeds."""
        begin = "import django\ndjango.setup()\n"
        env["DJANGO_SETTINGS_MODULE"] = "mysite.settings"
        return self.run("-c", begin + text, code=0, **env)

    @property
    def log(self) -> str:
        """What listeners have logged."""
        return (self.folder / "listener.log").read_text()

    def until_logged(self, words: str, *, times: int = 1) -> None:
        """Wait until listeners have logged this so often."""
        until(lambda: self.log.count(words) >= times, f"the listeners' words: {words}")

    @contextmanager
    def listening(
        self, *options: str, command: tuple[str, ...] = ("manage.py", "expirebridge"), **env: str
    ) -> Iterator[Process]:
        """A listener of the project, which is up when the block begins, and ends with it."""
        self._write_settings()
        log = noted(self.folder / "listener.log")
        log.touch()
        words = (*command, "listen", *options)
        process = self.python.started(words, self.folder, self.environment(**env), log)
        try:
            until(
                lambda: "listening on" in self.log or process.poll() is not None,
                "a listener of the project",
            )
            assert process.poll() is None, self.log
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
