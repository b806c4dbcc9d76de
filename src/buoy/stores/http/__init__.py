"""A Buoy server as a store. The client half of `ports/rpc`: connections, errors, one method for each call.

Nothing here decides anything about runs: the store behind the server does.
"""
