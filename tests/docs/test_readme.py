"""What README shows, in both languages, done as it shows it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from expirebridge import Bridge, State
from tests.kit.patience import until
from tests.kit.processes import listener, run, until_subscribed

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["README.md", pytest.param("README.zh.md", marks=pytest.mark.rest)])
def readme(request: pytest.FixtureRequest) -> str:
    return Path(ROOT, request.param).read_text(encoding="utf-8")


def write(readme: str, folder: Path, name: str) -> None:
    """Write the Python block that begins with the file's name."""
    found = re.search(rf"```python\n(# {re.escape(name)}\n.*?)```", readme, re.DOTALL)
    assert found is not None
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(found[1], encoding="utf-8")


def test_the_producer_and_the_handler_work_together(
    url: str, bridge: Bridge, client: redis.Redis, tmp_path: Path, readme: str
) -> None:
    write(readme, tmp_path, "producer.py")
    write(readme, tmp_path, "tasks/mail.py")
    produced = subprocess.run(
        [sys.executable, tmp_path / "producer.py"],
        env={"EXPIREBRIDGE_URL": url},
        capture_output=True,
        text=True,
        check=True,
    )
    key = produced.stdout.strip()
    assert "redis-cli -n 1 EXPIRE" in readme
    id = key.partition(":")[0]
    with listener(url, tmp_path / "tasks"):
        # A key that expires before anybody listens says nothing of its new time.
        until_subscribed(url)
        assert client.expire(key, 1) == 1
        until(lambda: (task := bridge.get(id)) and task.state.finished, "the end of the task")
    task = bridge.get(id)
    assert task is not None
    assert task.state is State.SUCCEEDED


def test_the_test_passes(tmp_path: Path, readme: str) -> None:
    write(readme, tmp_path, "test_mail.py")
    write(readme, tmp_path, "tasks/mail.py")
    command = [sys.executable, "-m", "pytest", "-p", "no:valkey", "test_mail.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 passed" in result.stdout, result.stdout


def test_the_commands_that_it_names_are_there(readme: str) -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"\$ make (\w+)", readme):
        assert target in targets
    overview = run("--help").stdout
    for command in re.findall(r"[`$] ?expirebridge (\w+)", readme):
        assert command in overview
