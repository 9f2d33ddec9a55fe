"""Which judge a reading goes to: that of heartbeat records, or that of engines."""

from datetime import timedelta

from fleet import judge
from fleet.engines.observe import observe as observe_engine
from fleet.findings import Finding
from fleet.judge import Memory
from fleet.policy import Policy
from fleet.readings import Reading


def observe(
    reading: Reading, before: Memory | None, policy: Policy, interval: timedelta
) -> tuple[Memory, Finding]:
    """Judge a reading of any server, and remember it for the next one."""
    judged = judge.observe if reading.engine is None else observe_engine
    return judged(reading, before, policy, interval)
