"""What is typed wrong: the command says what was wrong, where, and what to type instead."""

import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from expirebridge import Bridge, InvalidTask
from expirebridge.cli import application
from tests.kit.invoked import ROOT_COMMAND, commands, run

Refusal = Callable[..., str]


@pytest.fixture
def refusal(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refusal:
    """What is said of a call that is wrong input, without the usage above it."""
    monkeypatch.setenv("EXPIREBRIDGE_URL", url)

    def said(*words: str) -> str:
        code: object = None
        try:
            application.call(list(words), name="expirebridge")
        except InvalidTask as error:
            return str(error)
        except SystemExit as ended:
            code = ended.code
        assert code == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        return printed.err.strip().splitlines()[-1].removeprefix("Error: ")

    return said


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("['ann']", '["ann"]'),
        ("[ann]", '["ann"]'),
        ("ann", '["ann"]'),
        ("1", "[1]"),
        ('"ann"', '["ann"]'),
        ("{user: 7}", '{"user": 7}'),
        ("{'user': True}", '{"user": true}'),
        ("[ann, true, 7]", '["ann", true, 7]'),
    ],
)
@pytest.mark.parametrize(
    "words",
    [("make", "mail.send", "{}", "--in", "1m"), ("key", "a", "mail.send", "{}"),
     ("watch", "a", "mail.send", "{}", "--ttl", "1m")],
)  # fmt: skip
def test_arguments_that_are_not_json_are_shown_as_json(
    refusal: Refusal, bridge: Bridge, words: tuple[str, ...], typed: str, meant: str
) -> None:
    said = refusal(*(typed if word == "{}" else word for word in words))
    assert said.startswith("args: ")
    assert said.endswith(f"write {shlex.quote(meant)}")
    assert bridge.count().pending == 0


def test_so_are_those_of_an_edit(refusal: Refusal) -> None:
    said = refusal("edit", "a", "--args", "['ann']")
    assert said.endswith("""write '["ann"]'""")
    said = refusal("edit", "a", "--kwargs", "{user: 7}")
    assert said.endswith("""write '{"user": 7}'""")
    assert said.startswith("--kwargs: ")


def test_what_nobody_can_read_is_told_how_json_looks(refusal: Refusal) -> None:
    said = refusal("make", "mail.send", "[1", "--in", "1m")
    assert """write JSON in single quotes, such as '[42, "hi"]'""" in said


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("make a.b '[1]' --delay 5m", "No such option: --delay. Did you mean --in DURATION, "
         "or --at TIME?"),
        ("make a.b '[1]' --countdown 5", "--in DURATION"),
        ("make a.b --args '[1]'", "It is an argument: expirebridge make FUNC ARGS"),
        ("make a.b --kwargs '{}'", "Give an object for ARGS: expirebridge make FUNC ARGS"),
        ("make a.b --func a.b", "It is an argument: expirebridge make FUNC"),
        ("make a.b --retries 3", "@handler(retry=...)"),
        ("make a.b --priority 3", "There is one alone, `make --urgent`"),
        ("make a.b --queue mail", "There are no queues"),
        ("list --status failed", "Did you mean --state"),
        ("list --tags a", "Did you mean --tag"),
        ("listen --task tasks", "Did you mean --tasks"),
        ("listen --worker 3", "Did you mean --workers"),
        ("listen -c 3", "Did you mean --concurrency"),
        ("listen --queues mail", "Did you mean --functions"),
        ("count --host localhost", "Did you mean --url"),
        ("show a --verbose", "The options of expirebridge show are --url and --json"),
        ("cancel --id a", "It is an argument: expirebridge cancel ID"),
        ("retry a", "Did you mean `expirebridge run` or `expirebridge failed retry`?"),
        ("delete a", "Did you mean `expirebridge cancel`?"),
        ("worker", "Did you mean `expirebridge listen`?"),
        ("enqueue a.b", "Did you mean `expirebridge make`?"),
        ("putoff a", "Did you mean `expirebridge put-off`?"),
        ("prune", "`expirebridge series prune`"),
        ("failed ID", "The commands of expirebridge failed are list, retry and purge."),
        ("series delete a", "Did you mean `expirebridge series remove`?"),
        ("frobnicate", "expirebridge --help lists the commands."),
        ("failed retry ID", "expirebridge failed retry takes no argument. To run one task again: "
         "expirebridge run ID"),
        ("hold mail.send", "expirebridge hold takes no argument. Name it: --func mail.send"),
        ("list mail.send", "expirebridge list takes no argument"),
        ("make a.b '[1,' '2]' --in 1m", "2] is more than expirebridge make takes. "
         "Put what has spaces into quotes"),
        ("reschedule a --in 5 minutes", "Put what has spaces into quotes"),
        ("key f '[1]'", "The id comes first: expirebridge key ID FUNC"),
        ("watch mail.send '[1]' --ttl 5m", "The id comes first: expirebridge watch ID FUNC"),
        ("make a.b --in soon", "--in 'soon': not a duration"),
        ("make a.b --in 1h --max-wait 2h", "--max-wait '2h': it limits --if-exists 'extend'"),
        ("make a.b", "give either --in or --at"),
        ("hold --until 2h", "give --func, --tag or --all"),
        ("hold --func a.b --until tomorrow", "--until tomorrow: write a duration"),
        ("release", "give --func, --tag or --all"),
        ("list --state failled", "'failled' is not one of 'pending'"),
        ("list --due-before soon", "--due-before soon: write a duration"),
    ],
)  # fmt: skip
def test_it_is_said_what_to_type(refusal: Refusal, call: str, said: str) -> None:
    assert said in refusal(*shlex.split(call))


