"""Reads a signal out of a task's record, and writes one for a handler that is called alone."""

from collections.abc import Mapping

import orjson

from expirebridge.store.record_values import json, moment, ring_for, split_call, text
from expirebridge.task.key_ring import MARK, Content, KeyRing, NotOpened, note_of
from expirebridge.task.keys import encode_value
from expirebridge.task.signal import Signal
from expirebridge.task.task import to_ms


def signal_in(record: Mapping[str, bytes], id: str, key_ring: KeyRing | None) -> Signal | None:
    """The signal of a record, if it has one.

    Raises NotOpened if its payload is sealed, and there is no key for it.
    """
    if "signalled" not in record:
        return None
    stored = record.get("signal", b"")
    if stored.startswith(MARK):
        stored = ring_for(stored, key_ring).open(stored, id, Content.SIGNAL)
    return _signal(record, stored)


def signal_shown(record: Mapping[str, bytes], id: str, key_ring: KeyRing | None) -> Signal | None:
    """The same to be looked at: what is sealed, and not opened, is a note."""
    try:
        return signal_in(record, id, key_ring)
    except NotOpened:
        return _signal(record, orjson.dumps(note_of(record["signal"])))


def told_of(signal: Signal) -> dict[str, bytes]:
    """A signal as a claim tells it, so that `signal_in` reads it. Raises InvalidTask."""
    return {
        "lost": f"{signal.instead_of}?".encode(),
        "signal": encode_value(signal.payload, "payload"),
        "signalled": f"{to_ms(signal.at)} - {signal.by}".encode(),
    }


def _signal(record: Mapping[str, bytes], payload: bytes) -> Signal | None:
    at, _, rest = record["signalled"].partition(b" ")
    came = moment(at)
    if came is None:
        return None
    lost = split_call(record.get("lost", b""))[0]
    return Signal(json(payload), text(rest.partition(b" ")[2]), lost, came)
