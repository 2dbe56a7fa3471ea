"""Cron's two day fields, which Celery and APScheduler both require to match, and cron does not."""

from expirebridge.importing.job import Refused


def cron_of(minute: str, hour: str, day: str, month: str, weekday: str) -> str:
    """The expression of five fields. Raises Refused if cron would take it for more days."""
    if not day.startswith("*") and not weekday.startswith("*"):
        raise Refused(
            "a day of the month and one of the week must both match there, and here either is "
            "enough: schedule it yourself, and let the handler look at the day"
        )
    return f"{minute} {hour} {day} {month} {weekday}"
