"""For tests, yours too: the contract that every store keeps, and a clock that moves by hand."""
