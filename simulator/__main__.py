"""`python -m simulator`: plays many seeds, and tells the story of those that break a promise."""

from simulator.command import main

raise SystemExit(main())
