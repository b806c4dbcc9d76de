"""Settings of hypothesis: a busy machine is no reason to fail, and every failure can be repeated."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("core", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("core")
