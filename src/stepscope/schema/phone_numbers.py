"""Tells phone numbers from counts, dates, versions and measurements.

A number counts as one when it is written as people write theirs: with the code of a country, with an area in
parentheses, in groups that are usual in a country, or after a word such as `phone`. Digits in a row, or in
groups of any other kind, are numbers.
"""

from __future__ import annotations

import re

from stepscope.schema.secret_shapes import Shape

_WORDS = "phone|telephone|cellphone|telefon|tel|fax|mobile|whatsapp|hotline"
_WEAK_WORDS = "call|cell|text|contact|reach|ring"
"""Used for much else: after them a number has to come in groups."""

# +49 170 1234567, +1 (555) 123-4567, +4915112345678, 0049 170 1234567
_INTERNATIONAL = (
    r"(?:\+[ ]?|00(?=[1-9][0-9]{0,2}[ -]))[1-9][0-9]{0,14}"
    r"(?:[ ./-]{0,2}(?:\([0-9]{1,5}\)[ ./-]{0,2}|(?<=[ ./-]))[0-9]{1,12}){0,7}"
)
_NATIONAL = (
    # (555) 123-4567, (11) 91234-5678, (030) 1234567, (02) 9876 5432
    r"\([0-9]{2,5}\)[ -]?[0-9]{3,5}[ -][0-9]{4}",
    r"\(0[0-9]{1,4}\)[ ]?[0-9]{5,8}",
    # 555-123-4567, 1-800-555-0199, 555.123.4567
    r"(?:1[ .-])?[0-9]{3}(?P<nanp>[.-])[0-9]{3}(?P=nanp)[0-9]{4}",
    # 01 23 45 67 89
    r"0[1-9](?P<pair>[ .-])[0-9]{2}(?:(?P=pair)[0-9]{2}){3}",
    # 03-1234-5678, 090-1234-5678
    r"0[0-9]{1,3}-[0-9]{3,4}-[0-9]{4}",
    # 0170 1234567, 030/12345678, 07911 123456
    r"0[1-9][0-9]{1,3}[ /-][0-9]{6,8}",
    # 020 7946 0958, 0161 496 0000, 0412 345 678
    r"0[1-9][0-9]{1,3}[ ][0-9]{3,4}[ ][0-9]{3,4}",
)
_AFTER = r"(?![\w%]|[.,:/-][0-9]|-[a-z])"
_SAID = r"[.]?(?:[ ](?:number|no[.]?|me|us|him|her|them))?[ \t]?(?:is|at|on|under|:|=|#)?[ \t\"']{0,3}"

_COUNTRY_CODES = re.compile(
    "1|7|2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58]"
    "|2[1-689][0-9]|3[578][0-9]|42[0-9]|5[09][0-9]|6[789][0-9]|8[0578][0-9]|9[679][0-9]"
)
_MIN_DIGITS, _MAX_DIGITS = 8, 15
_MIN_DIGITS_AFTER_WORD = 7
_MIN_DIGITS_IN_A_ROW = 10
"""As in `+4915112345678`; what is shorter may as well be a difference such as `+1234567`."""


def _is_phone_number(found: re.Match[str]) -> bool:
    """Whether a number with a country code has as many digits as one has, and a country that exists."""
    number = found[0]
    if not number.startswith(("+", "00")):
        return True
    digits = "".join(filter(str.isdigit, number))
    digits = digits.removeprefix("00") if number.startswith("00") else digits
    if not _MIN_DIGITS <= len(digits) <= _MAX_DIGITS or not _COUNTRY_CODES.match(digits):
        return False
    return len(digits) >= _MIN_DIGITS_IN_A_ROW or not number.lstrip("+ ").isdigit()


def _has_right_length(found: re.Match[str]) -> bool:
    return _MIN_DIGITS_AFTER_WORD <= sum(map(str.isdigit, found["secret"])) <= _MAX_DIGITS


PHONE_NUMBERS = (
    Shape(
        "phone",
        rf"(?i:(?<![a-z0-9])(?:{_WORDS})){_SAID}(?P<secret>\+?\(?[0-9][0-9 ()./-]{{5,22}}[0-9]){_AFTER}",
        tuple(_WORDS.split("|")),
        _has_right_length,
    ),
    Shape(
        "phone",
        rf"(?i:(?<![a-z0-9])(?:{_WEAK_WORDS})){_SAID}"
        rf"(?P<secret>\(?[0-9]{{2,5}}\)?[ .-][0-9]{{2,5}}(?:[ .-][0-9]{{2,5}}){{1,3}}){_AFTER}",
        tuple(_WEAK_WORDS.split("|")),
        _has_right_length,
    ),
    Shape(
        "phone",
        rf"(?<![\w.,:/+-])(?:{_INTERNATIONAL}|{'|'.join(_NATIONAL)}){_AFTER}",
        tuple("+-./ "),
        _is_phone_number,
    ),
)
"""What finds phone numbers, the surest first."""
