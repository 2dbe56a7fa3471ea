"""What lies in examples/ runs, with smaller numbers."""

import re
import subprocess
import sys
from pathlib import Path

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
