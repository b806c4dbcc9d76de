"""`python -m buoy.testing.sim`: plays many seeds, and tells the story of those that break a promise."""

from buoy.testing.sim.command import main

raise SystemExit(main())
