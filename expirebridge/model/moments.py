"""Moments as people give them: aware datetimes."""

from datetime import datetime

from expirebridge.errors import InvalidTask


def check_aware(moment: object, *, name: str) -> datetime:
    """Return a datetime that has a time zone; raise InvalidTask for anything else."""
    if not isinstance(moment, datetime):
        raise InvalidTask(f"{name}={moment!r}: give an aware datetime")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidTask(
            f"{name}={moment.isoformat()}: a naive datetime is ambiguous; give it a time zone, "
            "such as datetime.now(UTC)"
        )
    return moment