def test_a_name_of_python_is_no_answer_to_what_was_typed(refusal: Refusal) -> None:
    said = refusal("list", "--tag", "a", "--group", "b")
    assert said == "give either --tag or --group, not both"


def options_of(command: Any) -> list[str]:
    return [option for one in command.params for option in one.opts if option.startswith("--")]


def misspelt_options(command: Any) -> Iterator[tuple[str, str]]:
    """Each option of a command with a wrong spelling of it."""
    options = options_of(command)
    for option in options:
        for wrong in {f"{option}x", option[:4] + option[5:], f"{option}s"}:
            if wrong not in options and len(wrong) >= 5:
                yield option, wrong


def test_each_misspelt_option_leads_to_the_right_one() -> None:
    for path, command in commands():
        for option, wrong in misspelt_options(command):
            assert option in parse_error([*path.split(), wrong], "No such option"), (path, wrong)


def test_an_unknown_option_leads_to_all_that_there_are() -> None:
    for path, command in commands():
        said = parse_error([*path.split(), "--frobnicate"], "No such option")
        assert [option for option in options_of(command) if option not in said] == [], path


def test_each_misspelt_command_leads_to_the_right_one() -> None:
    known = dict(commands())
    for path in known:
        *group, word = path.split()
        for wrong in {f"{word}x", word[:-2] + word[-1] + word[-2], word.replace("-", "_")} - {word}:
            if " ".join([*group, wrong]) in known or len(word) < 4:
                continue
            said = parse_error([*group, wrong], "No such command")
            assert f"`expirebridge {path}`" in said, wrong


def parse_error(words: list[str], match: str) -> str:
    with (
        pytest.raises(Exception, match=match) as caught,
        ROOT_COMMAND.make_context("expirebridge", list(words)) as context,
    ):
        ROOT_COMMAND.invoke(context)
    return str(caught.value)


def test_a_change_that_was_not_made_says_why(url: str, bridge: Bridge) -> None:
    bridge.make_task("mail.send", [], 60, id="m1")
    said = {
        ("beat", "m1"): "task 'm1': not watched: beats are for tasks that `expirebridge watch` has",
        ("let-pass", "m1"): "task 'm1': unchanged: no task of an ordered limit waits behind it",
        ("run", "m9"): "task 'm9': not found: it was never made, or has ended and was forgotten",
    }
    for words, why in said.items():
        result = run(*words, url=url)
        assert result.returncode == 3
        assert why in result.stderr
