"""Whatever other clients wrote, no script fails midway, or takes far longer for a longer text.

What a script takes is the processor's time of the server, by its own count: neither the speed of
the machine nor what else it does matters to the ratio of two.
"""

from itertools import cycle
from statistics import median

import pytest
import redis

from expirebridge.foreign import function_library
from expirebridge.store import script_loader
from tests.kit import foreign_texts
from tests.kit.foreign_texts import FUNCTIONS, MOVING, RECIPES, Arguments, Recipe
from tests.kit.lua import NAMES
from tests.kit.steps import PREFIX

LENGTHS = (25_000, 100_000)
MOST_FOR_FOUR_TIMES = 8
"""Between what reads a text once, 4, and what reads it from each of its places, 16."""
NOTHING = 0.02
"""Seconds below which a ratio says nothing. To read a text from each of its places takes more."""
SOME_SHAPES = ("a line and a short one", "digits and a letter", "a path")

CALLED: dict[str, Recipe] = {
    **RECIPES,
    **{f"function {name}": recipe for name, recipe in FUNCTIONS.items()},
}
"""For each script, its calls."""


def text_of(name: str) -> str:
    """The text of a script, by its name above."""
    kind, _, function = name.partition(" ")
    return (
        function_library.script(function).text if function else script_loader.load(kind).plain.text
    )


def test_every_script_and_every_function_is_called() -> None:
    assert sorted(RECIPES) == NAMES
    assert sorted(FUNCTIONS) == sorted(function_library.NAMES)


def cpu_seconds(client: redis.Redis) -> float:
    info = client.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def call(client: redis.Redis, script: str, arguments: Arguments) -> None:
    """Run a script that is loaded, which may refuse what it is given, but not fail."""
    try:
        client.evalsha(script, 1, PREFIX, *arguments)
    except redis.ResponseError as error:
        if "EXPIREBRIDGE_" not in str(error):
            raise AssertionError(f"{str(error)[:300]}: {str(arguments)[:300]}") from None


def measure(client: redis.Redis, name: str, shape: str, length: int) -> list[float]:
    """How many seconds of the processor each call of a script takes, where all texts are long."""
    script, recipe = client.script_load(text_of(name)), CALLED[name]
    text, took = foreign_texts.text_of(shape, length), list[float]()
    foreign_texts.prepare(client, text, MOVING.get(name, ""))
    for arguments in recipe(text):
        before = cpu_seconds(client)
        call(client, script, arguments)
        took.append(cpu_seconds(client) - before)
    return took


def grows_too_much(measured: dict[int, list[list[float]]]) -> list[tuple[float, float]]:
    """The calls that took too much more for the longer text, by the medians of what is known.

    A least would not do: a kernel that counts time by its ticks counts too little as well.
    """
    less, more = ([median(call) for call in zip(*took, strict=True)] for took in measured.values())
    return [
        (one, four)
        for one, four in zip(less, more, strict=True)
        if four > NOTHING and four > MOST_FOR_FOUR_TIMES * one
    ]


def check_growth(client: redis.Redis, name: str, shape: str) -> None:
    measured = {length: [measure(client, name, shape, length)] for length in LENGTHS}
    # What is measured once may have met a page fault, or the collector of garbage.
    for _ in range(10):
        if not grows_too_much(measured):
            return
        for length, took in measured.items():
            took.append(measure(client, name, shape, length))
    grown = grows_too_much(measured)
    assert not grown, f"{name} with {shape}: {grown} s for {LENGTHS} bytes"


@pytest.mark.rest
@pytest.mark.parametrize("name", CALLED)
def test_four_times_the_text_takes_a_script_about_four_times_as_long(
    client: redis.Redis, name: str
) -> None:
    for shape in SOME_SHAPES:
        check_growth(client, name, shape)


NUMBERS = (
    "1e308", "-1e308", "nan", "inf", "-inf", "1.5", "-1", "0x10", "9223372036854775807", "x", "",
)  # fmt: skip
PLACES = [
    *((number, "", "") for number in NUMBERS),
    ("1.5", "1790000000000.5", ""),
    ("1e308", "1e308", "9223372036854775800"),
    ("", "-inf", ""),
    ("1.5", "", "9223372036854775800"),
]
"""What is in all fields, the scores of all tasks, and the ends of their timers."""


def test_no_script_fails_on_one_text_and_one_number(client: redis.Redis) -> None:
    """Each script on others; the tests of the rest take all of them."""
    failed = list[str]()
    for (name, recipe), shape, (number, score, timer) in zip(
        CALLED.items(), cycle(SOME_SHAPES), cycle(PLACES), strict=False
    ):
        script, text = client.script_load(text_of(name)), foreign_texts.text_of(shape, 2000)
        for written, *others in ((text, "", ""), (number.encode(), score, timer)):
            foreign_texts.prepare(client, written, MOVING.get(name, ""), *others)
            for arguments in recipe(written):
                try:
                    call(client, script, arguments)
                except AssertionError as error:
                    failed.append(f"{name}: {error}")
    assert not failed, "\n".join(failed)


@pytest.mark.rest
@pytest.mark.parametrize("name", CALLED)
def test_no_number_that_another_client_wrote_makes_a_script_fail(
    client: redis.Redis, name: str
) -> None:
    script, recipe = client.script_load(text_of(name)), CALLED[name]
    for number, score, timer in PLACES:
        for arguments in recipe(number.encode()):
            foreign_texts.prepare(client, number.encode(), MOVING.get(name, ""), score, timer)
            call(client, script, arguments)
