"""The Lua scripts: whole, headed and described."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
import redis

from expirebridge.store import script_loader
from expirebridge.store.assembly import LuaFile, assemble, lists_added_to
from expirebridge.store.script_loader import SHIPPED
from expirebridge.testing import time
from tests.kit.lua import NAMES, PACKAGE, SHARED

INCLUDES = sorted(path.stem for path in SHARED)
TEXTS = {file: SHIPPED.text(file) for file in [*NAMES, *(f"include/{name}" for name in INCLUDES)]}


HOOKING = {
    name: hooks for name in INCLUDES if (hooks := LuaFile(name, TEXTS[f"include/{name}"]).hooks)
}
"""The shared files that add to lists."""


def included_in(text: str) -> list[str]:
    return re.findall("^-- include (.+)$", text, re.MULTILINE)


def words_in(parts: Iterable[str]) -> set[str]:
    return set(re.findall(r"\w+", " ".join(parts)))


@cache
def given_by(include: str) -> set[str]:
    """The names that a shared file offers."""
    return {*LuaFile(include, TEXTS[f"include/{include}"]).gives}


def needed_by(text: str) -> set[str]:
    """The shared files of which a text uses something that is not its own."""
    code = re.sub(r"--.*|'[^'\n]*'|\.\w+", "", text)
    own = words_in(re.findall(r"local (?!function)[\w, ]+|function.*?\)", code))
    used = words_in([code]) - own
    lists = {"hooks"} if LuaFile("it", text).hooks else set()
    return {name for name in INCLUDES if given_by(name) & used} | lists


def opening_of(text: str) -> list[str]:
    """The lines of the comment with which a file opens."""
    lines = text.split("\n")
    end = next(number for number, line in enumerate(lines) if not line.startswith("--"))
    return lines[:end]


def test_no_name_is_in_two_folders() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert len(INCLUDES) == len(set(INCLUDES))
    assert {path.parent.name for path in PACKAGE.rglob("lua/**/*.lua")} == {
        "lua",
        "include",
        "functions",
    }


def test_every_script_is_called_and_every_call_has_its_script() -> None:
    modules = (path for path in PACKAGE.rglob("*.py") if path.parent.name != "testing")
    source = "".join(module.read_text(encoding="utf-8") for module in modules)
    assert sorted(set(re.findall(r'\bscript\(\s*"(\w+)"', source))) == NAMES


def test_a_script_loads_with_nothing_left_to_include() -> None:
    for name in NAMES:
        script = script_loader.load(name)
        assert script.name == name
        for source in (script.headed, script.plain):
            assert "-- include" not in source.text, name
            assert source.sha == hashlib.sha1(source.text.encode()).hexdigest()  # noqa: S324
        assert script_loader.load(name) is script


def test_a_script_is_headed_for_servers_that_know_headers() -> None:
    for name in NAMES:
        script = script_loader.load(name)
        header, _, body = script.headed.text.partition("\n")
        assert header in {"#!lua", "#!lua flags=allow-oom", "#!lua flags=no-writes"}, name
        assert body == script.plain.text
        assert not script.plain.text.startswith("#!")


def missing_in_opening(text: str) -> list[str]:
    """What the comment with which a script opens does not say."""
    flags, purpose, *rest = opening_of(text)
    takes_and_returns = ("-- KEYS[1]  prefix", "-- ARGV     1 database", "-- returns  ")
    missing = [word for word in takes_and_returns if not any(one.startswith(word) for one in rest)]
    if not re.fullmatch(r"-- flags: (allow-oom|no-writes|\(none: .+\))", flags):
        missing.append("flags")
    if not re.match(r"-- [A-Z].*", purpose):
        missing.append("purpose")
    return missing


def test_a_script_begins_with_its_flags_and_says_what_it_takes_and_returns() -> None:
    faults = {name: missing for name in NAMES if (missing := missing_in_opening(TEXTS[name]))}
    assert faults == {}


def headers_of(*names: str) -> set[str]:
    return {script_loader.load(name).headed.text.partition("\n")[0] for name in names}


def test_finished_work_can_be_recorded_when_memory_is_full() -> None:
    names = ("beat", "claim", "settle", "cancel", "run_now", "heartbeat", "sweep")
    assert headers_of(*names) == {"#!lua flags=allow-oom"}


def test_new_work_is_refused_when_memory_is_full() -> None:
    names = ("make", "reschedule", "put_off", "pause", "resume", "edit")
    assert headers_of(*names) == {"#!lua"}


def test_what_only_looks_writes_nothing() -> None:
    assert headers_of("get", "list", "count") == {"#!lua flags=no-writes"}


def test_a_script_names_no_key_but_by_the_shared_functions() -> None:
    # One module holds all names; a literal here would miss the prefix and its hash tag.
    assert [name for name in NAMES if "expirebridge:" in TEXTS[name]] == []
    bodies = {
        name: "\n".join(TEXTS[name].split("\n")[len(opening_of(TEXTS[name])) :]) for name in NAMES
    }
    assert [name for name, body in bodies.items() if "KEYS[1]" in body] == []


def test_names_are_built_where_all_keys_are_or_the_channel_is() -> None:
    assert {file for file in TEXTS if "prefix" in words_in([without_comments(file)])} == {
        "include/names",
        "include/lane_keys",
        "include/ring",
        "include/series_keys",
    }


SPINE = PACKAGE / "task" / "lua" / "include"
WORDS_OF_ROOMS = {
    "lane", "lanes", "grant", "grants", "granted", "group", "groups", "tick", "ticks", "ledger",
    "moving", "signal", "signals", "signalled", "urgent",
}  # fmt: skip
KNOWN_TO_THE_SPINE = {
    # What a record holds is read, and sent to listeners, at once: a field more is no command more.
    "records": {"ledger"},
    "claims": {"ledger", "tick"},
    # What replaces a task has a row of its own; and who makes one over a row, or extends another
    # call, is refused.
    "rearm": {"ledger"},
    "making": {"ledger", "group", "signal"},
    # What `meta` says of the whole database; a list of hooks would cost each task that is made.
    "format": {"moving"},
    "features": {"groups", "lanes", "ledger", "signals", "urgent"},
}
"""Words of rooms in shared Lua of the spine, and why they are there."""


def test_shared_lua_of_the_spine_knows_no_room() -> None:
    found = {}
    for path in SPINE.glob("*.lua"):
        code = re.sub("--.*", "", path.read_text(encoding="utf-8"))
        found[path.stem] = set(re.findall("[a-z]+", code)) & WORDS_OF_ROOMS
    assert {file: words for file, words in found.items() if words} == KNOWN_TO_THE_SPINE


def test_features_are_asked_by_headers_alone() -> None:
    """But for these: what may begin a feature's use, has no file of it, or ends before it."""
    found = {file for file in TEXTS if re.search(r"\buses\b", without_comments(file))}
    assert found == {
        "include/format", "include/features", "include/arrivals", "include/noted", "claim",
        "declare_limits", "read_decisions", "receive_holds_and_weights", "include/urgent_noted",
        "declare_urgent", "close_group", "cancel_group",
    }  # fmt: skip


