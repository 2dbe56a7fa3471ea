"""Runs Django's own tests of backends for tasks, with ours in the place of Django's.

It is a program of its own: `python -m tests.django.djangos_own.run FOLDER`, where the folder holds
`tests/tasks` of Django's source distribution. It prints what Django's runner prints.
"""

import os
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path

HERE = "tests.django.djangos_own.standing_in"
APPS = ["expirebridge.contrib.django", "tasks"]
MODULES = ("test_tasks", "test_dummy_backend", "test_immediate_backend")
LEFT_OUT = {
    "test_clear": "it is of Django's DummyBackend alone",
    "test_refresh_result": "it changes what Django's DummyBackend holds in memory",
    "test_refresh_result_async": "it changes what Django's DummyBackend holds in memory",
    "test_cannot_get_result": "ours can",
    "test_cannot_refresh_result": "ours can",
    "test_cannot_pass_run_after": "ours can",
}
"""Tests of what ours does not do, or does better; those of test_tasks keep their names there."""


def copied(source: Path, folder: Path) -> None:
    """Copy the tests into a package `tasks`, with the names of our backends."""
    package = folder / "tasks"
    package.mkdir()
    for file in source.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        for theirs in ("django.tasks.backends.dummy", "django.tasks.backends.immediate"):
            text = text.replace(theirs, HERE)
        # Their backends need no app.
        text = text.replace("available_apps = []", f"available_apps = {APPS}")
        (package / file.name).write_text(text, encoding="utf-8")


def set_up() -> None:
    """Set Django up for them."""
    import django
    from django.conf import settings

    settings.configure(
        INSTALLED_APPS=APPS,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        TASKS={"default": {"BACKEND": f"{HERE}.DummyBackend"}},
        USE_TZ=True,
    )
    django.setup()


def each(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """All tests of a suite."""
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from each(one)
        else:
            yield one


def main() -> None:
    """Run the tests; the exit code tells whether all passed."""
    folder = Path(sys.argv[1])
    copied(folder / "tests" / "tasks", Path.cwd())
    sys.path.insert(0, str(Path.cwd()))
    os.environ.pop("DJANGO_SETTINGS_MODULE", None)
    set_up()
    from django.test.runner import DiscoverRunner

    from tests.django.djangos_own.standing_in import CLOCK

    runner = DiscoverRunner(verbosity=1)
    found = runner.build_suite([f"tasks.{name}" for name in MODULES])
    chosen = [test for test in each(found) if test.id().rpartition(".")[2] not in LEFT_OUT]
    databases = runner.setup_databases()
    with CLOCK:
        result = runner.run_suite(unittest.TestSuite(chosen))
    runner.teardown_databases(databases)
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
