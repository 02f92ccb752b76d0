"""Takes e-mail addresses, phone numbers, IP addresses and bank account numbers out of text.

Patterns take time linear in the text: open-ended parts cannot be entered in their middle, others are bounded.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from stepscope.schema.phone_numbers import PHONE_NUMBERS
from stepscope.schema.redact import apply_rule
from stepscope.schema.secret_shapes import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepscope.schema.redact import Rule

_NO_DOMAINS = re.compile(
    "bias|bin|cfg|csv|data|detach|float|gif|grad|half|jpe?g|json|mt|npy|npz|pkl|png|pt|py|safetensors|service|"
    "shape|slice|socket|svg|tar|th|txt|view|weights?|whl|ya?ml|zip",
    re.I,
)
"""What follows the last dot in `x@self.weight`, `user@1000.service` and `logo@2x.png`."""
_NO_PEOPLE = frozenset(["git", "hg", "svn"])

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
_LOOKED_BACK = 24
_OPEN_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        ("2000::/3", "fc00::/7", "fe80::/10", "ff00::/8", "64:ff9b::/96", "::ffff:0:0/96"),
    )
)
"""Where addresses of machines lie; `1::2` is a slice of a list and `::1` this machine."""

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
    """Replaces personal data in a text, and says of what kind it was."""
    folded = text.lower()
    for rule in _RULES:
        if not rule.hints or any(hint in folded for hint in rule.hints):
            text = apply_rule(rule, text)
    return text


class _Ibans:
    """Account numbers whose length is that of their country and whose check digits are right."""

    name = "iban"
    hints = ()

    _BEGIN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}[0-9]{2}(?=[ -]?[A-Za-z0-9]{2})")
    _REST = re.compile(r"(?:[ -]?[A-Za-z0-9]){8,34}")

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where account numbers begin and end."""
        for found in self._BEGIN.finditer(text):
            length = _IBAN_LENGTHS.get(found[0][:2].upper())
            rest = self._REST.match(text, found.end())
            if length is None or rest is None:
                continue
            end = _end_after(text, found.start(), length)
            if end is not None and _has_right_digits(text[found.start() : end]):
                yield found.start(), end


def _end_after(text: str, start: int, count: int) -> int | None:
    """The place after so many letters and digits, if a word ends there; blanks and hyphens stand alone."""
    at = start
    for _ in range(count):
        if text[at : at + 1] in (" ", "-"):
            at += 1
        if not (text[at : at + 1].isascii() and text[at : at + 1].isalnum()):
            return None
        at += 1
    is_within = at < len(text) and text[at].isalnum()
    return None if is_within else at


def _has_right_digits(text: str) -> bool:
    plain = text.replace(" ", "").replace("-", "").upper()
    return int("".join(str(int(letter, 36)) for letter in plain[4:] + plain[:4])) % 97 == 1


def _is_email(found: re.Match[str]) -> bool:
    local, _, domain = found[0].rpartition("@")
    if found.string.endswith("://", 0, found.start()):
        return False  # an account on a host, or a container in a storage account
    return not _NO_DOMAINS.fullmatch(domain.rpartition(".")[2]) and local.lower() not in _NO_PEOPLE


def _is_ipv6(found: re.Match[str]) -> bool:
    try:
        address = ipaddress.IPv6Address(found[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped
    if mapped is not None and (mapped.is_loopback or mapped.is_unspecified):
        return False
    return any(address in network for network in _OPEN_NETWORKS)


def _is_ipv4(found: re.Match[str]) -> bool:
    """An address, and not a version; `1.2.3.4` is one unless what stands around it says otherwise."""
    try:
        address = ipaddress.IPv4Address(found[0])
    except ValueError:
        return False
    if address.is_loopback or address.is_unspecified or found[0].startswith("255."):
        return False
    before = found.string[max(found.start() - _LOOKED_BACK, 0) : found.start()]
    if _VERSION_BEFORE.search(before):
        return False
    is_short = len(found[0]) == len("1.2.3.4")
    has_port = re.match(r":[0-9]{2,5}\b", found.string[found.end() : found.end() + 7]) is not None
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
