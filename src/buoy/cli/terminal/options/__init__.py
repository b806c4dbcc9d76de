"""Options: the options and arguments that several commands share.

Here: their names, help texts and parsing. Not here: an option of one command (it stands in that command's file).
"""
