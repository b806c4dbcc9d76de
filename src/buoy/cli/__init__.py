"""The command line: one module per verb. It parses and renders; what a verb does is in `buoy.operations`."""
