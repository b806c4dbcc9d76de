"""Every limit of Buoy, with its reason. A loop, a batch or a payload without a limit is a bug.

Invariant: raising a limit never breaks a stored log; lowering one may, so limits only grow.
"""

from __future__ import annotations

# Payloads. A log is read whole at replay, so one value must never dominate it.
PAYLOAD_BYTES_MAX = 1024 * 1024
MESSAGE_BYTES_MAX = 256 * 1024
ERROR_TEXT_CHARS_MAX = 4_000
# The classes that an error is recorded with. Deeper trees of exceptions exist only in generated code.
ERROR_CLASSES_MAX = 16
ERROR_CLASS_CHARS_MAX = 300
# One event. A branch names every leaf that it drops: 100,000 of them with long names are some 15 MB.
EVENT_BYTES_MAX = 64 * 1024 * 1024
# Brackets within brackets. The decoder gives up at some 1,000 minus the reader's own stack, which is not ours to know.
NESTING_MAX = 200
PROGRESS_NOTE_CHARS_MAX = 500
# What steps publish is part of the log: one value, all values of a run, and what waits in memory for the next commit.
PUBLISH_VALUE_BYTES_MAX = 64 * 1024
PUBLISHED_BYTES_MAX = 4 * 1024 * 1024
PUBLISH_WAITING_BYTES_MAX = 1024 * 1024
PUBLISH_WAITING_MAX = 10_000
# Beside its values: the number, time and names of one event, so that many small ones count as well.
PUBLISHED_EVENT_BYTES = 256
PUBLISHED_ITEM_BYTES = 32
CHANNEL_CHARS_MAX = 64
# The first value of a group waits so long for others: a commit costs a sync of the disk.
PUBLISH_S = 0.25
# A question is part of the run's document, which is rewritten at every commit. Its title is one line of a list.
QUESTION_TITLE_CHARS_MAX = 1_000
QUESTION_BYTES_MAX = 256 * 1024
# A run that is held so that a client can send it back resumes by itself after this time: the client may have died.
REWIND_HOLD_S = 30.0
REWIND_HOLD_MAX_S = 600.0

# Forms. What a check of one answer may take, in steps of less than a microsecond: a schema and an answer can be made so
# that jsonschema, or Python's regular expressions, never end. A pattern's repeats are written out: its size is bounded.
FORM_STEPS_MAX = 1_000_000
# Keywords inside of each other. Python ends a recursion after some 1,000 calls, four for each keyword; inside of
# jsonschema's Rust library that is a panic.
FORM_DEPTH_MAX = 150
PATTERN_SIZE_MAX = 5_000

# Names become keys of object stores and parts of ids.
RUN_ID_CHARS_MAX = 128
NAME_CHARS_MAX = 128
DEDUPE_CHARS_MAX = 256
# As stored, with the kind of the message before it. That of an answer is the question's id: a run, its step and module.
MESSAGE_DEDUPE_CHARS_MAX = 1_024

# A log is replayed from its first event. Beyond this, `continue_as_new` is the way.
LOG_EVENTS_MAX = 200_000
# A spec cannot continue as new, and its log grows with its steps only: two events each. 200,000 events take some 130 MB
# and one second when they are replayed, so this is some 400 MB.
SPEC_LOG_EVENTS_MAX = 600_000

# Messages that were sent to a run and that it has not consumed: its owner keeps them in memory.
INBOX_UNREAD_MAX = 10_000
# Room beyond that for what is no signal: answers, ends of children, requests to pause, resume or cancel.
INBOX_RESERVE = 10_000
# Tries of one sender to get a number of an inbox, with pauses of up to 16 s: other senders were quicker each time.
SEND_TRIES_MAX = 1_000
# A run's inbox as a bundle may bring it: it is read whole when the run is taken.
INBOX_MESSAGES_MAX = 200_000

# A bundle is read whole into memory, several times over.
BUNDLE_BYTES_MAX = 512 * 1024 * 1024
# Branches times events: what a fold costs. A hostile bundle must not keep a process busy for hours.
BUNDLE_BRANCH_WORK_MAX = 20_000_000

# One transaction: long enough to share a sync, short enough that other processes get their turn.
COMMIT_WRITES_MAX = 500
# About the bytes of one group: a server reads it as one body, and a disk that is slow by the byte serves others between
# two groups. A single write may be larger, and goes alone.
COMMIT_BYTES_MAX = 8 * 1024 * 1024
# Runs whose commits are under way at once where each run has a lane of its own.
COMMIT_LANES_MAX = 64
# Tries for a certain answer before a caller learns that there is none: some 1.5 s with the pauses between them.
UNCLEAR_TRIES_MAX = 6
UNCLEAR_PAUSE_S = 0.05
UNCLEAR_PAUSE_MAX_S = 5.0
# What one read brings into memory.
EVENTS_PAGE = 5_000
INBOX_PAGE = 1_000
RUNS_PAGE_MAX = 1_000
# Paused runs that a process remembers, so that it reads an input that does not fit once. Then it begins again.
UNFIT_RUNS_MAX = 10_000
TASKS_CLAIM_MAX = 200
# Runs that ended and that one count reads, on stores that have no index by status: one request for each.
COUNTED_MAX = 20_000

