"""For tests: the contract that every store keeps, and a clock that moves by hand. Ships with Buoy, for your own stores."""
