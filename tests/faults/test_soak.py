"""A soak of some seconds: every fault of `make soak` at least once, and every promise kept."""

from pathlib import Path

from tests.faults.chaos import ROUND
from tests.faults.soak import soak
from tests.kit.servers import SERVERS


def test_a_short_soak_keeps_every_promise(tmp_path: Path) -> None:
    total = soak(tmp_path, next(iter(SERVERS.values())), seconds=5, furthest=3)
    assert total.sound, "\n".join(total.lines())
    assert all(total.counts[fault] for fault in ROUND)
    assert all(total.counts[change] for change in ("run", "cancelled", "put off"))
