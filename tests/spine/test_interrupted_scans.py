"""Whatever stops a walk, and whatever happens meanwhile: it takes each task of its own once."""

from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, fleet, producing
from expirebridge.task.calls.call import new_nonce
from expirebridge.task.calls.claiming import Walk
from tests.kit.steps import new, server_ms

pytestmark = pytest.mark.servers("oldest")

FUNCTIONS = {"own": b"mail.send?[]", "other": b"orders.rate?[]", "nobodys": b"lost.func?[]"}
ID = st.text("aAbBzZ09_.:@-", min_size=1, max_size=4)
TASKS = st.dictionaries(
    ID, st.tuples(st.integers(0, 3), st.sampled_from(sorted(FUNCTIONS))), max_size=25
)
MOVES = st.lists(st.sampled_from(["nothing", "the reached one goes", "others go"]), max_size=12)


def begin(store: Store, client: redis.Redis, tasks: dict[str, Any]) -> int:
    """A new fleet of two codes, and these tasks, which became due within four milliseconds."""
    client.flushdb()
    for code, func in (("aa", "mail.send"), ("bb", "orders.rate")):
        store.run(fleet.declare(code, {func: "()"}))
        store.run(claiming.heartbeat(f"of {code}", 60, [], code=code, functions=1))
    now = server_ms(client) - 1000
    made = [
        new(id, now + ms, call=FUNCTIONS[kind], relative=False) for id, (ms, kind) in tasks.items()
    ]
    if made:
        store.run(producing.make(made))
    return now


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tasks=TASKS, places=st.integers(1, 4), moves=MOVES, guest=ID)
def test_a_walk_takes_each_task_of_its_own_once_and_leaves_the_rest(
    store: Store,
    client: redis.Redis,
    tasks: dict[str, Any],
    places: int,
    moves: list[str],
    guest: str,
) -> None:
    now = begin(store, client, tasks)
    walk, taken, gone = Walk(b"-inf", b"", b"%d" % (now + 900)), list[str](), set[str]()
    finished, step = False, 0
    while not finished and step < 60:
        claim = store.run(
            claiming.claim_known(
                new_nonce(), Settings(), places=places, idle=True, code="aa", walks=[walk]
            )
        )
        taken += [task.id for task in claim.tasks]
        [walked] = claim.walked
        walk = walk._replace(score=walked.score, id=walked.id)
        finished = walked.finished
        match moves[step] if step < len(moves) else "nothing":
            case "the reached one goes":
                gone.add(walked.id.decode())
            case "others go":
                gone.add(guest)
        if gone:
            client.zrem("expirebridge:pending", *gone)
        step += 1
    assert finished
    own = [id for id, (_, kind) in tasks.items() if kind == "own"]
    assert len(taken) == len(set(taken))
    assert set(own) - gone <= set(taken) <= set(own)
    waiting: Any = client.zrange("expirebridge:pending", 0, -1)
    left = {id.decode() for id in waiting}
    assert left == {id for id, (_, kind) in tasks.items() if kind != "own"} - gone
    noted = {id for id in left if client.hexists(f"expirebridge:task:{id}", "unknown")}
    assert noted == {id for id in left if tasks[id][1] == "nobodys"}
