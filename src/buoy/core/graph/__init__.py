"""Pictures of a run: its leaves as nodes, drawn as text, Mermaid or SVG.

Here: layout and drawing as pure functions. Not here: reading the run.
"""
