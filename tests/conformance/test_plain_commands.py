"""Plain commands on a trigger key beside a listener: docs/reference/wire-protocol.md, tested."""

import time
import uuid
from collections.abc import Iterator

from tests.conformance.clients import Client
from tests.conformance.stage import Stage, state, until_known
from tests.kit.patience import until

HOUR = 3600
TOO_SLOW = "this machine takes seconds for a few commands"


def attempts(name: str) -> Iterator[tuple[str, int]]:
    """Ids and TTLs in ms: a longer one if the key was gone before it was touched again."""
    for ms in (150, 1000, 8000):
        yield f"{name}-{ms}", ms


def set_task(client: Client, id: str, ms: int) -> str:
    """Set a task's key with a TTL, and wait until it is known; return the key."""
    key = f"{id}:?acts.note?[]"
    client.send("SET", key, "", "PX", ms)
    until_known(client, id)
    return key


def pass_by(stage: Stage, client: Client, ms: int) -> None:
    """Wait until a task has run that is due in so many ms: what is due earlier had its time."""
    mark = uuid.uuid4().hex
    client.send("SET", f"{mark}:?acts.note?[]", "", "PX", ms)
    stage.ran(mark)


def test_a_key_with_a_ttl_runs_once_and_not_before_it_is_due(
    stage: Stage, client: Client, name: str
) -> None:
    before = time.time()
    client.send("SET", f'{name}:?acts.note?[42,"h?: {{}} é\\n"]', "", "PX", 80)
    run = stage.ran(name)
    assert run.at >= int(before * 1000) / 1000 + 0.08  # servers count whole milliseconds
    assert run.args == [42, "h?: {} é\n"]
    pass_by(stage, client, 20)
    assert len(stage.runs(name)) == 1


def test_the_classic_producer_sets_and_expires_in_one_transaction(
    stage: Stage, client: Client
) -> None:
    id, before = str(uuid.uuid4()), time.time()
    key = f'{id}:?acts.note?["order",17]'
    client.transaction(("SET", key, ""), ("EXPIRE", key, 1))
    run = stage.ran(id)
    assert (run.args, run.at >= before + 1) == (["order", 17], True)


def test_a_task_may_be_put_off_again_and_again(stage: Stage, client: Client, name: str) -> None:
    last = 0.0
    for id, ms in attempts(name):
        key = f"{id}:?acts.note?[]"
        client.send("SET", key, "", "PX", ms)
        told = {client.send("PEXPIRE", key, ms + more) for more in range(10)}
        last = time.time() + ms / 1000
        told.add(client.send("PEXPIREAT", key, int(last * 1000) + 1))
        if told == {"1"}:
            assert stage.ran(id).at >= last
            return
    raise AssertionError(TOO_SLOW)


def test_a_put_off_touches_nothing_but_the_key(stage: Stage, raw: Client, name: str) -> None:
    """It is followed without being heard. Who hears it notes it, and changes nothing else."""
    for id, ms in attempts(name):
        key = set_task(raw, id, ms)
        look = ("HMGET", f"expirebridge:task:{id}", "call", "made", "state", "due", "attempt")
        record = raw.send(*look)
        if raw.send("EXPIRE", key, HOUR) == "1":
            pass_by(stage, raw, ms)
            assert raw.send(*look) == record
            assert stage.runs(id) == []
            return
    raise AssertionError(TOO_SLOW)


def test_a_sooner_deadline_is_followed(stage: Stage, client: Client, name: str) -> None:
    key = set_task(client, name, HOUR * 1000)
    client.send("PEXPIRE", key, 60)
    stage.ran(name)


def test_only_later_or_only_sooner(stage: Stage, client: Client, name: str) -> None:
    if stage.version < (7,):
        return  # Redis 6.2 knows neither GT nor LT
    key = set_task(client, name, HOUR * 1000)
    assert client.send("EXPIRE", key, 1, "GT") == "0"
    assert client.send("EXPIRE", key, 2 * HOUR, "LT") == "0"
    assert client.send("EXPIRE", key, 2 * HOUR, "GT") == "1"
    assert client.send("PEXPIRE", key, 60, "LT") == "1"
    stage.ran(name)


def test_persist_pauses_and_expire_resumes(stage: Stage, client: Client, name: str) -> None:
    key = set_task(client, name, HOUR * 1000)
    client.send("PERSIST", key)
    until(lambda: state(client, name) == "paused")
    left = int(client.send("HGET", f"expirebridge:task:{name}", "left"))
    assert (HOUR - 60) * 1000 < left <= HOUR * 1000
    assert stage.runs(name) == []
    client.send("PEXPIRE", key, 60)
    stage.ran(name)


def test_a_ttl_of_a_moment_runs_it_now(stage: Stage, client: Client, name: str) -> None:
    key = set_task(client, name, HOUR * 1000)
    client.send("PEXPIRE", key, 100)
    stage.ran(name)


def test_a_ttl_of_a_millisecond_runs_it_or_is_a_deletion(
    stage: Stage, client: Client, name: str
) -> None:
    """A Redis that is interrupted meanwhile takes a time that has passed for a deletion."""
    key = set_task(client, name, HOUR * 1000)
    client.send("PEXPIRE", key, 1)
    until(lambda: state(client, name) in ("succeeded", "cancelled"))
    assert len(stage.runs(name)) == (state(client, name) == "succeeded")


def test_del_cancels(stage: Stage, client: Client, name: str) -> None:
    key = set_task(client, name, HOUR * 1000)
    client.send("DEL", key)
    until(lambda: state(client, name) == "cancelled")
    assert stage.runs(name) == []


def test_set_over_the_key_with_a_ttl_moves_the_task(
    stage: Stage, client: Client, name: str
) -> None:
    key = set_task(client, name, HOUR * 1000)
    client.send("SET", key, "again", "PX", 60)
    stage.ran(name)


def test_set_over_the_key_without_a_ttl_pauses_at_the_old_time(
    stage: Stage, client: Client, name: str
) -> None:
    for id, ms in attempts(name):
        key = set_task(client, id, ms)
        if client.send("SET", key, "no end", "XX") == "OK":
            until(lambda id=id: state(client, id) == "paused")  # type: ignore[misc] # noqa: A006
            assert stage.runs(id) == []
            client.send("PEXPIRE", key, 60)
            stage.ran(id)
            return
    raise AssertionError(TOO_SLOW)


def test_a_finished_task_s_key_that_is_set_again_runs_again(
    stage: Stage, client: Client, name: str
) -> None:
    key = set_task(client, name, 60)
    until(lambda: state(client, name) == "succeeded")
    client.send("SET", key, "", "EX", HOUR)
    until(lambda: state(client, name) == "")
    client.send("PEXPIRE", key, 60)
    until(lambda: len(stage.runs(name)) == 2)
