"""Crash tests for users' own workflows: run, crash before and after everything that is written, recover, compare.

notes       what really happened, outside of the store     gate        where a process dies
watch       what bodies do                                  code_watch  what workflow code does, and `code_findings`
process     a runner from its start to its death
scenario    one execution, with one crash                   real        the same with real processes and SIGKILL
places      where another interpreter finds the workflow    errands     what a process in another one has to do
fresh       interpreters with hash seeds of their own       elsewhere   a replay in fresh interpreters
outcomes    how its run ended                               judge       from what was seen to findings
report      what was found, as data and text                names       whether options name steps that there are
runs        all scenarios, and the verdict
"""

from buoy.testing.crashtest.report import Crash, Finding, Repeat, Report, RunEnd
from buoy.testing.crashtest.runs import Options, crash_test

__all__ = ["Crash", "Finding", "Options", "Repeat", "Report", "RunEnd", "crash_test"]
