"""The same scripts have the same transcripts, and others have others."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from expirebridge.store import script_loader
from tests.kit.wrong_clock import needs_faketime
from tests.machine.transcripts import KINDS, SEEDS, SteppedServer, transcribe

pytestmark = needs_faketime


@pytest.fixture(scope="module")
def stepped() -> Iterator[SteppedServer]:
    with ExitStack() as stack:
        yield SteppedServer(stack)


def test_each_kind_has_its_seeds() -> None:
    assert {*SEEDS} == {*KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_has_one_transcript(stepped: SteppedServer, kind: str) -> None:
    first = transcribe(stepped, kind, 1)
    assert len(first.lines) > 20
    assert transcribe(stepped, kind, 1).lines == first.lines


def test_a_planted_bug_shows_in_a_transcript(stepped: SteppedServer) -> None:
    right, wrong = (
        "move(id, record, state, now + keep, fields)",
        "move(id, record, state, now, fields)",
    )
    source = script_loader.SHIPPED.text("include/state_sets")
    assert source.count(right) == 1
    before = transcribe(stepped, "mixed", 1)
    library = script_loader.ScriptLibrary({"include/state_sets": source.replace(right, wrong)})
    with script_loader.using(library):
        assert transcribe(stepped, "mixed", 1).lines != before.lines
