"""The pure core: no I/O, no clock, no threads. Events in, state out."""

from buoy.core.log import transitions as _transitions

# The transitions register themselves with the state; every import of the core loads them.
assert _transitions
