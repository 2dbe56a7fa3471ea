"""The functions for clients in other languages, and their page, docs/reference/wire-protocol.md."""

import re
from pathlib import Path

from expirebridge.foreign import function_library
from expirebridge.store import script_loader
from tests.kit.cases import each

PACKAGE = Path(function_library.__file__).parents[1]
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "wire-protocol.md").read_text()


@each("name", function_library.NAMES)
def test_a_function_s_call_and_its_replies_are_described(name: str) -> None:
    function = function_library.function(name)
    [row] = [line for line in PAGE.splitlines() if line.startswith(f"| `{function.usage}` |")]
    [file] = PACKAGE.glob(f"*/lua/functions/{name}.lua")
    text = file.read_text()
    returns = text.partition("-- returns")[2].partition("\nlocal")[0]
    for word in re.findall(r"'([^']+)'", returns):
        assert f"`{word}`" in row


def test_every_file_of_a_function_is_loaded() -> None:
    files = [path for path in PACKAGE.rglob("*.lua") if path.parent.name == "functions"]
    assert sorted(path.stem for path in files) == sorted(function_library.NAMES)


def test_finished_work_and_looking_need_no_memory_and_new_work_does() -> None:
    flags = {name: function_library.function(name).flags for name in function_library.NAMES}
    assert flags == {
        "make": (), "reschedule": (), "pause": (), "resume": (), "signal": (),
        "cancel": ("allow-oom",), "run_now": ("allow-oom",), "get": ("no-writes",),
        "make_group": (), "close_group": ("allow-oom",), "cancel_group": ("allow-oom",),
        "get_group": ("no-writes",),
    }  # fmt: skip
    for name, given in flags.items():
        listed = ", ".join(f"'{flag}'" for flag in given)
        registered = f"function_name = 'expirebridge_{name}', flags = {{ {listed} }}"
        assert registered in function_library.library_text()


@each("name", function_library.NAMES)
def test_a_function_does_its_work_with_the_operation_s_own_script(name: str) -> None:
    for text in (function_library.library_text(), function_library.script(name).text):
        assert script_loader.load(name).plain.text in text


def test_a_library_says_its_version() -> None:
    text = function_library.library_text()
    assert function_library.version_of(text) == function_library.version()
    assert function_library.version_of("#!lua name=expirebridge\n") == "0"