# A document is rewritten at every commit; its lists are cut here and counted beyond.
DOCUMENT_LIST_MAX = 50

# A beat every 30 s; silence is suspect after four of them.
BEAT_S = 30.0
SUSPECT_AFTER_S = 120.0
# An error that a runner met is a trouble for so long after the last one. Later it is a figure of the past: the store
# answers again, the loop goes its way.
ERRORS_FRESH_S = 600.0
# An attempt to beat that hangs (a connection that was cut silently) is given up: several fit into the time before
# the runner fences itself.
BEAT_ATTEMPT_S = 20.0
# On networked stores: a runner that could not confirm a beat for so long must assume that it was declared dead.
SELF_FENCE_AFTER_S = 90.0
# Across hosts two looks must find the same beat: one whole beat apart, and some slack. An observer that looked away for
# longer than the slack starts over: the store may have been away, and every runner must get a full beat after that.
LOOKS_SLACK_S = 15.0
LOOKS_APART_S = BEAT_S + LOOKS_SLACK_S

# Runners that are gone: so many are shown, and so many records are kept. The others are removed by whole sweeps, a part
# at a time. By number, not by age: that needs no clock. A cron line that sweeps every five minutes fills it in 3 days.
RUNNERS_GONE_SHOWN = 20
RUNNERS_GONE_KEPT = 1_000
RUNNERS_RETIRED_MAX = 500
# Parameters of one workflow, and of all workflows, in the record of a runner: in a bucket each beat writes it again.
OUTLINE_PARAMETERS_MAX = 50
OUTLINES_PARAMETERS_MAX = 500
# Runners that are gone, which a runner that stops looks at: did other machines use this store lately?
HOSTS_LOOK_MAX = 20

STOP_GRACE_S = 20.0
# A process that stops waits so long for one answer of its store. A server that hangs, or that waits for a missing
# replica, gives neither an answer nor an error.
STOP_ANSWER_S = 10.0

# `buoy worker --processes`. A worker that crashes is started again after a pause that doubles with each crash in a row;
# one that lived for a minute begins again with the shortest. With --until-idle it is given up in the end: a run that
# crashes its worker is quarantined after eight crashes, and must be by then.
PROCESSES_MAX = 256
RESTART_FIRST_S = 0.5
RESTART_MAX_S = 30.0
RESTART_RESET_S = 60.0
RESTARTS_UNTIL_IDLE_MAX = 12
# After its parent's end a worker has its grace time and so long to give its runs back, on a slow store too.
PARENT_ENDED_MARGIN_S = 30.0

# A thread cannot be ended from outside. A sync step whose last attempt timed out has its outcome when its thread has
# ended, so that nothing is undone while it acts. A thread that hangs must not hold its run forever: after so long the
# step fails anyway, and its error names the thread.
THREAD_END_MAX_S = 60.0

# A whole sweep every five minutes; what has not moved for ten is looked at closely.
SWEEP_S = 300.0
STALE_AFTER_S = 600.0
# A worker's first whole sweep, at the earliest: its neighbours of the same deploy have started by then. Workers that
# were started together are spread over twice that time, but never over more than these seconds.
SWEEP_DELAY_S = 5.0
SWEEP_SPREAD_MAX_S = 10.0
# Orphans that one look takes up, and runs that one sweep of a worker looks at closely; the next one continues there.
SWEEP_ORPHANS_MAX = 500
SWEEP_LOOKS_MAX = 1_000
# Pages of active runs that such a sweep reads, however few of them are stale.
SWEEP_PAGES_MAX = 50
# Remedies that one recovery of one run may need, one after the other.
RECOVERY_PASSES_MAX = 8

# Waiting runs kept in memory by one runner; beyond this the longest waiting ones are evicted.
WAITING_RUNS_MAX = 2_000
# Runs with code or steps under way in one runner. More would only queue up in memory.
DRIVING_RUNS_MAX = 2_000

# Replay gives way to the real loop after so long, so that beats and other runs are not held up.
REPLAY_SLICE_S = 0.01

# A schedule's name and a time make a run id. Times are whole seconds.
SCHEDULE_NAME_CHARS_MAX = 100
# The longest useful list names all sixty minutes: 169 characters.
CRON_CHARS_MAX = 250
SCHEDULE_EVERY_MIN_S = 1
# Runs that one look at a schedule starts, and missed times that it counts.
SCHEDULE_FIRES_MAX = 1_000
SCHEDULES_MAX = 10_000

# Bulk actions: what one preview may name, and what one request does of it, so that it answers in time.
BULK_RUNS_MAX = 100_000
BULK_PART_MAX = 500
BULK_PART_S = 20.0

