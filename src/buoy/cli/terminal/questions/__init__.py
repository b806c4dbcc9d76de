"""Questions: puts the open questions of a run to the person at this terminal, and reads typed answers.

Here: prompts and parsing. Not here: what an answer must look like (`core/log/forms.py`).
"""
