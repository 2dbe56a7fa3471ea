"""Two databases: that of the other library, and ours."""

from pathlib import Path

import pytest
import redis

from tests.kit.servers import AnyServer


@pytest.fixture
def old(server: AnyServer) -> str:
    """Where the other library has its jobs."""
    return f"redis://127.0.0.1:{server.port}/5"


@pytest.fixture
def now_ms(client: redis.Redis) -> int:
    """The server's time."""
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000


@pytest.fixture
def mailing(tmp_path: Path) -> Path:
    """Handlers that report that they ran."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "mail.py").write_text(
        "from tests.kit.processes import report\n"
        "def send(*args, **kwargs):\n    report('ran')\n"
        "def other(*args, **kwargs):\n    report('ran')\n"
    )
    return folder
