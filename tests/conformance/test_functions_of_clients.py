"""The functions through each client; on Redis 6.2 the scripts that do the same."""

from collections.abc import Callable

import pytest

from tests.conformance.clients import Client, ReplyError, Word
from tests.conformance.stage import Stage
from tests.kit.patience import until

Ask = Callable[..., list[str]]
HOUR = "3600000"


@pytest.fixture
def ask(stage: Stage, client: Client, shas: dict[str, str]) -> Ask:
    """Calls a function, and gives the lines of the reply."""

    def call(name: str, *words: Word) -> list[str]:
        if stage.version < (7,):
            reply = client.send("EVALSHA", shas[name], 1, "expirebridge", *words)
        else:
            reply = client.send("FCALL", f"expirebridge_{name}", 1, "expirebridge", *words)
        return reply.split("\n")

    return call


def test_a_task_is_made_and_runs_with_what_it_was_given(stage: Stage, ask: Ask) -> None:
    outcome, id, key, due = ask("make", "acts.note", '{"*":[1],"who":"é? \\n"}', 60)
    assert (outcome, key) == ("created", f'{id}:?acts.note?{{"*":[1],"who":"é? \\n"}}')
    ran = stage.ran(id)
    assert (ran.args, ran.kwargs, ran.at >= int(due) / 1000) == ([1], {"who": "é? \n"}, True)


def test_a_task_is_steered(stage: Stage, ask: Ask, name: str) -> None:
    options = ("id", name, "if_exists", "replace", "tags", "a b", "retry", "[1]", "timeout", "9")
    assert ask("make", "acts.note", "[]", HOUR, *options)[0] == "created"
    assert ask("make", "acts.note", "[2]", HOUR, *options)[0] == "replaced"
    assert ask("pause", name) == ["paused"]
    shown = ask("get", name)
    fields = dict(zip(shown[::2], shown[1::2], strict=True))
    assert (fields["state"], fields["args"], fields["tags"]) == ("paused", "[2]", "a b")
    assert ask("resume", name) == ["resumed"]
    assert ask("reschedule", name, 60) == ["moved"]
    assert stage.ran(name).args == [2]
    until(lambda: ask("cancel", name) == ["finished"])
    assert ask("run_now", name) == ["due now"]
    until(lambda: len(stage.runs(name)) == 2)
    assert ask("cancel", f"{name}-none") == ["not found"]
    assert ask("get", f"{name}-none") == [""]


def test_a_follow_up_runs_when_all_members_have(stage: Stage, ask: Ask, name: str) -> None:
    assert ask("make_group", name, "then", "acts.note", '["é", 1]', "delay", 10) == ["made"]
    for number in range(3):
        made = ask("make", "acts.note", f"[{number}]", 60, "id", f"{name}@g{number}")
        assert made[:2] == ["created", f"{name}@g{number}"]
    until(lambda: all(stage.runs(f"{name}@g{number}") for number in range(3)))
    assert stage.runs(f"{name}@then") == []  # the group is open
    assert ask("close_group", name) == ["closed"]
    assert ask("make", "acts.note", "[]", 60, "id", f"{name}@g3") == ["closed", f"{name}@g3"]
    assert stage.ran(f"{name}@then").args == ["é", 1]
    shown = ask("get_group", name)
    told = dict(zip(shown[::2], shown[1::2], strict=True))
    assert (told["state"], told["total"], told["succeeded"]) == ("ended", "3", "3")
    assert ask("cancel_group", name) == ["ended"]
    assert ask("get_group", f"{name}-none") == [""]


def test_a_signal_runs_the_other_function(stage: Stage, ask: Ask, name: str) -> None:
    awaited = ("make", "acts.fail", '["é", 1]', HOUR, "id", name, "on_signal", "acts.note")
    assert ask(*awaited)[0] == "created"
    signal = ("signal", name, '{"é": [1, "\\n"]}', "psp é")
    assert ask(*signal) == ["signalled"]
    assert stage.ran(name).args == ["é", 1]
    until(lambda: ask("signal", name, "7") == ["signalled before"])
    assert ask(*signal) == ["signalled"]
    shown = ask("get", name)
    told = dict(zip(shown[::2], shown[1::2], strict=True))
    assert (told["signal"], told["lost"]) == (signal[2], 'acts.fail?["é", 1]')
    assert told["signalled"].endswith(" psp é")
    assert ask("signal", f"{name}-none") == ["not found"]


def test_a_deadline_decides_against_a_signal(stage: Stage, ask: Ask, name: str) -> None:
    assert ask("make", "acts.note", "[]", 60, "id", name, "on_signal", "acts.fail")[0] == "created"
    stage.ran(name)
    until(lambda: ask("signal", name) == ["finished"])
    assert len(stage.runs(name)) == 1


def test_bad_input_is_answered_with_its_reason(ask: Ask) -> None:
    with pytest.raises(ReplyError, match="EXPIREBRIDGE_INVALID args: not JSON"):
        ask("make", "acts.note", "[1", HOUR)
    with pytest.raises(ReplyError, match="EXPIREBRIDGE_INVALID func=note"):
        ask("make", "note", "[]", HOUR)
    with pytest.raises(ReplyError, match="EXPIREBRIDGE_INVALID payload: not JSON"):
        ask("signal", "a", "{ref: 7}")