def test_a_shared_file_is_described_and_included_somewhere() -> None:
    included = {name for text in TEXTS.values() for name in included_in(text)}
    assert included | HOOKING.keys() == {*INCLUDES}
    for name in INCLUDES:
        assert opening_of(
            re.sub("^(-- (include|gives|when|unless|on) .+\n)+\n", "", TEXTS[f"include/{name}"])
        ), name


def test_a_file_includes_just_what_it_uses_itself() -> None:
    unused, missing = dict[str, set[str]](), dict[str, set[str]]()
    for file, text in TEXTS.items():
        included, needed = included_in(text), needed_by(text)
        assert len(included) == len(set(included)), file
        # To include `format` is to use it: it refuses what a newer version wrote.
        unused[file] = {*included} - needed - {"format"}
        missing[file] = needed - {*included, file.removeprefix("include/")}
    assert {file: names for file, names in unused.items() if names} == {}
    assert {file: names for file, names in missing.items() if names} == {}


@pytest.fixture
def lua(tmp_path: Path) -> Iterator[Path]:
    """The empty folder of a part from which scripts are loaded."""
    folder = tmp_path / "boats" / "lua"
    (folder / "include").mkdir(parents=True)
    with script_loader.using(script_loader.ScriptLibrary(package=tmp_path)):
        yield folder


