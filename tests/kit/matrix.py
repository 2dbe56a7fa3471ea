"""Which tests run against which servers, in which part of the suite, and how many each passed.

`make test` runs the quick part: what the product does, on the embedded server and with SQLite, and
in short on that of the system, too. `make test-rest` runs all else. What was asked for must have
been found, and used; and CI, which installs all, must lack nothing.
"""

import os
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.faults.stage import ROUNDS
from tests.kit import databases
from tests.kit.servers import ASKED, DOCKER, EMBEDDED, FEW, NAMES, PART, QUICK, version_of

PASSED: Counter[str] = Counter()
"""Tests that passed against each server, and with each SQL database."""

SECONDS: defaultdict[str, float] = defaultdict(float)
"""Seconds of the tests of each subject, a folder of tests/."""

MOST_SUBJECTS = 10
"""That the summary lists."""

LACKS: set[str] = set()
"""What tests were skipped for want of."""

STRICT = bool(ASKED or os.environ.get("CI"))
"""Whether a run fails that lacks something. One that takes what happens to be there may."""


def pytest_report_header() -> list[str]:
    servers = [f"server {name}: {version_of(name)}" for name in NAMES]
    return servers + [f"database {name}: {databases.version_of(name)}" for name in databases.NAMES]


def pytest_sessionstart() -> None:
    if missing := set(ASKED) - set(NAMES):
        raise pytest.UsageError(
            f"EXPIREBRIDGE_TEST_SERVERS asks for {', '.join(sorted(missing))}: not found here"
        )


OLDEST, NEWEST = "redis-6.2", "redis-8.0"
"""The oldest server that is supported, which knows no functions, and the newest Redis. The newest
Valkey is the embedded one.
"""

NOT_QUICK = {"conformance", "faults", "machine"}
"""Folders whose tests are all of the other part."""


def _suits(server: str, level: str) -> bool:
    """Whether a test runs on a server beside the embedded one: see `pytest.mark.servers`."""
    match level:
        case "every":
            return server != DOCKER
        case "container":  # it differs from its kind in how it is reached, and in nothing else
            return True
        case "ends":
            return server in {OLDEST, NEWEST}
        case "oldest":
            return server == OLDEST
        case _:
            raise ValueError(f"pytest.mark.servers({level!r}): no such level")


def _level_of(item: pytest.Item) -> str | None:
    """Which servers could change the result of a test, as its module's mark says it."""
    mark = item.get_closest_marker("servers")
    return None if mark is None else mark.args[0]


def _those(names: list[str], level: str) -> list[str]:
    return [name for name in names if name == EMBEDDED or _suits(name, level)]


def _quick_servers_for(item: pytest.Item) -> list[str]:
    level = _level_of(item)
    return (_those(QUICK, level) if level and level != "container" else []) or QUICK[:1]


def _servers_for(item: pytest.Item) -> list[str]:
    """The embedded server runs every test, another one those whose result it could change."""
    folder, level = item.path.parent.name, _level_of(item)
    if PART == "quick":
        return _quick_servers_for(item)
    if level:
        return _those(NAMES, level) if PART else NAMES
    if folder == "conformance":
        wanted = {*FEW, OLDEST} if EMBEDDED in NAMES else {OLDEST}
        return [name for name in NAMES if name in wanted]
    return FEW if ROUNDS > 1 or (folder == "machine" and not PART) else FEW[:1]


def _databases_for(item: pytest.Item) -> list[str]:
    if PART == "quick" or item.get_closest_marker("one_database"):
        return [databases.SQLITE]
    # Django's driver for MySQL, mysqlclient, is not among the tests' own.
    without = {databases.MARIADB} if item.path.parent.name == "django" else set()
    return [name for name in databases.NAMES if name not in without]


def _parameters(item: pytest.Item) -> dict[str, object]:
    call = getattr(item, "callspec", None)
    return {} if call is None else call.params


def _is_quick(item: pytest.Item) -> bool:
    others = {*NAMES, *databases.NAMES} - {*_quick_servers_for(item), databases.SQLITE}
    names = {value for value in _parameters(item).values() if isinstance(value, str)}
    return (
        item.path.parent.name not in NOT_QUICK
        and item.get_closest_marker("rest") is None
        and not names & others
    )


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """What has no test of the part is not even read for it."""
    is_subject = collection_path.parent.name == "tests" and collection_path.is_dir()
    return (PART == "quick" and is_subject and collection_path.name in NOT_QUICK) or None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "shared_server" in metafunc.fixturenames:
        names = _servers_for(metafunc.definition)
        metafunc.parametrize("shared_server", names, indirect=True, scope="session")
    if "shared_database" in metafunc.fixturenames:
        names = _databases_for(metafunc.definition)
        metafunc.parametrize("shared_database", names, indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Write down which server and which database each test uses; keep those of the part."""
    known = [*NAMES, *databases.NAMES]
    for item in items:
        values = _parameters(item).values()
        item.user_properties += [("server", value) for value in values if value in known]
    if PART:
        kept, left = list[pytest.Item](), list[pytest.Item]()
        for item in items:
            (kept if _is_quick(item) == (PART == "quick") else left).append(item)
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    SECONDS[Path(report.nodeid.partition("::")[0]).parent.name] += report.duration
    if report.when == "call" and report.passed:
        PASSED.update(str(value) for name, value in report.user_properties if name == "server")
    if report.skipped and isinstance(report.longrepr, tuple) and "needs" in report.longrepr[2]:
        LACKS.add(report.longrepr[2])


def _unused() -> list[str]:
    return [name for name in ASKED if not PASSED[name]]


def pytest_sessionfinish(session: pytest.Session) -> None:
    options = session.config.option
    if PART and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not options.keyword:
        session.exitstatus = pytest.ExitCode.OK  # all tests of a subject may be of the other part
    # What was asked for must not have been skipped in silence. A few tests are no such run.
    lacking = _unused() or (STRICT and LACKS)
    if lacking and not (options.collectonly or getattr(options, "lf", False)):
        session.exitstatus = pytest.ExitCode.USAGE_ERROR


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    slowest = sorted(SECONDS.items(), key=lambda item: item[1], reverse=True)
    for subject, seconds in slowest[:MOST_SUBJECTS]:
        terminalreporter.write_line(f"{seconds:7.1f} s of tests in {subject}")
    for name in NAMES:
        terminalreporter.write_line(f"server {name}: {PASSED[name]} passed")
    for name in databases.NAMES:
        if PASSED[name]:
            terminalreporter.write_line(f"database {name}: {PASSED[name]} passed")
    if STRICT and LACKS:
        terminalreporter.write_line(f"skipped: {', '.join(sorted(LACKS))}", red=True)
    if (unused := _unused()) and not getattr(terminalreporter.config.option, "lf", False):
        terminalreporter.write_line(
            f"EXPIREBRIDGE_TEST_SERVERS asks for {', '.join(unused)}: no test used it", red=True
        )
