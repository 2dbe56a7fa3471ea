"""What handlers log stands in the listener's log, and names its task."""

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from expirebridge import Bridge, State
from tests.kit.invoked import run
from tests.kit.patience import PATIENCE
from tests.kit.processes import COMMAND, listener, until_logged

ROOT = Path(__file__).parents[2]

MODULE = """
import logging, threading, warnings
logger = logging.getLogger(__name__)
logging.getLogger("shop").info("while it loads")

async def send(customer):
    logger.debug("looking")
    logger.info("sent to %s", customer, extra={"customer": customer})
    logging.getLogger("redis").debug("redis")
    logging.getLogger("asyncio").debug("asyncio")

def charge():
    logger.warning("charging")
    warnings.warn("an old call", UserWarning, stacklevel=1)
    thread = threading.Thread(target=logger.warning, args=("of another thread",))
    thread.start()
    thread.join()
    print("printed", flush=True)
    try:
        raise KeyError("k")
    except KeyError:
        logger.exception("what")

class Broken(logging.Handler):
    def emit(self, record):
        raise ValueError("a handler of the log that raises")

def spoil():
    logger.error("%d", "x")
    logging.getLogger().addHandler(Broken())

def add(a, b):
    return a + b

def ruin():
    logging.getLogger("shop").error("here it raises")
"""


def lines_of(folder: Path) -> list[dict[str, Any]]:
    text = (folder.parent / "listeners.log").read_text()
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def text_of(folder: Path) -> str:
    """The log without its times."""
    text = (folder.parent / "listeners.log").read_text()
    return re.sub(r"^\d{4}-\d\d-\d\d [\d:,]{12} ", "", text, flags=re.MULTILINE)


def until_ended(bridge: Bridge, *ids: str) -> None:
    """Wait until these have ended; the test's own timeout is the limit."""
    while not all((task := bridge.get(id)) and task.state.finished for id in ids):
        time.sleep(0.01)


def test_a_handler_s_lines_are_json_that_names_the_task(
    url: str, bridge: Bridge, folder: Path
) -> None:
    (folder / "shop.py").write_text(MODULE)
    with listener(url, folder, "--log-format", "json", "--verbose"):
        bridge.make_task("shop.send", [7], 0, id="a")
        bridge.make_task("shop.charge", [], 0, id="b")
        until_logged('"succeeded"', folder)
        until_ended(bridge, "a", "b")
        until_logged('"what"', folder)
    lines = {line["message"]: line for line in lines_of(folder)}
    of_task = {"task": "a", "func": "shop.send", "attempt": 1}
    sent = lines["sent to 7"]
    assert sent.items() >= {"logger": "tasks.shop", "level": "info", **of_task}.items()
    assert (sent["event"], sent["extra"]) == ("other", {"customer": 7})
    assert "task" not in lines["while it loads"]
    assert lines["charging"]["func"] == "shop.charge"
    assert "task" not in lines["of another thread"]
    [warning] = [line for line in lines.values() if line["logger"] == "py.warnings"]
    assert "UserWarning: an old call" in warning["message"]
    assert (warning["level"], warning["task"]) == ("warning", "b")
    assert lines["what"]["traceback"].endswith("KeyError: 'k'")
    assert "looking" not in lines
    assert "\nprinted\n" in (folder.parent / "listeners.log").read_text()


def test_a_handler_s_lines_are_text_that_names_the_task(
    url: str, bridge: Bridge, folder: Path
) -> None:
    (folder / "shop.py").write_text(MODULE)
    with listener(url, folder, "--log-level", "DEBUG"):
        bridge.make_task("shop.send", [7], 0, id="a")
        bridge.make_task("shop.charge", [], 0, id="b")
        until_ended(bridge, "a", "b")
        until_logged("succeeded shop.charge", folder)
    text = text_of(folder)
    assert "\nDEBUG   tasks.shop [shop.send a, attempt 1]: looking\n" in text
    assert "\nINFO    tasks.shop [shop.send a, attempt 1]: sent to 7\n" in text
    assert "INFO    shop: while it loads\n" in text
    assert "\nWARNING tasks.shop: of another thread\n" in text
    # Who debugs handlers does not ask for what a listener is made of.
    assert ": redis\n" not in text
    assert ": asyncio\n" not in text


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        (["--verbose", "--log-level", "error"], "own debug, own info"),
        *(
            pytest.param(options, levels, marks=pytest.mark.rest)
            for options, levels in [
                ([], "own info, info"),
                (["--log-level", "debug"], "own debug, own info, debug, info"),
                (["--log-level", "warning"], ""),
                (["--quiet"], ""),
                (["--quiet", "--log-level", "info"], "info"),
                (["--verbose"], "own debug, own info, info"),
            ]
        ),
    ],
)
def test_the_level_of_handlers_and_that_of_the_listener(
    url: str, bridge: Bridge, folder: Path, options: list[str], levels: str
) -> None:
    (folder / "shop.py").write_text(MODULE)
    with listener(url, folder, *options) as process:
        bridge.make_task("shop.send", [7], 0, id="a")
        until_ended(bridge, "a")
        process.terminate()
        process.wait(PATIENCE)
    text = text_of(folder)
    shown = {
        "own debug": "started shop.send a" in text,
        "own info": "stopping: claiming no more" in text,
        "debug": ": looking" in text,
        "info": ": sent to 7" in text,
    }
    assert ", ".join(name for name, is_shown in shown.items() if is_shown) == levels


