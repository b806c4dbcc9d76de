"""`python -m buoy` is the command `buoy`."""

import signal


def start() -> None:
    """Loads the command and runs it. A Ctrl-C while it loads ends the process without a word: nothing was begun."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from buoy.cli.main import main

    main()


if __name__ == "__main__":
    start()
