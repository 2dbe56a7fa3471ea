"""What a handlers' module attaches to its listener: hooks and lifespans, in a real process."""

import re
import time
from pathlib import Path

import pytest

from expirebridge import Bridge
from tests.kit.patience import PATIENCE
from tests.kit.processes import listener, run

ROOT = Path(__file__).parents[2]

WRITING = """
import os
from pathlib import Path
def write(line):
    with Path(os.environ["LINES"]).open("a") as lines:
        lines.write(line + "\\n")
"""

MODULE = f"""{WRITING}
from expirebridge import hook, lifespan
from expirebridge.hooks import Ended, Started

pool = []

@lifespan
async def outer():
    write("outer opens")
    yield
    write("outer closes")

@lifespan
async def pool_of_connections():
    pool.append("connection")
    write("opens")
    yield
    pool.clear()
    write("closes")

@hook
def tell(event):
    if isinstance(event, Started):
        write(f"before {{event.task.func}}")
    if isinstance(event, Ended):
        write(f"after {{event.task.func}}: {{event.end}}, {{event.error!r}}")
        raise ValueError("a hook that raises harms nobody")

async def use():
    write(f"uses {{pool}}")

def fail():
    raise KeyError("k")
"""


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines"
    path.touch()
    return path


def test_hooks_and_lifespans_surround_the_work(
    url: str, bridge: Bridge, folder: Path, lines: Path
) -> None:
    (folder / "app.py").write_text(MODULE)
    with listener(url, folder, LINES=str(lines)) as process:
        bridge.make_task("app.use", [], 0, id="a")
        _until_written("after app.use", lines)
        bridge.make_task("app.fail", [], 0, id="b", retry=[])
        _until_written("after app.fail", lines)
        bridge.make_task("app.tell", [], 0, id="c")  # no handler, and so released
        _until_written("after app.tell", lines)
        process.terminate()
        assert process.wait(PATIENCE) == 0
    assert lines.read_text().splitlines() == [
        "outer opens",
        "opens",
        "before app.use",
        "uses ['connection']",
        "after app.use: succeeded, None",
        "before app.fail",
        "after app.fail: failed, KeyError('k')",
        "after app.tell: released, None",
        "closes",
        "outer closes",
    ]


@pytest.mark.rest
def test_a_lifespan_that_cannot_open_ends_the_listener_before_it_claims(
    url: str, bridge: Bridge, folder: Path, lines: Path
) -> None:
    (folder / "app.py").write_text(MODULE.replace('write("opens")', 'raise OSError("no database")'))
    bridge.make_task("app.use", [], 0, id="a")
    result = run("listen", "--tasks", folder, url=url, LINES=str(lines))
    assert result.returncode == 1
    assert "the lifespan tasks.app.pool_of_connections failed at the start: " in result.stderr
    assert "no database" in result.stderr
    assert lines.read_text() == "outer opens\nouter closes\n"
    task = bridge.get("a")
    assert task is not None
    assert task.state == "pending"


SENTRY = (
    WRITING
    + """
from sentry_sdk.transport import Transport

class Written(Transport):
    def capture_envelope(self, envelope):
        event = envelope.get_event()
        if event:
            said = event.get("message") or event["exception"]["values"][0]["type"]
            write(f"{said} {event['tags']['task']} {event['tags']['function']}")

sentry_sdk.init("http://key@127.0.0.1:1/1", transport=Written)

def fail():
    raise KeyError("k")

def give_up():
    raise Discard("no such order")
"""
)


@pytest.mark.rest
def test_the_example_with_sentry_reports_what_failed(
    url: str, bridge: Bridge, folder: Path, lines: Path
) -> None:
    page = (ROOT / "docs" / "how-to" / "lifespans-and-hooks.md").read_text()
    [example] = re.findall(r"```python\n(import sentry_sdk\n.*?)```", page, re.DOTALL)
    (folder / "app.py").write_text(f"from expirebridge import Discard\n{example}\n{SENTRY}")
    with listener(url, folder, LINES=str(lines)):
        bridge.make_task("app.fail", [], 0, id="a", retry=[])
        _until_written("KeyError a", lines)
        bridge.make_task("app.give_up", [], 0, id="b")
        _until_written("no such order", lines)
    assert lines.read_text() == "KeyError a app.fail\nno such order b app.give_up\n"


def _until_written(words: str, lines: Path) -> None:
    """Wait until these words are in the file; the test's own timeout is the limit."""
    while words not in lines.read_text():
        time.sleep(0.01)
