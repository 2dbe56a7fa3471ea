"""The Lua scripts take no longer than in proportion to the texts that they read."""

import pytest

from tests.kit.cases import each
from tests.kit.lua import FILES, PACKAGE
from tests.kit.lua_patterns import copies_in_loops, is_harmful, patterns_in


def files() -> dict[str, str]:
    return {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in FILES}


def test_no_pattern_takes_far_longer_for_a_longer_text() -> None:
    shared = "\n".join(files().values())
    patterns = [
        (file, pattern) for file, text in files().items() for pattern in patterns_in(text, shared)
    ]
    assert len(patterns) > 100
    assert [(file, pattern) for file, pattern in patterns if is_harmful(pattern)] == []


def test_no_loop_copies_what_it_adds_to() -> None:
    copies = {file: copies_in_loops(text) for file, text in files().items()}
    assert {file: lines for file, lines in copies.items() if lines} == {}


@each(
    "pattern",
    [
        r"[^\n]*$", r"[^\n]+$", r"[^\n]*\n$",  # each place is tried up to the end
        r"(%d+):(%S+)", r"([^/]*)/", r"(%x+) (%d+)",
        r"^%d+%.?%d*$", r"^(%d+) ?(%d*)$", r"^(.-)([^/]*)$",  # two share the bytes in all ways
        r"^ (%S+) ?(%S*) ?(%S*)$", r"^.*%s*$", r"^.*@.*$", r"a*b", r"%s*$",
    ],
)  # fmt: skip
def test_what_tries_each_place_up_to_the_end_is_found(pattern: str) -> None:
    assert is_harmful(pattern.replace(r"\n", "\n"))


@each(
    "pattern",
    [
        r"%S+", r"[^\n]+", r"^[^?]*", r"^(%d+) (%d+)$", r"^(.+)@%d+$", r"^(.*)\n[^\n]+$",
        r"^.*\n(.*)", r"^%S* ?%S*", r"/(%d+)", r"[^%s]", r'["\\]', r'"[^"]*"', r"^([^?]*)%??(.*)",
        r"^{[^{}]*}", "", r"%.%D", r"^[%a_][%w_]*%.[%a_][%w_]*$", r"^([^@]+)@g(%d+)$",
    ],
)  # fmt: skip
def test_what_looks_at_each_place_a_few_times_is_not(pattern: str) -> None:
    assert not is_harmful(pattern.replace(r"\n", "\n"))


def test_patterns_are_found_wherever_they_stand() -> None:
    code = """
local ID = '^[%w]+$' -- string.match(id, 'comment')
local FORMS = { '[^\\n]', 'a\\'b' }
local function f(text)
  for _, form in ipairs(FORMS) do text = string.gsub(text, form, ' ') end
  if string.find(text, 'plain+', 1, true) then return string.match(text, ID) end
  return string.match(g(text, '1'), "x" == 'y' and '' or '%d+')
end
"""
    with pytest.raises(ValueError, match="which pattern is"):
        list(patterns_in(code))
    code = code.replace("\"x\" == 'y' and '' or ", "")
    assert list(patterns_in(code)) == ["[^\n]", "a'b", "^[%w]+$", "%d+"]


def test_what_is_copied_in_a_loop_is_found() -> None:
    code = """
local function f(list)
  local text = ''
  for _, each in ipairs(list) do
    if each then
      text = text .. each
    end
  end
  while list[1] do table.remove(list, 1) end
  repeat text = string.sub(text, 2) until text == ''
  text = text .. 'end'
  return text
end
"""
    assert copies_in_loops(code) == [
        "text = text .. each", "while list[1] do table.remove(list, 1) end",
        "repeat text = string.sub(text, 2) until text == ''",
    ]  # fmt: skip
