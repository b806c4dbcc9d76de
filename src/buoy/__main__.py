"""`python -m buoy` is the command `buoy`."""

from buoy.cli.main import main

if __name__ == "__main__":
    main()
