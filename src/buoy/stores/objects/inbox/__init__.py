"""Inboxes in a bucket: numbered messages to runs, each with a dedupe id.

Here: sending and reading, the end of an inbox, the ids of earlier messages, and turns among senders of one process.
"""
