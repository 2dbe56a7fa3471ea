"""Settings of the property tests."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "unit",
    # `make machine` sets more.
    max_examples=int(os.environ.get("EXPIREBRIDGE_EXAMPLES", "40")),
    # A machine that is busy with something else must not fail a test of what is right.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unit")