def test_what_an_include_includes_comes_before_it_and_once(lua: Path) -> None:
    (lua / "sail.lua").write_text("-- flags: (none)\n-- include ships\n-- include seas\nsail()\n")
    (lua / "include" / "ships.lua").write_text("-- include seas\n-- include winds\n\nships()\n")
    (lua / "include" / "winds.lua").write_text("-- include seas\n\nwinds()\n")
    (lua / "include" / "seas.lua").write_text("seas()\n")
    calls = re.findall(r"\w+\(\)", script_loader.load("sail").plain.text)
    assert calls == ["seas()", "winds()", "ships()", "sail()"]


def test_files_that_include_each_other_are_refused(lua: Path) -> None:
    (lua / "drift.lua").write_text("-- flags: no-writes\n-- include ships\n")
    (lua / "include" / "ships.lua").write_text("-- include seas\n")
    (lua / "include" / "seas.lua").write_text("-- include ships\n")
    with pytest.raises(ValueError, match="include each other: drift > ships > seas > ships"):
        script_loader.load("drift")


def test_a_missing_include_is_named_with_the_file_that_includes_it(lua: Path) -> None:
    (lua / "row.lua").write_text("-- flags: no-writes\n-- include ships\n")
    (lua / "include" / "ships.lua").write_text("-- include oars\n")
    message = "ships.lua includes oars: there is no include/oars.lua"
    with pytest.raises(ValueError, match=message):
        script_loader.load("row")


def test_only_what_a_shared_file_gives_is_in_the_scope_of_a_script(lua: Path) -> None:
    (lua / "sail.lua").write_text(
        "-- flags: (none)\n-- include ships\n\nlocal crew = 1\nsail(crew)\n"
    )
    (lua / "include" / "ships.lua").write_text(
        "-- gives sail, anchor, wind, tide\n\n"
        "local crew = 2\nlocal wind, tide = 3, 4\nlocal hold\n"
        "local function anchor() return wind end\n"
        "local function sail(one) return one, crew, anchor() end\n"
    )
    assert script_loader.load("sail").plain.text == (
        "local sail do\n"
        "\nlocal crew = 2\nlocal wind, tide = 3, 4\n"
        "local function anchor() return wind end\n"
        "function sail(one) return one, crew, anchor() end\n"
        "end\n"
        "local crew = 1\nsail(crew)\n"
    )


def test_all_names_of_a_statement_are_given_together(lua: Path) -> None:
    (lua / "sail.lua").write_text("-- flags: (none)\n-- include ships\nsail(wind)\n")
    (lua / "include" / "ships.lua").write_text(
        "-- gives sail, wind\n-- gives tide\n\nlocal wind, tide\n"
        "local sail; do\n  function sail() return 1 end\nend\n"
    )
    assert script_loader.load("sail").plain.text == (
        "local sail, wind, tide do\n\n do\n  function sail() return 1 end\nend\nend\nsail(wind)\n"
    )


def test_a_block_is_entered_where_its_feature_is_in_use(lua: Path) -> None:
    (lua / "sail.lua").write_text("-- flags: (none)\n-- include ships\nif sail then sail() end\n")
    (lua / "include" / "ships.lua").write_text(
        "-- include seas\n-- gives sail\n-- when boats\n\nlocal function sail() end\n"
    )
    (lua / "include" / "seas.lua").write_text("-- gives uses\n\nlocal uses = {}\n")
    assert script_loader.load("sail").plain.text == (
        "local uses do\n\nuses = {}\nend\n"
        "local sail if uses.boats then\nfunction sail() end\nend\nif sail then sail() end\n"
    )