# A server compares each request with all of them.
TOKENS_MAX = 1_000

RETRIES_MAX = 1_000
BACKOFF_MAX_S = 24 * 3600.0

# Specs. A spec is read, checked and planned in memory, in one piece; a hundred thousand steps are some 10 MB.
SPEC_BYTES_MAX = 32 * 1024 * 1024
SPEC_STEPS_MAX = 100_000
# Actions of one spec: each look at a batch run judges all of them.
SPEC_ACTIONS_MAX = 100
SPEC_EDGES_MAX = 2_000_000
SPEC_VALUES_MAX = 100_000
SPEC_DEPTH_MAX = 60
# A map or a list that is used in several places counts in each: aliases of aliases would grow without end.
SPEC_NODES_MAX = 10_000_000
SPEC_PROBLEMS_MAX = 50
# Steps of one run under way at the same time, unless the spec says otherwise; `run:` steps: one for each core.
SPEC_PARALLEL = 100
SPEC_PARALLEL_MAX = 1_000
SPEC_EXPRESSION_CHARS_MAX = 2_000
# A stop of a whole service signals its worker and its commands in any order, up to seconds apart. So long the failure
# of a command that a signal ended is held back, in case its worker is about to be stopped as well. A kill of them all
# comes at once.
STOP_ECHO_S = 5.0
KILL_ECHO_S = 1.0
# What a command may hand on as its result, and how much of its output an error shows.
RESULT_FILE_BYTES_MAX = 256 * 1024
# Linux hands a process no argument and no variable of more than 128 KiB, with its name and a zero byte.
VARIABLE_BYTES_MAX = 128 * 1024 - 16
LOG_TAIL_BYTES = 1_000
# Of a job's output its log keeps so much, the first half and the last lines: 100 floods at a time fit on most disks.
JOB_LOG_BYTES_MIN = 4 * 1024
JOB_LOG_BYTES_MAX = 64 * 1024 * 1024

# Jobs of batch runs. A lot is about a minute of work for one runner: a claim costs some 20 writes on an object store,
# and a runner that is lost leaves at most that much for others. 256 no-op jobs are some seconds.
LOT_S = 60.0
# The id of a batch run is a part of the names of its queues and lots.
BATCH_ID_CHARS_MAX = 72
# A runner stops its jobs so long before its time is over, or for short times by this share of it.
RUNNER_MARGIN_S = 30.0
RUNNER_MARGIN_SHARE = 0.1
# A job that stops in good order gets 30 s; its runner waits a little longer for it.
RUNNER_CANCEL_S = 35.0
# Memory that one job may ask for: 1 PiB. More is a mistake in a unit.
MEMORY_BYTES_MAX = 2**50
# Machines that one runner may offer to jobs that need several.
NODES_MAX = 10_000
LOT_JOBS_MAX = 256
# What a job is expected to take when neither its limit nor a measurement tells.
LOT_EXPECTED_S = 2.0
# Jobs that are offered and have not ended. Each is an open leaf in the memory of the owner, and a row of no document.
JOBS_OFFERED_MAX = 8_192
# Jobs that one commit offers: some 700 kB.
JOBS_COMMIT_MAX = 1_024
# A job that takes no longer may queue for a place in the guard, so many for each place. Its mean is that of the last so
# many. More would be started by the log, and wait; fewer would leave places empty during a commit.
JOB_SHORT_S = 0.05
JOBS_QUEUED_MAX = 24
JOBS_MEASURED = 8
# While nothing shows how long jobs take, so many are offered at a time, and given so long to show it.
JOBS_GUESSED_MAX = 256
JOBS_GUESSED_S = 2.0
# Results that a runner sends to the owner at once, and how long the first of them waits for others.
JOBS_SENT_MAX = 64
JOBS_SENT_BYTES_MAX = 96 * 1024
JOBS_SEND_S = 1.0
# How long the end of a job waits for the store, once or twice, until the runner also keeps it on disk.
SPOOL_AFTER_S = 0.5

# Poison. From the third crash in a row on a suspect runs alone, so that it ends no other runs; only crashes that it has
# alone are certainly its own, and after so many of them it is kept apart.
SOLO_AFTER = 3
POISON_CAP = 5

# Errors that are searched for the step that caused them: a group may hold very many.
CAUSES_MAX = 1_000

# A run with a question that is older than this has been forgotten by people, not by Buoy.
QUESTION_OLD_S = 7 * 24 * 3600.0
# A wake-up that is late by less than this is on its way.
WAKE_SLACK_S = 5.0
# A living owner that has not acted on a due time or a message for so long stands still: busy workers are late by less.
OVERDUE_S = 15.0
# Runs that wait for nothing which one heartbeat names: each is an error in code, and a beat stays small.
STUCK_RUNS_SHOWN = 20
# An event loop that one call has held for so long counts as a trouble of its runner.
LOOP_HELD_S = 10.0
