"""The guard against words that are hard to read finds them, and finds exceptions that nothing uses."""

from __future__ import annotations

from tests.guards.words import Hit, faults, hits


def words_of(path: str, text: str) -> list[Hit]:
    return list(hits(path, text))


def test_names_are_checked_in_code_and_phrases_everywhere() -> None:
    text = "told = 1\nprint('a disk is dear')\n"
    assert words_of("a.py", text) == [Hit("a.py", 2, "dear"), Hit("a.py", 1, "told")]
    assert words_of("a.md", text) == [Hit("a.md", 2, "dear")]


def test_an_exception_covers_one_word_of_a_file_or_of_a_folder() -> None:
    every_hit = [Hit("tests/a/b.py", 3, "_told"), Hit("tests/a.py", 4, "told")]
    assert faults(every_hit, {("tests/a/", "told"), ("tests/a.py", "told")}) == []
    assert faults(every_hit, {("tests/a/b.py", "told")}) == ["tests/a.py:4: told"]
    assert faults(every_hit[:1], {("tests/a", "told")}) == [
        "tests/a/b.py:3: _told",
        "tests/a: the exception for 'told' is not used",
    ]


def test_an_exception_that_nothing_uses_is_a_fault() -> None:
    assert faults([], {("src/gone.py", "told")}) == ["src/gone.py: the exception for 'told' is not used"]
