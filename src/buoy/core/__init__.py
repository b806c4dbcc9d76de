"""The pure core: functions from values to values. Events in, state out.

One pipeline: `log`, `spec`, `batch`, `diagnosis`, `remedy`, `explain`; each folder imports only those before it.
Not here: I/O, clocks, threads and chance.
"""

from buoy.core.log import transitions as _transitions

# The transitions register themselves with the state; every import of the core loads them.
assert _transitions