SAIL_AND_ROW = """\
-- include seas
-- gives sail, row

local knots = 3
local function sail() return knots end
local function row() return knots end
"""


@pytest.fixture
def boats(lua: Path) -> Path:
    """The same folder, with a block that is entered on a condition, and what it includes."""
    (lua / "include" / "seas.lua").write_text("-- gives uses\n\nlocal uses = {}\n")
    (lua / "include" / "ships.lua").write_text(SAIL_AND_ROW)
    (lua / "include" / "ports.lua").write_text(
        "-- include ships\n-- gives moor\n-- when boats\n\n"
        "local function moor() return sail() end\n"
    )
    return lua


SEAS = "local uses do\n\nuses = {}\nend\n"
PORTS = "local moor if uses.boats then\nfunction moor() return sail() end\nend\n"


def test_what_blocks_alone_need_is_in_a_block_that_is_entered_with_them(boats: Path) -> None:
    (boats / "land.lua").write_text("-- flags: (none)\n-- include ports\nif moor then moor() end\n")
    assert script_loader.load("land").plain.text == (
        f"{SEAS}local sail if uses.boats then\nlocal knots = 3\n"
        f"function sail() return knots end\nend\n{PORTS}if moor then moor() end\n"
    )


def test_what_a_script_needs_in_any_case_stays_beside_it(boats: Path) -> None:
    (boats / "land.lua").write_text(
        "-- flags: (none)\n-- include ships\n-- include ports\nrow()\nif moor then moor() end\n"
    )
    assert script_loader.load("land").plain.text == (
        f"{SEAS}local sail, row do\nlocal knots = 3\n"
        "if uses.boats then\nfunction sail() return knots end\nend\n"
        f"function row() return knots end\nend\n{PORTS}row()\nif moor then moor() end\n"
    )


def test_what_comes_before_a_script_may_begin_a_feature_is_in_no_such_block(boats: Path) -> None:
    (boats / "land.lua").write_text(
        "-- flags: (none)\n-- include seas\n-- include ships\nuses.boats = true\n"
        "-- include ports\nmoor()\n"
    )
    assert script_loader.load("land").plain.text == (
        f"{SEAS}local sail do\nlocal knots = 3\nfunction sail() return knots end\nend\n"
        f"uses.boats = true\n{PORTS}moor()\n"
    )


def test_a_claim_that_finds_nothing_leaves_nothing_undone() -> None:
    """It ends before these lists, unless there are limits, or the listener declares some."""
    lists = {"on_left", "at_end", "lacking"}
    files = [LuaFile(name, TEXTS[f"include/{name}"]) for name in HOOKING]
    conditions = {
        file.name: file.condition
        for file in files
        if not lists.isdisjoint(hook.list for hook in file.hooks)
    }
    assert conditions == {"grants": "uses.limits", "declared": ""}


@pytest.mark.parametrize(
    ("ships", "message"),
    [
        (
            "-- gives sail\nlocal function row() end\n",
            "ships.lua gives sail, which it does not have",
        ),
        (
            "-- gives sail\nlocal sail, row = 1, 2\n",
            "ships.lua gives sail, but not row of the same statement",
        ),
        ("local function sail() end\n", "drift.lua uses sail, which ships.lua does not give"),
        (
            "-- include oars\n-- gives sail\nlocal function sail() end\n",
            "oars.lua and ships.lua both give sail",
        ),
    ],
)
def test_a_file_that_gives_what_it_must_not_is_refused(lua: Path, ships: str, message: str) -> None:
    (lua / "drift.lua").write_text("-- flags: no-writes\n-- include ships\nsail()\n")
    (lua / "include" / "ships.lua").write_text(ships)
    (lua / "include" / "oars.lua").write_text("-- gives sail\nlocal function sail() end\n")
    with pytest.raises(ValueError, match=message):
        script_loader.load("drift")


