"""Makes text from a run safe to display in notices."""

from __future__ import annotations

import re

REPLACED = "\N{REPLACEMENT CHARACTER}"

_BREAKS = re.compile(r"[\t\n\v\f\r\x1c-\x1f\x85\u2028\u2029]+")
# Control and escape characters, changes of writing direction, invisible characters, lone surrogates.
_UNSAFE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]+"
)


def one_line(text: str, most: int) -> str:
    """Returns the text as one line of at most `most` characters; unsafe characters are replaced."""
    line = _UNSAFE.sub(REPLACED, _BREAKS.sub(" ", text)).strip()
    return line if len(line) <= most else f"{line[: most - 1]}…"
