"""docs/wire-protocol.md names every function as it is called."""

import re
from pathlib import Path

import pytest

from expirebridge.store import functions

PAGE = (Path(__file__).parents[2] / "docs" / "wire-protocol.md").read_text()


@pytest.mark.parametrize("name", functions.NAMES)
def test_a_function_s_call_and_its_replies_are_described(name: str) -> None:
    function = functions.load(name)
    [row] = [line for line in PAGE.splitlines() if line.startswith(f"| `{function.usage}` |")]
    text = (Path(functions.__file__).parent / "lua" / "functions" / f"{name}.lua").read_text()
    returns = text.partition("-- returns")[2].partition("\nlocal")[0]
    for word in re.findall(r"'([^']+)'", returns):
        assert f"`{word}`" in row


def test_every_file_of_a_function_is_loaded() -> None:
    folder = Path(functions.__file__).parent / "lua" / "functions"
    assert sorted(path.stem for path in folder.glob("*.lua")) == sorted(functions.NAMES)
