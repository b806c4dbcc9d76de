"""Visible text: what others wrote (errors, reasons, payloads), harmless to the terminal that shows it.

Invariant: each character becomes one character, so that lines and styles keep their places. Line breaks and tabs stay.
Anything else that moves the cursor, changes colours or the title, reorders letters or ends a line is shown as a sign
in its place.
"""

from __future__ import annotations

_KEPT = "\n\t"
# U+2400 shows NUL, U+241B shows ESC...: a sign for each control character of ASCII.
_PICTURES = 0x2400
_DELETE, _DELETE_PICTURE = 0x7F, 0x2421
_C1 = range(0x80, 0xA0)
# Marks and overrides of the direction of writing, separators of lines and paragraphs.
_REORDERS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029"
_SURROGATES = range(0xD800, 0xE000)
_REPLACEMENT = "\ufffd"

_SIGNS: dict[int, str] = {
    **{code: chr(_PICTURES + code) for code in range(0x20) if chr(code) not in _KEPT},
    _DELETE: chr(_DELETE_PICTURE),
    **dict.fromkeys([*_C1, *map(ord, _REORDERS), *_SURROGATES], _REPLACEMENT),
}


def visible(text: str) -> str:
    """The text, with a sign in the place of each character that a terminal would obey."""
    return text if text.isprintable() else text.translate(_SIGNS)
