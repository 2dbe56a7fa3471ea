"""What is written into a row: the result of relaying it, or the state of its task."""

from typing import Any

from sqlalchemy import Row

from expirebridge.ledger.relay_statements import REFUSED, RowResult, StatusUpdate
from expirebridge.ledger.rows import Decided, DesiredState, Status


def _version(row: Row[Any]) -> dict[str, Any]:
    return {"b_id": row.id, "b_generation": row.generation, "b_revision": row.revision}


def stamped(result: RowResult) -> dict[str, Any]:
    """Return the parameters that stamp a row."""
    row, due, refusal, _ = result
    return {
        **_version(row),
        "b_status": row.status,
        "b_due": due,
        "b_becomes": row.status if refusal is None else Status.FAILED,
        "b_message": None if refusal is None else f"{REFUSED}{refusal}",
    }


def waiting(result: RowResult) -> dict[str, Any]:
    """Return those that let a row wait for its id."""
    return {**_version(result.row), "b_message": result.refusal}


def what_comes_of(row: Any, change: StatusUpdate) -> str:
    """Decide on a write-back: the row is `written`, or relayed `again`, or `nothing` is done."""
    version = change.version
    if row.revision != version.revision or row.generation > version.generation:
        return "nothing"
    if row.generation < version.generation or row.status == Status.WAITING:
        return "written"
    return "nothing" if change.runs or row.status == change.status else "again"


def written_back(row: Any, change: StatusUpdate) -> dict[str, Any]:
    """Return the parameters that are written into a row."""
    began_anew = row.generation < change.version.generation
    # What had ended, and is restarted, was to run at its deadline. One that was only claimed, and
    # put off before its decision, begins anew as well, but waits for its signal on.
    was_restarted = began_anew and row.status != Status.WAITING
    waits = change.status == Status.WAITING and not change.cancelling
    return {
        "b_id": row.id,
        "b_generation": change.version.generation,
        "b_wanted": DesiredState.NONE.value if began_anew and waits else row.wanted,
        "b_status": change.status.value,
        "b_due": row.due if change.due is None else change.due,
        "b_retry_times": change.retry_times,
        "b_message": change.message,
        "b_decided": Decided.DEADLINE.value if was_restarted and row.is_open else row.decided,
    }