def test_what_a_shared_file_gives_is_used_outside_of_it() -> None:
    shift = time.movable().text("shift")
    files = {file: LuaFile(file, text) for file, text in (TEXTS | {"shift": shift}).items()}
    unused = {
        f"{giver}: {name}"
        for giver in INCLUDES
        for name in files[f"include/{giver}"].gives
        if not any(name in file.used and giver in file.parts for file in files.values())
    }
    assert unused == set()


MOST_NAMES = 150
"""In one scope, in which Lua allows 200."""


def test_no_scope_has_too_many_names(client: redis.Redis) -> None:
    more = f"local {', '.join(f'more{number}' for number in range(200 - MOST_NAMES))}\n"
    for name in NAMES:
        client.script_load(more + script_loader.load(name).plain.text)


ORDER = {
    "on_move": ["mark_moved", "leave_or_keep", "note_moved", "note_tick_moved", "follow_urgent"],
    "on_forget": ["leave_all", "leave_index"],
    "on_make": ["make_member", "keep_signalled"],
    "on_give_up": ["leave_all", "give_up"],
    "on_anew": ["keep_begun"],
    "settle_fields": ["LANE_FIELDS"],
    "on_settle": ["hear"],
    "on_refused": ["hear_late"],
    "on_settled": ["put_first"],
    "on_let_go": ["leave_all_but_ordered"],
    "on_retry": ["is_last_attempt"],
    "on_succeed": ["mark_succeeded", "free_slots", "note_succeeded", "note_ticks_succeeded"],
    "at_end": ["serve_freed"],
    "on_left": ["serve_others"],
    "claim_fields": ["CLAIM_FIELDS", "CLAIM_FIELDS"],
    "on_look": ["is_blocked"],
    "on_claim": ["admit"],
    "on_start": ["start_tick"],
    "on_take": ["take_slots", "note_passed", "note_taken"],
    "before_taken": ["write_admitted", "count_passed", "remove_taken"],
    "on_reply": ["tell_signal"],
    "on_park": ["end_tick_before"],
    "on_crowded": ["take_others"],
    "held_fields": ["HELD_FIELDS"],
    "on_renew": ["renew_slots"],
    "keyless": ["is_granted"],
    "on_change": ["answer_elsewhere"],
    "on_made": ["note_asked"],
    "on_edit": ["leave_if_others"],
    "on_swap": ["leave_for_others"],
    "on_write": ["note_signals", "note_urgent"],
    "on_stray": ["remove_lost"],
    "other_functions": ["OTHER_FUNCTIONS"],
    "on_meet": ["keep_decided"],
    "left_fields": ["LEFT_FIELDS"],
    "on_sweep": ["sweep_lanes", "note_holds", "forget_groups", "mend_index"],
    "on_swept": ["tell_swept", "find_stopping"],
    "on_count": ["count_move"],
    "on_list": ["ids_by_group"],
    "kept_paused": ["awaits_group"],
    "on_beat": ["tell_lacking", "tell_next_making"],
    "lacking": ["lacks_limits"],
    "stranded": ["is_out_of_line"],
    "on_again": ["raise_generation", "keep_decision"],
    "on_next": ["raise_next"],
    "on_revise": ["mark_revised"],
    "kept_longer": ["keep_unwritten"],
    "on_show": ["add_place"],
    "on_tell": ["tell_lane", "tell_dirty"],
    "on_gone": ["forget_declarations"],
    "on_new": ["place_urgent"],
    "on_first": ["first_urgent"],
    "on_skip": ["leave_index"],
    "on_served": ["place_granted"],
}
"""What each list of hooks.lua holds: rows are marked first, lanes are left before groups count."""


