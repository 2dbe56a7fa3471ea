"""The pytest plugin: the fixture `expirebridge`.

Each run of pytest loads it where expirebridge is installed. So nothing is imported here that pytest
has not imported, until a test asks for the fixture.
"""

import os
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from expirebridge.testing.clock import Clock

_FIXTURE = "expirebridge"
_WORKER = "PYTEST_XDIST_WORKER"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings."""
    parser.addini(
        "expirebridge_url",
        "a database for tests of expirebridge, which they empty, instead of an embedded server's; "
        "workers of xdist use the databases from that number on",
        default="",
    )
    parser.addini(
        "expirebridge_tasks",
        "the handlers' folder, from the root of the tests; else EXPIREBRIDGE_TASKS, or tasks",
        default="",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Explain the marker."""
    config.addinivalue_line(
        "markers",
        "expirebridge(tasks=None, handlers=None, python_clock=False): "
        "how the fixture `expirebridge` opens its clock; see expirebridge.testing.Clock",
    )


@pytest.fixture
def expirebridge(request: pytest.FixtureRequest) -> "Iterator[Clock]":
    """An empty database for this test, and its clock: `travel`, `assert_made` and others."""
    from expirebridge.testing.clock import Clock  # noqa: PLC0415 - heavy, and rarely needed

    config = request.config
    folder = config.getini("expirebridge_tasks")
    options: dict[str, Any] = {"tasks": config.rootpath / folder if folder else None}
    if marker := request.node.get_closest_marker("expirebridge"):
        options |= marker.kwargs
    with Clock(_url_of(config.getini("expirebridge_url")), **options) as clock:
        yield clock


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failed test what ran in it, and what waits."""
    report = yield
    clock = getattr(item, "funcargs", {}).get(_FIXTURE)
    if report.failed and report.when == "call" and clock is not None:
        report.sections.append((_FIXTURE, _told_by(clock)))
    return report


def _told_by(clock: object) -> str:
    """The report of a clock, without its tasks if its server is gone."""
    try:
        return str(clock)
    except Exception as error:
        return f"what ran cannot be read: {error}"


def _url_of(url: str) -> str | None:
    """The database of this worker: the one that is named, or one of those that follow it."""
    worker = os.environ.get(_WORKER, "")
    if not url or not worker.startswith("gw"):
        return url or None
    head, _, number = url.rpartition("/")
    if not number.isdigit():
        raise pytest.UsageError("expirebridge_url: it must end with a database's number, as in /1")
    return f"{head}/{int(number) + int(worker.removeprefix('gw'))}"
