"""What capabilities give is what is asked for: the type checker compares each module."""

import expirebridge.fleet.explain
import expirebridge.groups.explain
import expirebridge.ledger.explain
import expirebridge.limits.explain
import expirebridge.sealing.explain
from expirebridge.capabilities import given
from expirebridge.task.explaining import Explains

EXPLAIN: tuple[Explains, ...] = (
    expirebridge.limits.explain,
    expirebridge.groups.explain,
    expirebridge.sealing.explain,
    expirebridge.fleet.explain,
    expirebridge.ledger.explain,
)


def test_these_explain_why_a_task_has_not_run() -> None:
    assert given("explain") == EXPLAIN
