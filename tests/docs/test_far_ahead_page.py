"""The page docs/how-to/far-ahead.md, followed from the first line to the last."""

from pathlib import Path

import pytest

from expirebridge import Bridge
from tests.kit.processes import ROOT
from tests.kit.transcripts import terminals

PAGE = ROOT / "docs" / "how-to" / "far-ahead.md"


@pytest.mark.rest
def test_the_page_can_be_followed(tmp_path: Path) -> None:
    with terminals(tmp_path) as reader:
        typed = reader.follow(PAGE.read_text(encoding="utf-8"))
        with Bridge(f"redis://localhost:{reader.port}/1") as bridge:
            count = bridge.count()
    assert (count.pending, count.succeeded) == (0, 1)
    assert len(typed) == 9