def test_lists_hold_what_shared_files_add_in_the_order_of_its_numbers(
    print_later: Callable[[str], None],
) -> None:
    hooks = sorted(hook for added in HOOKING.values() for hook in added)
    print_later("\n".join(f"{hook.list:<14}{hook.number:>3}  {hook.name}" for hook in hooks))
    assert len({(hook.list, hook.number) for hook in hooks}) == len(hooks)
    found = {name: [hook.name for hook in hooks if hook.list == name] for name in given_by("hooks")}
    assert found == ORDER


def test_a_hook_is_in_each_script_that_goes_through_its_list(lua: Path) -> None:
    (lua / "sail.lua").write_text("-- flags: (none)\n-- include reefs\n-- include winds\nblow()\n")
    (lua / "row.lua").write_text("-- flags: (none)\n-- include hooks\nreturn 1\n")
    (lua / "include" / "hooks.lua").write_text("-- gives on_wind\n\nlocal on_wind = {}\n")
    (lua / "include" / "winds.lua").write_text(
        "-- include hooks\n-- gives blow\n\nlocal function blow() on_wind[1]() end\n"
    )
    for name, number in (("reef", 20), ("hoist", 10)):
        (lua / "include" / f"{name}s.lua").write_text(
            f"-- include hooks\n-- on on_wind {number} {name}\n\nlocal function {name}() end\n"
        )
    assert script_loader.load("sail").plain.text == (
        "local on_wind do\n\non_wind = {}\nend\n"
        "do\nlocal function hoist() end\non_wind[#on_wind + 1] = hoist\nend\n"
        "do\nlocal function reef() end\non_wind[#on_wind + 1] = reef\nend\n"
        "local blow do\nfunction blow() on_wind[1]() end\nend\n"
        "blow()\n"
    )
    assert script_loader.load("row").plain.text == "return 1\n"


def test_a_script_that_reads_or_writes_tasks_refuses_those_of_a_newer_version() -> None:
    refusals = {
        name: script_loader.load(name).plain.text.count(
            "return redis.error_reply('EXPIREBRIDGE_FORMAT"
        )
        for name in {*NAMES} - {"leave", "find_refused", "read_run_id"}
    }
    assert {name: count for name, count in refusals.items() if count != 1} == {}


def test_a_script_that_does_not_exist_is_not_found() -> None:
    with pytest.raises(FileNotFoundError):
        script_loader.load("missing")


USED_AND_NOT = """
-- Told of by `kept`, and by a comment: rest
local WORDS = { 'a' }
local OTHER = {
  'rest',
}

-- What follows is a function
-- of two lines.
local function kept()

  return WORDS
end

local function rest() return OTHER end
local function again() return again() end
local function third() return redis.call('rest') end
local seen = redis.call('TIME')
local one, other = redis.call('TIME')
redis.call('PING')
if kept().third == one then
  return 1
else
  return 2 -- rest
end
"""


def assembled(text: str) -> str:
    file = LuaFile("some", text)
    return assemble(file, [(file, list(file.statements))])


def test_what_nothing_leads_to_is_left_out_of_a_script() -> None:
    pruned = assembled(USED_AND_NOT)
    assert "local WORDS" in pruned
    assert "of two lines.\nlocal function kept()\n\n  return WORDS\nend\n" in pruned
    assert "local one, other = redis.call('TIME')\nredis.call('PING')\n" in pruned
    assert pruned.endswith("else\n  return 2 -- rest\nend\n")
    assert not re.search("OTHER|function rest|again|seen|function third", pruned)


def test_a_script_that_cannot_be_taken_apart_is_refused() -> None:
    with pytest.raises(ValueError, match="begins its line"):
        LuaFile("some", "(redis or 1).call('TIME')\n")


