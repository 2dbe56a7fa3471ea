"""The functions for clients in other languages, and their page, docs/reference/wire-protocol.md."""

import re
from pathlib import Path

import pytest

from expirebridge.store import functions, script_loader

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "wire-protocol.md").read_text()


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


def test_finished_work_and_looking_need_no_memory_and_new_work_does() -> None:
    flags = {name: functions.load(name).flags for name in functions.NAMES}
    assert flags == {
        "make": (), "reschedule": (), "pause": (), "resume": (),
        "cancel": ("allow-oom",), "run_now": ("allow-oom",), "get": ("no-writes",),
    }  # fmt: skip
    for name, given in flags.items():
        listed = ", ".join(f"'{flag}'" for flag in given)
        registered = f"function_name = 'expirebridge_{name}', flags = {{ {listed} }}"
        assert registered in functions.library()


@pytest.mark.parametrize("name", functions.NAMES)
def test_a_function_does_its_work_with_the_operation_s_own_script(name: str) -> None:
    for text in (functions.library(), functions.script(name).text):
        assert script_loader.load(name).plain.text in text


def test_a_library_says_its_version() -> None:
    assert functions.version_of(functions.library()) == functions.version()
    assert functions.version_of("#!lua name=expirebridge\n") == "0"
