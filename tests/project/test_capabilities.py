"""What capabilities give is what is asked for: the type checker compares each module."""

import expirebridge.fleet.explain
import expirebridge.fleet.words
import expirebridge.foreign.words
import expirebridge.groups.explain
import expirebridge.groups.words
import expirebridge.lateness.words
import expirebridge.ledger.explain
import expirebridge.ledger.words
import expirebridge.limits.explain
import expirebridge.limits.words
import expirebridge.moving.words
import expirebridge.sealing.explain
import expirebridge.sealing.words
import expirebridge.series.words
from expirebridge.capabilities import given
from expirebridge.cli.words import GivesWords
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


WORDS: tuple[GivesWords, ...] = (
    expirebridge.limits.words,
    expirebridge.groups.words,
    expirebridge.series.words,
    expirebridge.sealing.words,
    expirebridge.fleet.words,
    expirebridge.foreign.words,
    expirebridge.lateness.words,
    expirebridge.moving.words,
    expirebridge.ledger.words,
)


def test_these_have_words_of_the_command() -> None:
    assert given("words") == WORDS
