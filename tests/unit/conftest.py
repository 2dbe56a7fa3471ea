"""Settings of the property tests."""

from hypothesis import HealthCheck, settings

# A machine that is busy with something else must not fail a test of what is right.
settings.register_profile("unit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")
