"""The other libraries: what they schedule in a server is theirs alone, and no copy of it."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import URL

from tests.kit.patience import PATIENCE

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[1] / ".venv-sources"
HOUR = 3_600_000


def bullmq(url: str, **what: Any) -> None:
    """Let BullMQ do this."""
    if shutil.which("node") is None or not (HERE / "node_modules" / "bullmq").exists():
        pytest.skip("needs node, and BullMQ: make sources")
    _run(["node", HERE / "schedule_bullmq.cjs", url], what)


def celery(url: str, *, transport: dict[str, Any] | None = None, **what: Any) -> None:
    """Let Celery do this."""
    _run([_program("celery", "python"), HERE / "schedule_celery.py"], what, _broker(url, transport))


@contextmanager
def celery_worker(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of Celery; it is killed at the end, as a machine that fails would kill it."""
    words = ["--app", "schedule_celery", "worker", "--pool", "solo", "--loglevel", "CRITICAL"]
    process = subprocess.Popen(
        [_program("celery", "celery"), *words], cwd=HERE, env=os.environ | _broker(url, None),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def arq(url: str, **what: Any) -> None:
    """Let arq do this."""
    _run([_program("arq", "python"), HERE / "schedule_arq.py", url], what)


def django_celery_beat(database: URL, tasks: list[dict[str, Any]]) -> None:
    """Let Django write the tables and rows of django-celery-beat."""
    engine = {"sqlite": "sqlite3", "postgresql": "postgresql"}[database.get_backend_name()]
    settings = {
        "ENGINE": f"django.db.backends.{engine}", "NAME": database.database,
        "USER": database.username or "", "HOST": database.host or "", "PORT": database.port or "",
    }  # fmt: skip
    script = HERE / "schedule_django_celery_beat.py"
    # Not with this folder on its path, whose modules have names of libraries.
    _run([_program("django-celery-beat", "python"), "-P", script, json.dumps(settings)], tasks)


def apscheduler(database: URL, jobs: list[dict[str, Any]]) -> None:
    """Let APScheduler add jobs."""
    script = HERE / "schedule_apscheduler.py"
    _run([_program("apscheduler", "python"), script, database.render_as_string()], jobs)


def snapshot(url: str) -> dict[bytes, tuple[object, object]]:
    """All that a database holds, to see that an import changes nothing."""
    with redis.Redis.from_url(url) as client:
        return {key: (client.dump(key), client.pexpiretime(key)) for key in client.scan_iter()}


def until_held(client: redis.Redis, words: bytes) -> None:
    """Wait until a worker of Celery holds such a message; the test's own timeout is the limit."""
    while not any(words in message for message in client.hvals("unacked")):
        time.sleep(0.02)


def _broker(url: str, transport: dict[str, Any] | None) -> dict[str, str]:
    return {"BROKER": url, "TRANSPORT": json.dumps(transport or {})}


def _program(library: str, name: str) -> Path:
    program = ENVIRONMENTS / library / "bin" / name
    if not program.exists():
        pytest.skip(f"needs {library}: make sources")
    return program


def _run(words: list[str | Path], what: object, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        words, input=json.dumps(what), env=os.environ | (env or {}), capture_output=True,
        text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
