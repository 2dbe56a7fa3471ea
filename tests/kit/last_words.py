"""What a failed test knows is printed beside its traceback.

That is: the logs of the processes that it started, what the listeners in this process reported,
and what its servers hold of each task that is not simply waiting for its time, or over.
"""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.kit.process_logs import log_sizes
from tests.kit.witness import Witness

MOST_LINES = 100
"""Of a log, and of the reports of a listener: the last ones."""
MOST_TASKS = 20
MOST_KEYS = 20_000
"""That are looked at on a server."""
ANSWER = 2.0
"""Seconds that a server has to answer: the test may have broken it, and its words are a favour."""

_sizes = pytest.StashKey[dict[Path, int]]()
"""Of the logs, when the test began."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_sizes] = log_sizes()
    Witness.all.clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        try:
            report.sections += _words(item)
        except Exception as error:
            report.sections.append(("Last words", f"none: {error!r}"))
    return report


def _words(item: pytest.Item) -> Iterator[tuple[str, str]]:
    for file, size in log_sizes().items():
        if size > item.stash[_sizes].get(file, 0):
            yield f"Log {file}", _last(file.read_text(errors="replace").splitlines())
    for number, witness in enumerate(Witness.all, 1):
        if witness.events:
            yield f"Events of witness {number}", _last([repr(event) for event in witness.events])
    for url in _urls(item):
        yield f"Tasks of {url}", _tasks(url)


def _last(lines: list[str]) -> str:
    left_out = len(lines) - MOST_LINES
    first = [f"({left_out} lines before)"] if left_out > 0 else []
    return "\n".join(first + lines[-MOST_LINES:])


def _urls(item: pytest.Item) -> list[str]:
    """Where the servers are that the test's fixtures name."""
    found: dict[str, None] = {}
    for value in getattr(item, "funcargs", {}).values():
        for one in (value, *getattr(value, "nodes", ())):
            url = one if isinstance(one, str) else getattr(one, "url", None)
            if isinstance(url, str) and url.startswith(("redis://", "rediss://", "unix://")):
                found[url.partition("?")[0].rpartition("/")[0]] = None
    return list(found)


def _tasks(url: str) -> str:
    try:
        with _client(url, 0) as client:
            databases = [int(name.removeprefix("db")) for name in client.info("keyspace")]
        lines: list[str] = []
        for database in databases:
            with _client(url, database) as client:
                lines += [f"database {database}: {line}" for line in _tasks_in(client)]
    except redis.RedisError as error:
        return f"cannot be read: {error!r}"
    return "\n".join(lines) or "none but those that wait for their time, or are over"


def _client(url: str, database: int) -> redis.Redis:
    return redis.Redis.from_url(
        f"{url}/{database}", socket_timeout=ANSWER, socket_connect_timeout=ANSWER,
        decode_responses=True, encoding_errors="backslashreplace", retry=Retry(NoBackoff(), 0),
    )  # fmt: skip


def _tasks_in(client: redis.Redis) -> Iterator[str]:
    """The listeners of a database, and its tasks that are on their way."""
    now = client.time()[0] * 1000
    shown = 0
    for number, key in enumerate(client.scan_iter(count=1000)):
        if number >= MOST_KEYS:
            yield f"there are more than {MOST_KEYS} keys"
            return
        before, found, id = key.partition("expirebridge:task:")
        if key.endswith("expirebridge:listeners"):
            yield f"{key}: {client.zrange(key, 0, -1, withscores=True)}"
        if not found:
            continue
        record: dict[Any, Any] = client.hgetall(key)
        state = record.get("state", "pending")
        at = client.zscore(f"{before}expirebridge:{state}", id)
        if state in {"succeeded", "cancelled", "paused"} or (
            state == "pending" and at is not None and float(at) > now
        ):
            continue
        if shown == MOST_TASKS:
            yield "and others"
            return
        shown += 1
        timer = record.get("key", f"{id}:?{record.get('call', '')}")
        yield f"{id}: {state}, looked at {at} (now {now}), {client.pttl(timer)} ms left of its key"
        history = record.pop("history", "")
        yield f"    {record}"
        yield from (f"    {line}" for line in history.splitlines())
