"""`python -m buoy` is the command `buoy`."""

import signal
import sys


def start() -> None:
    """Loads the command and runs it. A Ctrl-C while it loads ends the process silently: nothing was started."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from buoy.cli.main import main
    from buoy.cli.terminal.signals import end_at_once

    try:
        main()
    except SystemExit as done:
        # Threads of obstore may still let go of Python's objects. The interpreter ends such threads, which aborts the
        # whole process (SIGABRT, 3 of 15 times on a busy machine) instead of giving the exit code.
        if "obstore" in sys.modules and isinstance(done.code, int):
            end_at_once(done.code)
        raise


if __name__ == "__main__":
    start()
