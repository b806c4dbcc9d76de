"""What authors of workflows use: decorators, durable calls, arguments.

Here: `@step`, `@workflow`, `sleep`, `ask` and their checks. Not here: anything that knows how a run is driven.
The lowest room of the engine: it imports no other room.
"""
