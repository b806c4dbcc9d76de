"""One run in this process: its execution, ledger, leaves, mailbox, children and saga.

Here: everything between claim and release of one run. Not here: other runs, claims, the process (`process`).
"""
