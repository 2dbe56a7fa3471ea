"""Tenants that come and go: each has a series of its own while it is there."""

from expirebridge import Bridge


def sign_up(bridge: Bridge, tenant: str, tz: str) -> None:
    """Send a report each Monday at nine, by the tenant's clock. Once more changes nothing."""
    bridge.schedule(
        f"weekly-{tenant}", "reports.weekly", [tenant], cron="0 9 * * MON", tz=tz, jitter="5m"
    )


def leave(bridge: Bridge, tenant: str) -> None:
    """End the reports; one that is being made ends by itself."""
    bridge.unschedule(f"weekly-{tenant}")
