"""What the tests say after a run: tables under the names of tests, and the table of the faults.

In a parallel run (pytest-xdist) each worker hands what it gathered to the process that prints.
"""

import pickle
from collections.abc import Callable

import pytest
from xdist.workermanage import WorkerController

from tests.faults.stage import ROUNDS
from tests.faults.table import PAGE, TABLE

_said: list[str] = []


@pytest.fixture
def print_later(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Prints a table after all tests, under the name of the test."""
    return lambda table: _said.append(f"{request.node.name}\n{table}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = output_of_worker(session.config)
    if output is not None:
        output["gathered"] = pickle.dumps((_said, TABLE))


def output_of_worker(config: pytest.Config) -> dict[str, bytes] | None:
    """What this process hands over; None if it is not a worker."""
    output: dict[str, bytes] | None = getattr(config, "workeroutput", None)
    return output


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController) -> None:
    # One that crashed has none, and its tests have failed.
    if output := getattr(node, "workeroutput", None):
        said, table = pickle.loads(output["gathered"])  # noqa: S301 - of our own process
        _said.extend(said)
        TABLE.include(table)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: pytest.ExitCode, config: pytest.Config
) -> None:
    if output_of_worker(config) is not None:  # it has a summary, too, of its own tests alone
        return
    for table in _said:
        terminalreporter.write_line(f"\n{table}")
    lines = list(TABLE.lines())
    if lines:
        terminalreporter.section("fault tests")
        terminalreporter.write_line("\n".join(lines))
    # One round says too little, and a page with a failed test's numbers would be no guarantee.
    if lines and ROUNDS > 1 and exitstatus == pytest.ExitCode.OK:
        TABLE.write_into(PAGE)
