"""A database in which other clients wrote texts and numbers, and a call of every script there."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import redis

from tests.kit.steps import PREFIX

SHAPES: Mapping[str, bytes] = {
    "a line": b"a",
    "a line and a short one": b"a",
    "a line that ends": b"a",
    "digits": b"1",
    "digits and a letter": b"1",
    "words": b"a ",
    "numbers": b"1 ",
    "lines": b"a\n",
    "empty lines": b"\n",
    "lanes": b"A=1\n",
    "nonces": b"1:a ",
    "declarations": b" ser=f0",
    "marks": b"@1",
    "signs": b"?",
    "brackets": b"[",
    "quotes": b'"',
    "backslashes": b"\\",
    "members": b'"a":1,',
    "a path": b"a",
}
"""What a text is made of, over and over."""

_ENDS = {
    "a line and a short one": b"\nb", "a line that ends": b"\n", "digits and a letter": b"x",
    "a path": b"/",
}  # fmt: skip


def text_of(shape: str, length: int) -> bytes:
    """A text of about this length."""
    piece = SHAPES[shape]
    return piece * (length // len(piece)) + _ENDS.get(shape, b"")


IDS = ("a0", "w0", "h0", "r0", "s0", "f0", "c0", "ser@1000", "g@g0", "g@then")
"""A task of each state, a tick, a member of a group, and the follow-up."""

_SETUP = Path(__file__).with_suffix(".lua").read_text(encoding="utf-8")

Text = bytes
Arguments = Sequence[str | bytes | int]
Recipe = Callable[[Text], Sequence[Arguments]]
"""Gives the arguments of each call, with a text where a caller could put one."""


def _each_id(*before: str | int) -> Recipe:
    return lambda _: [(0, *before, id) for id in IDS]


def _one(*arguments: str | int | None) -> Recipe:
    """One call; None stands for the text."""
    return lambda text: [(0, *(text if each is None else each for each in arguments))]


def _new(id: str, if_exists: str, text: Text) -> Arguments:
    call = "mail.send?@"
    return (
        id,
        0,
        if_exists,
        call,
        "in",
        0,
        4,
        "args",
        text,
        "tags",
        text,
        "retry",
        text,
        "key",
        text,
    )


def _make(text: Text) -> Sequence[Arguments]:
    ways = ("reject", "keep", "replace", "extend")
    return [(0, "n", *_new(id, way, text)) for id in ("new", *IDS) for way in ways]


def _settle(text: Text) -> Sequence[Arguments]:
    outcomes = (
        "retry", "snoozed", "busy", "released", "unknown", "unfit", "failed", "cancelled",
        "succeeded",
    )  # fmt: skip
    more = {"busy": b" " + text}
    return [
        (0, 1, 1, "c0de", 1, f"{id} t {outcome} 0".encode() + more.get(outcome, b""), text)
        for outcome in outcomes
        for id in ("r0", "g@g0", "s0")
    ]


def _settle_then(text: Text) -> Sequence[Arguments]:
    return [
        (0, 1, 1, "c0de", 1, "r0 t succeeded 0", text, *_new(id, way, text))
        for way in ("reject", "extend")
        for id in ("new", "a0", "r0")
    ]


def _edit(text: Text) -> Sequence[Arguments]:
    return [(0, "n", id, "mail.send?@", text, "mail.send?@", text) for id in IDS]


def _relay(text: Text) -> Sequence[Arguments]:
    rows = [(id, "1 1", what) for id in ("new", *IDS) for what in ("waits", "cancel", "failed")]
    return [
        (
            0,
            "L",
            "L",
            0,
            0,
            1,
            1,
            "",
            *row,
            "moved",
            "mail.send?@",
            "in",
            1,
            2,
            "args",
            text,
            "tags",
            text,
        )
        for row in rows
    ]


def _pack_batch(_: Text) -> Sequence[Arguments]:
    states = ("pending", "waiting", "paused", "failed", "series")
    return [(0, "m", 0, 0, state, 0, 100) for state in states]


def _packed(value: bytes | int | Sequence[Any]) -> bytes:
    """A value as MessagePack."""
    if isinstance(value, bytes):
        return b"\xdb" + len(value).to_bytes(4) + value
    if isinstance(value, int):
        return b"\xcf" + value.to_bytes(8)
    return b"\xdd" + len(value).to_bytes(4) + b"".join(map(_packed, value))


def _receive_batch(text: Text) -> Sequence[Arguments]:
    fields = [b"call", b"mail.send?@", b"made", b"1"]
    for name in (b"args", b"tags", b"history", b"error", b"nonce", b"slots", b"attempt", b"due"):
        fields += [name, text]
    items = [(id.encode(), b"pending", 10**12, fields) for id in ("new", *IDS)]
    return [(0, "m", 1, *map(_packed, items))]


def _claim(_: Text) -> Sequence[Arguments]:
    return [
        (0, "t2", 1000, 100, 10**9, 1, 1, 0, "", "", "", "", 0),
        (0, "t", 1000, 100, 10**9, 1, 1, 1, "", ""),
    ]


def _claim_known(_: Text) -> Sequence[Arguments]:
    return [
        (0, "t2", 1000, 100, 10**9, 1, 1, 0, "", code, 2, 0, 0, "c0de 1", "-inf", "", 10**15, 1)
        for code in ("c0de ?", "dead ?")
    ]


def _list(text: Text) -> Sequence[Arguments]:
    return [
        (0, "pending", "", "", 0, 100, ""), (0, "failed", text, "", 0, 100, ""),
        (0, "", "", "a", 0, 100, ""), (0, "", "", text, 0, 100, ""), (0, "", "", "", 0, 100, "g"),
    ]  # fmt: skip


_FOLLOW_UP = ("g3@then", 0, "reject", "mail.send?@", "in", 0, 1, "args")

RECIPES: Mapping[str, Recipe] = {
    "adopt": lambda text: [
        (0, 1, 1, f"{id}:?mail.send?@", id, "mail.send?@", event, "")
        for id in IDS
        for event in ("live", "deleted", "expired")
    ]
    + [(0, 1, 1, b"x" + text + b":?a.b?[1]", b"x" + text, "a.b?[1]", "expired", text)],
    "beat": _each_id(),
    "begin_arrival": _one(None),
    "begin_move": _one(None, "n"),
    "bind_ledger": _one(None),
    "cancel": _each_id("n", 1),
    "cancel_group": _one("g", 1, 10),
    "check_keys": lambda text: [
        (
            0, 1, 1, *(f"{id}:?mail.send?@" for id in IDS),
            *(f"{PREFIX}:task:{id}" for id in IDS),
            text, text + b":?a.b?[]", f"{PREFIX}:task:".encode() + text,
        )
    ],
    "claim": _claim,
    "claim_known": _claim_known,
    "close_group": _one("g"),
    "count": _one(1),
    "count_before": _one("pending", 1),
    "count_lacking": _one("g", 0, 100),
    "count_subscribers": _one(),
    "create_partitions": _one(1),
    "declare": _one("c0de", None, None),
    "declare_urgent": _one(1, None, "mail.send"),
    "declare_limits": _one("d", None, '[["A"]]', "l A", '{"most":2}', "f mail.send", None),
    "declare_series": lambda text: [(0, "L1", 1, "ser", "f0"), (0, "L1", 1, text, text)],
    "drop_batch": _one("m", 0),
    "edit": _edit,
    "end_arrival": _one(),
    "find_due_series": _one(10),
    "find_ids": _one("pending", None, 0, 10, 10),
    "find_known": _one("a0", None),
    "find_outdated": _one("2026a", 0, 10),
    "find_overwritten": _one(),
    "find_refused": _one(2, "GET", None),
    "find_unexplained": lambda text: [
        (0, event, *(f"{id}:?mail.send?@" for id in IDS), text, text + b":?a.b?[]")
        for event in ("live", "expired")
    ],
    "find_unhandled": _one(1, 100),
    "forecast": _one(1000, 5, 10),
    "forget_dirty": _one("L", 0, 1, "a0", 1, 0),
    "forget_ended": _one("L", 0, *IDS),
    "get": _each_id(),
    "get_group": _one("g"),
    "get_series": _one(10**6, "ser"),
    "heartbeat": lambda text: [
        (0, "L1", 1000, "c0de =1", 1, "r0", "t", "g@g0", "t", text, text),
        (0, text, 1000, b"c0de ?" + text, 1),
    ],
    "hold": _one("tag a", None),
    "judge_early": lambda text: [(0, id, text, 1, text) for id in IDS],
    "leave": _one("L1"),
    "let_pass": _each_id(),
    "list": _list,
    "list_calls": lambda text: [
        (0, state, "", "", "+inf", 100) for state in ("pending", "running", "failed")
    ] + [(0, "pending", 1, text, "+inf", 100)],
    "list_groups": _one(0, 10),
    "list_holds": _one(),
    "list_listeners": _one(10),
    "list_series": _one(10**6, 0, 10),
    "make": _make,
    "make_drawn": lambda text: [(0, "", *_new("new", "reject", text))],
    "make_drawn_many": lambda text: [
        (0, "", *_new("new", "reject", text), *_new("other", "reject", text))
    ],
    "make_group": lambda text: [
        (0, "g3", "wait", "d1", 0, *_FOLLOW_UP, text), (0, "g", "wait", "d1", 0),
    ],
    "make_ticks": _one("ser", 1000, 2000, 2000, 3000, None),
    "mark_partition": _one(),
    "note_action": _one(None, None, None, None, "n"),
    "note_durations": _one("mail.send", 1, 1, None, 1, 1),
    "note_horizon": _one(None),
    "note_import": _one("from", "n"),
    "open_lanes": _one(),
    "pack_batch": _pack_batch,
    "pause": _each_id("n"),
    "pause_series": _one("ser", None),
    "purge": _each_id(),
    "put_off": _each_id("n", 1000),
    "put_series": _one(
        "ser", "f1", "f0", 1, 1, 10**14, 10**14, "", None, 2, "call", "a.b?@", "args", None
    ),
    "read_actions": _one(10),
    "read_arrivals": _one("m"),
    "read_circumstances": _each_id(),
    "read_decisions": _one(),
    "read_dirty": _one(100),
    "read_durations": _one(),
    "read_fleet": _one(10**6),
    "read_groups": _one(0, 10),
    "read_health": _one(10**6),
    "read_holds_and_weights": _one(),
    "read_ledger": _one(),
    "read_limits": _one(10),
    "read_partitions": _one(),
    "read_run_id": _one(),
    "read_tally": _one(2, 1, 0),
    "receive_batch": _receive_batch,
    "receive_holds_and_weights": _one(
        "m", "holds", None, None, "weights", None, None, "numbers", "A", None
    ),
    "relay": _relay,
    "release": _one("tag a", 1000),
    "remove_series": _one(1, "n", "ser", None),
    "reschedule": lambda _: [(0, "n", id, "in", 1000) for id in IDS],
    "reseal": _one("task", "a0", "error", None, None),
    "reserve_members": _one("g", 1),
    "restore_slots": lambda text: [(0, "a0", b"line=" + text), (0, text, "line=a")],
    "restore_group": lambda text: [(0, "g3", text, 1, "made", text, *_FOLLOW_UP, text)],
    "resume": _each_id("n", 1),
    "resume_series": _one("ser", "f0", 10**14, 10**14, "", None),
    "retime_ticks": _one("ser", 1000, 2000, 2000, "", "2026a"),
    "run_now": _each_id("n"),
    "run_series": _one("n", "ser"),
    "scan": _one(0, 1000, 1, 1),
    "send_early": lambda text: [
        (0, "L", 0, id, "1 1", "waits", "", "mail.send?@", "in", 1, 2, "args", text, "tags", text)
        for id in ("new", *IDS)
    ],
    "set_limit": _one("A", None, None),
    "set_weight": _one("A", None, 2),
    "signal": lambda text: [
        (0, "n", id, digests, text, text) for id in IDS for digests in ("", text)
    ],
    "settle": _settle,
    "settle_then": _settle_then,
    "survey_functions": _one(100),
    "sweep": _one(1, 1000, 0, 1, 1),
}  # fmt: skip
"""For each script the calls that read, or write, the most of what is there."""

MOVING = {
    "pack_batch": "to x", "end_arrival": "from x", "receive_batch": "from x",
    "receive_holds_and_weights": "from x",
}  # fmt: skip

FUNCTIONS: Mapping[str, Recipe] = {
    "cancel": lambda text: [(text,)],
    "cancel_group": lambda text: [(text,)],
    "close_group": lambda text: [(text,)],
    "get": lambda text: [(text,), *((id,) for id in IDS)],
    "get_group": lambda text: [(text,), ("g",)],
    "make": lambda text: [
        (text, "[1]", 0), ("a.b", text, 0), ("a.b", b'{"a":"' + text + b'"}', 0),
        ("a.b", b"[" + text + b"]", 0), ("a.b", "[1]", text),
        *(("a.b", "[1]", 0, option, text)
          for option in ("id", "if_exists", "tags", "retry", "timeout", "on_signal", text)),
        ("a.b", "[1]", 0, "urgent", text),
        ("a.b", "[1]", 0, "retry", b"[" + text + b"]"),
        ("a.b", "[1]", 0, "id", "x", "if_exists", "keep", "window", text),
    ],
    "make_group": lambda text: [
        (text,), ("g3", "then", text, "[1]"), ("g3", "then", "a.b", text), ("g3", "delay", text),
        ("g3", "on_failed", text), ("g3", text, text),
    ],
    "pause": lambda text: [(text,), *((id,) for id in IDS)],
    "reschedule": lambda text: [(text, 0), *((id, 1000) for id in IDS), ("a0", text)],
    "resume": lambda text: [(text,), *((id,) for id in IDS)],
    "run_now": lambda text: [(text,), *((id,) for id in IDS)],
    "signal": lambda text: [
        (text,), ("a0", text), ("a0", b'"' + text + b'"'), *((id, "1", text) for id in IDS),
    ],
}  # fmt: skip


def prepare(
    client: redis.Redis, text: Text, moving: str = "", score: str = "", timer: str = ""
) -> None:
    """Empty the database, and write a text wherever another client could."""
    client.flushall()
    client.eval(_SETUP, 1, PREFIX, text, moving, score, timer)
