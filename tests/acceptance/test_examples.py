"""What lies in examples/ runs, with smaller numbers."""

import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from expirebridge import Bridge, State
from tests.kit.processes import listener

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_connections_that_fall_silent_are_marked_as_offline() -> None:
    """It ends when exactly those that are lost are offline, and not before."""
    command = [
        sys.executable, str(EXAMPLES / "presence" / "gateway.py"),
        "--connections", "300", "--lost", "30", "--every", "0.5", "--silence", "2",
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "30 lost connections are offline, 270 others are online" in result.stdout
    assert re.search(r"[1-9]\d* keepalives a second", result.stdout)


def test_a_canary_sings_again_and_again(url: str, bridge: Bridge, tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLES / "canary" / "tasks", tmp_path / "tasks")

    def next_song(after: datetime) -> datetime:
        """When it sings next, as soon as that is later than `after`."""
        while True:
            task = bridge.get("canary")
            if task is not None and task.state is State.PENDING and task.due > after:
                return task.due

    began = datetime.fromtimestamp(0, UTC)
    with listener(url, folder, EXPIREBRIDGE_URL=url):
        first = next_song(began)
        for _ in range(2):
            bridge.run_now("canary")
            first = next_song(first)
    # Another listener finds it waiting, and makes no second one.
    with listener(url, folder, EXPIREBRIDGE_URL=url):
        bridge.run_now("canary")
        next_song(first)
    assert bridge.count().pending == 1
