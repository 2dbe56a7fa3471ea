"""Reports that recur: one for all, each night, and one for each tenant, each week."""

from expirebridge import current_task, every


@every("30 2 * * *", tz="Europe/Berlin", id="nightly")
def nightly() -> str:
    """Report on the day that has ended, whenever this runs."""
    tick = current_task().tick
    return f"the day before {tick:%Y-%m-%d}"


def weekly(tenant: str) -> str:
    """Report to one tenant."""
    return f"the week of {tenant}"
