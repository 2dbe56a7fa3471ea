"""Tasks that other clients set: as safe as own ones; others are kept as failed, or left alone."""

import signal
from hashlib import sha1

import pytest

from expirebridge.task.keys import id_for_key
from tests.conformance.clients import Client
from tests.conformance.stage import Stage, state, until_known
from tests.kit.patience import until

HOUR = 3600_000


def test_a_foreign_task_outlives_the_listener_that_ran_it(
    quiet: Stage, plain: Client, name: str
) -> None:
    with quiet.listening("--lease", "0.6") as listener:
        plain.send("SET", f"{name}:?acts.hold?[0.3]", "", "PX", 50)
        until(lambda: quiet.runs(name))
        listener.send_signal(signal.SIGKILL)
        listener.wait()
        with quiet.listening("--lease", "0.6"):
            until(lambda: state(plain, name) == "succeeded")
    assert len(quiet.runs(name)) == 2


def test_a_foreign_task_has_its_handler_s_retries(stage: Stage, raw: Client, name: str) -> None:
    raw.send("SET", f"{name}:?acts.fail?[]", "", "PX", 50)
    until(lambda: state(raw, name) == "failed")
    assert len(stage.runs(name)) == 2


def test_what_cannot_be_a_task_is_kept_as_failed_and_listed_with_the_reason(
    stage: Stage, raw: Client, name: str
) -> None:
    keys = {
        f"{name}-json:?acts.note?[1".encode(): "args: ",
        f"{name} space:?acts.note?[]".encode(): "an id has 1 to 128",
        f"{name}-func:?../acts.note?[]".encode(): "write module.function",
        f"{name}-at:?acts.note?@".encode(): "in no record",
        f"{name}\xff\xfe:?acts.note?[]".encode("latin-1"): "must be ASCII",
        b'%s-utf8:?acts.note?["\xff"]' % name.encode(): "args: ",
        f"{name}-long:?acts.note?[{'1,' * 500_000}1]".encode(): "at most 65,536",
    }
    for key in keys:
        raw.send("SET", key, "", "PX", 50)
    ids = {id_for_key(key): reason for key, reason in keys.items()}
    # This one's id is legal: only its record is missing.
    ids[f"{name}-at"] = ids.pop(id_for_key(f"{name}-at:?acts.note?@".encode()))
    assert id_for_key(b"x") == sha1(b"x", usedforsecurity=False).hexdigest()
    for id in ids:
        until(lambda id=id: state(raw, id) == "failed")  # type: ignore[misc] # noqa: A006
    listed = {task["id"]: task for task in stage.command("list", "--state", "failed")["tasks"]}
    for id, reason in ids.items():
        assert reason in listed[id]["error"]
        assert stage.runs(id) == []


def test_keys_that_are_not_ours_are_left_alone(stage: Stage, raw: Client, name: str) -> None:
    before = raw.send("ZCARD", "expirebridge:failed")
    for key in (f"{name}-session", f"a?{name}:?b", f"{name}:b?c?d", f"{name}:?f", "?f?[]"):
        raw.send("SET", key, "kept", "PX", HOUR)
        raw.send("PEXPIRE", key, HOUR + 1)
    raw.send("SET", f"{name}:?acts.note?[]", "", "PX", 50)
    stage.ran(name)
    assert raw.send("GET", f"{name}-session") == "kept"
    assert raw.send("ZCARD", "expirebridge:failed") == before


def test_two_keys_with_one_id_are_two_tasks(stage: Stage, raw: Client, name: str) -> None:
    first, second = f"{name}:?acts.note?[1]", f"{name}:?acts.note?[2]"
    raw.send("SET", first, "", "PX", HOUR)
    until_known(raw, name)
    raw.send("SET", second, "", "PX", HOUR)
    other = id_for_key(second.encode())
    until_known(raw, other)
    raw.send("PEXPIRE", second, 60)
    raw.send("PEXPIRE", first, 60)
    assert (stage.ran(name).args, stage.ran(other).args) == ([1], [2])


def test_a_key_with_the_id_of_a_running_task(stage: Stage, raw: Client, name: str) -> None:
    """With the same call it runs once more afterwards; with another it is a task of its own."""
    same, different = f"{name}:?acts.hold?[0.5]", f"{name}:?acts.note?[2]"
    raw.send("SET", same, "", "PX", 20)
    until(lambda: state(raw, name) == "running")
    raw.send("SET", same, "", "PX", HOUR)
    raw.send("SET", different, "", "PX", 50)
    assert stage.ran(id_for_key(different.encode())).args == [2]
    until(lambda: state(raw, name) == "")
    raw.send("PEXPIRE", same, 20)
    until(lambda: len(stage.runs(name)) == 2)


def test_a_deadline_in_the_past(stage: Stage, raw: Client, name: str) -> None:
    """To Redis that is a deletion, and cancels; to Valkey an expiry, and the task runs."""
    key = f"{name}:?acts.note?[]"
    raw.send("SET", key, "", "PX", HOUR)
    until_known(raw, name)
    raw.send("PEXPIREAT", key, 1)
    is_valkey = "valkey_version" in raw.send("INFO", "server")
    until(lambda: state(raw, name) == ("succeeded" if is_valkey else "cancelled"))
    assert len(stage.runs(name)) == is_valkey


def test_a_new_key_that_ends_in_the_past_is_no_task(stage: Stage, raw: Client, name: str) -> None:
    """It may never have been; some servers tell that it expired, and then it runs."""
    raw.send("SET", f"{name}:?acts.note?[]", "", "PXAT", 1)
    raw.send("SET", f"{name}-next:?acts.note?[]", "", "PX", 50)
    stage.ran(f"{name}-next")
    assert len(stage.runs(name)) <= 1


@pytest.mark.parametrize("command", ["PERSIST", "DEL"])
def test_commands_on_a_key_that_nobody_knows_change_nothing(
    stage: Stage, raw: Client, name: str, command: str
) -> None:
    assert raw.send(command, f"{name}:?acts.note?[]") == "0"
    raw.send("SET", f"{name}-next:?acts.note?[]", "", "PX", 50)
    stage.ran(f"{name}-next")
    assert raw.send("EXISTS", f"expirebridge:task:{name}") == "0"
