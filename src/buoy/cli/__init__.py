"""The command line: one module per group of verbs. It words and shows; what it does goes through the client."""
