"""Checks the fields of a record that say whether a signal, or its deadline, decides a task."""

import re
from collections.abc import Mapping

from expirebridge.errors import InvalidTask
from expirebridge.store.record_values import split_call
from expirebridge.task import keys
from expirebridge.task.calls.call import Argument
from expirebridge.task.key_ring import MARK, SEALED
from expirebridge.task.signal_payload import MAX_BY, MAX_PAYLOAD

_SIGNALLED = rf"\d{{1,15}} [!-~]{{1,100}} [^\x00-\x1f\x7f]{{0,{MAX_BY}}}"
"""When, a digest, and who sent it; see signal.lua."""
_PARTS = ("lost", "signal", "signalled")
_MAX_SEALED = MAX_PAYLOAD * 4 // 3 + 100
"""Base64, with what sealing adds."""


def check_decision(fields: Mapping[str, Argument], func: object) -> None:
    """Check the fields of a task that runs `func`. Raises InvalidTask, which quotes no payload."""
    given = {name: str(fields[name]) for name in ("on_signal", "passed", *_PARTS) if name in fields}
    decided = [name for name in _PARTS if name in given]
    if decided and len(decided) < len(_PARTS):
        lacking = next(name for name in _PARTS if name not in given)
        raise InvalidTask(f"{lacking}: it is missing; lost, signal and signalled belong together")
    states = [name for name in ("on_signal", "passed", "signalled") if name in given]
    if len(states) > 1:
        one, other = states[:2]
        raise InvalidTask(
            f"{one}: a task cannot have it together with {other}: one of both has decided"
        )
    for name in ("on_signal", "passed"):
        if name in given:
            _check_other(name, given[name], func)
    if decided:
        _check_lost(given["lost"], func)
        _check_payload(given["signal"].encode())
        _check_signalled(given["signalled"])


def _check_other(name: str, other: str, func: object) -> None:
    try:
        keys.check_func(other)
    except InvalidTask as error:
        raise InvalidTask(f"{name}: {error}") from None
    if other == func:
        raise InvalidTask(f"{name}={other!r}: it is the function of the task; write the other one")


def _check_lost(call: str, func: object) -> None:
    other, args = split_call(call.encode())
    _check_other("lost", other, func)
    if args == keys.IN_RECORD:
        return
    try:
        keys.check_args(args)
    except InvalidTask:
        raise InvalidTask(
            'lost: write the call that the signal replaced, such as "orders.cancel?[42]"'
        ) from None


def _check_payload(payload: bytes) -> None:
    if payload.startswith(MARK):
        if len(payload) > _MAX_SEALED or re.fullmatch(SEALED, payload) is None:
            raise InvalidTask("signal: it begins as what was sealed, and is damaged")
        return
    if len(payload) > MAX_PAYLOAD:
        raise InvalidTask(f"signal: {len(payload):,} bytes; at most {MAX_PAYLOAD:,}")
    try:
        values, _ = keys.decode_args(b"[" + payload + b"]")
    except ValueError:
        values = []
    if len(values) != 1:
        raise InvalidTask('signal: write the payload, JSON, as text, such as "{\\"ref\\":7}"')


def _check_signalled(text: str) -> None:
    if re.fullmatch(_SIGNALLED, text) is None:
        raise InvalidTask(
            "signalled: write the ms since 1970, a digest, and who sent it, separated by spaces"
        )
