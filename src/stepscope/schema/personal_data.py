"""Removes e-mail addresses, phone numbers, IP addresses and bank account numbers from text.

Patterns take linear time: a match cannot start in the middle of an unbounded part, other parts are bounded.

A number counts as a phone number when it is written like one: with a country code, with an area code in
parentheses, in groups that are usual in a country, or after a word such as `phone`. Other digits, in a row or
in other groups, are counts, dates, versions or measurements.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from stepscope.schema.redact import apply_rule
from stepscope.schema.secret_shapes import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepscope.schema.redact import Rule

_WORDS = "phone|telephone|cellphone|telefon|tel|fax|mobile|whatsapp|hotline"
_WEAK_WORDS = "call|cell|text|contact|reach|ring"
"""Words with other uses: after them a number must be written in groups."""

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
_LINK = r"[.]?(?:[ ](?:number|no[.]?|me|us|him|her|them))?[ \t]?(?:is|at|on|under|:|=|#)?[ \t\"']{0,3}"

_COUNTRY_CODES = re.compile(
    "1|7|2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58]"
    "|2[1-689][0-9]|3[578][0-9]|42[0-9]|5[09][0-9]|6[789][0-9]|8[0578][0-9]|9[679][0-9]"
)
_MIN_DIGITS, _MAX_DIGITS = 8, 15
_MIN_DIGITS_AFTER_WORD = 7
_MIN_DIGITS_IN_A_ROW = 10
"""As in `+4915112345678`; a shorter number may be a difference such as `+1234567`."""


def _is_phone_number(match: re.Match[str]) -> bool:
    """Whether a number with a country code has a plausible length and an existing country code."""
    number = match[0]
    if not number.startswith(("+", "00")):
        return True
    digits = "".join(filter(str.isdigit, number))
    digits = digits.removeprefix("00") if number.startswith("00") else digits
    if not _MIN_DIGITS <= len(digits) <= _MAX_DIGITS or not _COUNTRY_CODES.match(digits):
        return False
    return len(digits) >= _MIN_DIGITS_IN_A_ROW or not number.lstrip("+ ").isdigit()


def _has_right_length(match: re.Match[str]) -> bool:
    return _MIN_DIGITS_AFTER_WORD <= sum(map(str.isdigit, match["secret"])) <= _MAX_DIGITS


PHONE_NUMBERS = (
    Shape(
        "phone",
        rf"(?i:(?<![a-z0-9])(?:{_WORDS})){_LINK}(?P<secret>\+?\(?[0-9][0-9 ()./-]{{5,22}}[0-9]){_AFTER}",
        tuple(_WORDS.split("|")),
        _has_right_length,
    ),
    Shape(
        "phone",
        rf"(?i:(?<![a-z0-9])(?:{_WEAK_WORDS})){_LINK}"
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
"""The rules for phone numbers, the most certain first."""


_NOT_DOMAINS = re.compile(
    "bias|bin|cfg|csv|data|detach|float|gif|grad|half|jpe?g|json|mt|npy|npz|pkl|png|pt|py|safetensors|service|"
    "shape|slice|socket|svg|tar|th|txt|view|weights?|whl|ya?ml|zip",
    re.I,
)
"""What follows the last dot in `x@self.weight`, `user@1000.service` and `logo@2x.png`."""
_NOT_PEOPLE = frozenset(["git", "hg", "svn"])

_VERSION_BEFORE = re.compile(
    r"(?:[=<>~!^]=|(?:\b|_)(?:version|ver|v|release|rev|build|driver|firmware|cuda|cudnn|nccl|python|torch|rocm)"
    r"[\"']?[ \t]?[:=]?[ \t]?[\"']?)\Z",
    re.I,
)
_ADDRESS_BEFORE = re.compile(
    r"(?:://|@|\b(?:ips?|ipv4|host|hosts|hostname|addr|address|addresses|peer|client|server|node|gateway|dns|remote|"
    r"from|to|at|via|by|ping|connect|connected|listening|bind)[\"']?[ \t]?[:=]?[ \t]?[\"'(\[]?)\Z",
    re.I,
)
_CONTEXT_LENGTH = 24
_MACHINE_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        ("2000::/3", "fc00::/7", "fe80::/10", "ff00::/8", "64:ff9b::/96", "::ffff:0:0/96"),
    )
)
"""The ranges of machine addresses; `1::2` is a slice of a list and `::1` this machine."""

_IBAN_LENGTHS = {
    country: length
    for length, countries in {
        15: "NO",
        16: "BE",
        18: "DK FI FO GL NL",
        19: "MK SI",
        20: "AT BA EE KZ LT LU XK",
        21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL IQ TL",
        24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST",
        26: "IS TR",
        27: "FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HU LB PL SV",
        29: "BR EG PS QA UA",
        30: "JO KW MU",
        31: "MT SC",
        32: "LC",
    }.items()
    for country in countries.split()
}


def redact_personal_data(text: str) -> str:
    """Replaces personal data in a text by its kind."""
    folded = text.lower()
    for rule in _RULES:
        if not rule.hints or any(hint in folded for hint in rule.hints):
            text = apply_rule(rule, text)
    return text


class _Ibans:
    """Account numbers with the length of their country and valid check digits."""

    name = "iban"
    hints = ()

    _BEGIN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}[0-9]{2}(?=[ -]?[A-Za-z0-9]{2})")
    _REST = re.compile(r"(?:[ -]?[A-Za-z0-9]){8,34}")

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """The start and end of account numbers."""
        for match in self._BEGIN.finditer(text):
            length = _IBAN_LENGTHS.get(match[0][:2].upper())
            rest = self._REST.match(text, match.end())
            if length is None or rest is None:
                continue
            end = _end_after(text, match.start(), length)
            if end is not None and _has_valid_check_digits(text[match.start() : end]):
                yield match.start(), end


def _end_after(text: str, start: int, count: int) -> int | None:
    """The index after `count` letters and digits, if a word ends there; skips single blanks and hyphens."""
    at = start
    for _ in range(count):
        if text[at : at + 1] in (" ", "-"):
            at += 1
        if not (text[at : at + 1].isascii() and text[at : at + 1].isalnum()):
            return None
        at += 1
    is_within = at < len(text) and text[at].isalnum()
    return None if is_within else at


def _has_valid_check_digits(text: str) -> bool:
    plain = text.replace(" ", "").replace("-", "").upper()
    return int("".join(str(int(letter, 36)) for letter in plain[4:] + plain[:4])) % 97 == 1


def _is_email(match: re.Match[str]) -> bool:
    local, _, domain = match[0].rpartition("@")
    if match.string.endswith("://", 0, match.start()):
        return False  # an account on a host, or a container in a storage account
    return not _NOT_DOMAINS.fullmatch(domain.rpartition(".")[2]) and local.lower() not in _NOT_PEOPLE


def _is_ipv6(match: re.Match[str]) -> bool:
    try:
        address = ipaddress.IPv6Address(match[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped
    if mapped is not None and (mapped.is_loopback or mapped.is_unspecified):
        return False
    return any(address in network for network in _MACHINE_NETWORKS)


def _is_ipv4(match: re.Match[str]) -> bool:
    """Whether it is an address and not a version; for a short one such as `1.2.3.4` the context decides."""
    try:
        address = ipaddress.IPv4Address(match[0])
    except ValueError:
        return False
    if address.is_loopback or address.is_unspecified or match[0].startswith("255."):
        return False
    before = match.string[max(match.start() - _CONTEXT_LENGTH, 0) : match.start()]
    if _VERSION_BEFORE.search(before):
        return False
    is_short = len(match[0]) == len("1.2.3.4")
    has_port = re.match(r":[0-9]{2,5}\b", match.string[match.end() : match.end() + 7]) is not None
    return not is_short or has_port or _ADDRESS_BEFORE.search(before) is not None


_RULES: tuple[Rule, ...] = (
    _Ibans(),
    Shape(
        "email",
        r"(?<![\w.%+'-])[\w.%+'-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w(-]|\.\w)",
        ("@",),
        _is_email,
    ),
    Shape(
        "ip",
        r"(?<![\w:.])(?=[0-9A-Fa-f]{0,4}:)[0-9A-Fa-f:]{2,40}(?:(?:\.[0-9]{1,3}){3})?(?![\w:]|\.[0-9])",
        (":",),
        _is_ipv6,
    ),
    Shape("ip", r"(?<![\w.+-])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![\w-]|\.[0-9])", (".",), _is_ipv4),
    *PHONE_NUMBERS,
)