def test_an_unknown_level_is_refused(url: str, folder: Path) -> None:
    result = run("listen", "--tasks", folder, "--log-level", "loud", url=url)
    assert result.returncode == 2
    assert "'loud' is not one of 'debug', 'info', 'warning', 'error'" in result.stderr


def test_logging_that_fails_does_not_end_the_listener(
    url: str, bridge: Bridge, folder: Path
) -> None:
    (folder / "shop.py").write_text(MODULE)
    with listener(url, folder, "--lease", "1") as process:
        bridge.make_task("shop.spoil", [], 0, id="a")
        until_ended(bridge, "a")
        # From here on each line of the log raises, in roles and hooks, too.
        bridge.make_task("shop.ruin", [], 0, id="b", retry=[])
        bridge.make_task("acts.unknown", [], 0, id="c")
        bridge.make_task("shop.add", [1, 2], 0, id="d")
        until_ended(bridge, "b", "d")
        process.terminate()
        assert process.wait(PATIENCE) == 0
    assert "a message that cannot be formatted (TypeError): see " in text_of(folder)
    states = [(task := bridge.get(id)) and task.state for id in "abcd"]
    assert states == [State.SUCCEEDED, State.FAILED, State.PENDING, State.SUCCEEDED]


@pytest.mark.rest
def test_a_log_that_nobody_reads_any_more_does_not_end_the_listener(
    url: str, bridge: Bridge, folder: Path
) -> None:
    (folder / "sums.py").write_text("def add(a, b):\n    return a + b\n")
    command = [*COMMAND, "listen", "--tasks", str(folder), "--url", url]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while b"listening" not in process.stderr.readline():
            pass
        process.stderr.close()
        bridge.make_task("acts.unknown", [], 0, id="a")  # the log has a warning of it
        bridge.make_task("sums.add", [1, 2], 0, id="b")
        until_ended(bridge, "b")
        process.terminate()
        assert process.wait(PATIENCE) == 0


def example(first_line: str) -> str:
    """The block of the page on logging that begins so."""
    page = (ROOT / "docs" / "how-to" / "log-from-handlers.md").read_text()
    [block] = re.findall(rf"```python\n({re.escape(first_line)}\n.*?)```", page, re.DOTALL)
    return str(block)


@pytest.mark.parametrize(
    ("first_line", "logs"),
    [
        ("import structlog", 'structlog.get_logger("shop").info("sent", customer=7)'),
        pytest.param(
            "from loguru import logger as loguru_logger",
            'loguru_logger.bind(customer=7).info("sent")',
            marks=pytest.mark.rest,
        ),
    ],
)
def test_the_examples_with_other_libraries_go_through_the_same_log(
    url: str, bridge: Bridge, folder: Path, first_line: str, logs: str
) -> None:
    handler = f"def send():\n    {logs}\n"
    (folder / "shop.py").write_text(f"import logging\n{example(first_line)}\n{handler}")
    with listener(url, folder, "--log-format", "json", "--verbose"):
        bridge.make_task("shop.send", [], 0, id="a")
        until_logged('"succeeded"', folder)
    [line] = [line for line in lines_of(folder) if line["message"] == "sent"]
    assert (line["level"], line["task"], line["func"]) == ("info", "a", "shop.send")
    assert line["logger"] in {"shop", "tasks.shop"}
    assert "7" in json.dumps(line["extra"])
