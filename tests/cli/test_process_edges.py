"""The edges of a process: signals before it is up, and output that cannot be written."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from expirebridge import Bridge
from tests.kit import invoked
from tests.kit.patience import PATIENCE
from tests.kit.processes import (
    COMMAND,
    ROOT,
    launched,
    log_of,
    run,
    until_logged,
)

LOADING = """
import os, time
open(os.environ["LOADING"], "w").close()
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.01)
INSTALLED_APPS = []
"""
"""A project's settings, which take their time; so a test can say when a process is loading."""


@contextmanager
def loading(
    url: str, folder: Path, *options: str
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A listener that loads until the file is there that comes with it."""
    place = folder.parent
    (place / "slow_settings.py").write_text(LOADING)
    begun, go = place / "loading", place / "go"
    env = {
        "LOADING": str(begun), "GO": str(go), "DJANGO_SETTINGS_MODULE": "slow_settings",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{place}",
    }  # fmt: skip
    with launched(url, folder, *options, **env) as process:
        while not begun.exists():
            assert process.poll() is None, log_of(folder)
        yield process, go


@pytest.mark.parametrize("count", [pytest.param("1", marks=pytest.mark.rest), "2"])
def test_sigterm_while_it_loads_ends_it_as_later(url: str, folder: Path, count: str) -> None:
    with loading(url, folder, "--workers", count) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


@pytest.mark.rest
def test_sighup_while_it_loads_does_not_end_the_parent_of_workers(url: str, folder: Path) -> None:
    with loading(url, folder, "--workers", "2") as (process, go):
        process.send_signal(signal.SIGHUP)
        go.touch()
        until_logged("worker 2 is ready", folder, process=process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_sighup_ends_a_listener_without_workers(url: str, folder: Path) -> None:
    with launched(url, folder) as process:
        until_logged("listening", folder, process=process)
        process.send_signal(signal.SIGHUP)
        assert process.wait(PATIENCE) == -signal.SIGHUP


FULL = """
import contextlib, os, sys
from expirebridge.cli.ending import leave

os.set_blocking(1, False)
with contextlib.suppress(BlockingIOError):
    while os.write(1, b"x" * 4096):
        pass
os.set_blocking(1, True)
sys.stdout.write("the rest")
leave(3)
"""


def test_a_process_ends_whose_output_nobody_reads() -> None:
    env = os.environ | {"PYTHONUNBUFFERED": ""}
    with subprocess.Popen([sys.executable, "-c", FULL], stdout=subprocess.PIPE, env=env) as process:
        try:
            assert process.wait(PATIENCE) == 3
        finally:
            process.kill()


@pytest.mark.parametrize(
    "words", [("show", "a"), pytest.param(("list",), marks=pytest.mark.rest), ("list", "--json")]
)
def test_what_ascii_cannot_write_is_escaped(
    url: str, bridge: Bridge, words: tuple[str, ...]
) -> None:
    bridge.make_task("mail.send", ["é"], "1h", id="a", tags=["x"])
    shown = run(*words, url=url, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "\\xe9" in shown.stdout or "\\u00e9" in shown.stdout
    if "--json" in words:
        assert json.loads(shown.stdout)["tasks"][0]["args"] == ["é"]


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        pytest.param(("count",), marks=pytest.mark.rest),
        pytest.param(("show", "a", "--json"), marks=pytest.mark.rest),
        pytest.param(("--help",), marks=pytest.mark.rest),
    ],
)
def test_a_full_disk_is_said_in_one_line(url: str, bridge: Bridge, words: tuple[str, ...]) -> None:
    bridge.make_task("mail.send", [1], "1h", id="a")
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*COMMAND, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env=os.environ | {"EXPIREBRIDGE_URL": url}, timeout=PATIENCE,
        )  # fmt: skip
    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    assert line.startswith("expirebridge: the output cannot be written: ")


@pytest.mark.parametrize("command", ["handlers", "compat", "doctor"])
def test_what_modules_print_is_no_part_of_json(url: str, folder: Path, command: str) -> None:
    (folder / "loud.py").write_text("print('loud')\n\ndef run():\n    pass\n")
    told = invoked.run(command, "--tasks", folder, "--json", url=url)
    assert told.stderr.startswith("loud\n")
    assert json.loads(told.stdout)


@pytest.mark.parametrize("form", ["text", pytest.param("json", marks=pytest.mark.rest)])
def test_a_module_that_configures_logging_does_not_silence_the_listener(
    url: str, folder: Path, form: str
) -> None:
    (folder / "quiet.py").write_text(
        "import logging.config\n\nlogging.config.dictConfig({'version': 1})\n"
    )
    with launched(url, folder, "--log-format", form) as process:
        until_logged("listening", folder, process=process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert "stopped" in log_of(folder)


def test_a_folder_with_any_name_is_quoted_in_the_unit(tmp_path: Path) -> None:
    folder = tmp_path / "100% of $HOME"
    assert invoked.run("init", folder).returncode == 0
    unit = (folder / "expirebridge.service").read_text()
    assert f"WorkingDirectory={tmp_path}/100%% of $HOME\n" in unit
    assert f"EnvironmentFile={tmp_path}/100%% of $HOME/expirebridge.env\n" in unit
    assert "    init: true\n" in (folder / "compose.yaml").read_text()