def test_a_script_has_all_that_it_uses_and_no_function_that_it_does_not() -> None:
    included = "".join(TEXTS[f"include/{name}"] for name in INCLUDES)
    shared = set(re.findall(r"^local function (\w+)", included, re.MULTILINE))
    missing, unused = dict[str, set[str]](), dict[str, list[str]]()
    for name in NAMES:
        code = re.sub(
            r"--.*|^local [\w, ]+ do$", "", script_loader.load(name).plain.text, flags=re.M
        )
        functions = re.findall(r"^(?:local )?function (\w+)", code, re.MULTILINE)
        others = re.findall(r"^ *local (\w+) =", code, re.MULTILINE)
        words = re.findall(r"\w+", re.sub(r"'[^'\n]*'", "", code))
        fields = set(re.findall(r"\w\.(\w+)", code))
        missing[name] = shared & set(words) - {*fields, *functions, *others}
        unused[name] = [each for each in functions if words.count(each) < 2]
    assert {name: names for name, names in missing.items() if names} == {}
    assert {name: names for name, names in unused.items() if names} == {}


# Who takes an id out of a state's set, or deletes its record, takes the task out of its lanes; but
# for these.
KEEP_LANES = {
    ("include/state_sets", "repair_place"),  # it stays where its record says
    ("include/claims", "write_taken"),  # `enter_lanes` was called before
    ("include/admission", "write_admitted"),  # `change_slots` frees what it does not keep
    ("include/grants", "write_grants"),
    ("include/lane_repair", "take_back"),
}
# No id is taken out of a state's set here: one is added that has no lanes, or stays in its state.
ONLY_ADD = {"adopt", "heartbeat", "purge", "sweep", "make_drawn_many", "include/drawn"}


def without_comments(file: str) -> str:
    return re.sub("--.*", "", TEXTS[file])


def functions_in(file: str) -> dict[str, str]:
    """The functions of a file, each with its text."""
    found = re.findall(
        r"^( *)(?:(?:local )?function (\w+))"
        r"\((?![^\n]* end$)(.*?)^\1end$",
        without_comments(file),
        re.M | re.S,
    )
    return {name: body for _, name, body in found}


def changed_sets(code: str, commands: str) -> list[str]:
    """The states' sets that a text changes with one of these commands, under any name."""
    other_names = re.findall(r"local (\w+) = state_set\(", code)
    names = "|".join(
        [r"state_set\((?!'(?:dirty|groups|stopping)')", *(rf"{name}\b" for name in other_names)]
    )
    return re.findall(rf"'(?:{commands})', (?:{names})", code)


def test_what_ends_the_place_of_a_task_takes_it_out_of_its_lanes() -> None:
    enders = {
        (file, name): body
        for file in TEXTS
        for name, body in functions_in(file).items()
        if changed_sets(body, "ZREM") or re.search(r"'(DEL|UNLINK)', record_key\(", body)
    }
    leavers = ("leave_lanes(", "#on_move", "#on_forget", "#on_succeed", "#on_give_up")
    others = {place for place, body in enders.items() if not any(each in body for each in leavers)}
    assert others == KEEP_LANES


def test_only_these_files_change_the_sets_of_states() -> None:
    writers = {file for file in TEXTS if changed_sets(without_comments(file), "ZADD|ZREM")}
    others = {"include/settlement", "pack_batch"}
    assert writers == {file for file, _ in KEEP_LANES} | ONLY_ADD | others


def test_a_script_that_can_free_a_slot_grants_it_in_the_end() -> None:
    bodies = {name: script_loader.load(name).plain.text for name in NAMES}
    freeing = {name for name, body in bodies.items() if "append(gone." in body}
    assert freeing
    served = ("\nat_end[#at_end + 1] = serve_freed\n", "at_end[i]()")
    assert {
        name
        for name in freeing
        if not re.search(r"(?<!function )serve_freed\(\)", bodies[name])
        and not all(each in bodies[name] for each in served)
    } == set()


def test_a_file_that_another_thread_reads_meanwhile_is_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = script_loader.ScriptLibrary()

    def read_another(text: str) -> tuple[str, ...]:
        library.text("claim")
        return lists_added_to(text)

    monkeypatch.setattr(script_loader, "lists_added_to", read_another)
    assert library.load("get").plain == script_loader.load("get").plain
