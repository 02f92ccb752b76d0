"""Secrets with a recognisable shape: keys of clouds, hubs and chats, URLs, headers, private keys.

Every pattern takes linear time: what follows an unbounded part is optional or cannot occur inside it, or the
part is bounded.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from stepscope.schema.randomness import MIN_LENGTH, is_random

if TYPE_CHECKING:
    from collections.abc import Iterator

Accept = Callable[["re.Match[str]"], bool]


@dataclass(frozen=True)
class Shape:
    """A pattern, and the hints a text must contain before it is searched."""

    name: str
    pattern: str
    """Matches the secret, or has a group `secret` that does."""
    hints: tuple[str, ...] = ()
    """Lower-case; a text without any of them is not searched. Empty: every text is searched."""
    accept: Accept | None = None
    """Decides whether a match is a secret; None accepts all."""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """The start and end of secrets of this shape."""
        group = "secret" if "secret" in self.compiled.groupindex else 0
        for match in self.compiled.finditer(text):
            start, end = match.span(group)
            if start < end and (self.accept is None or self.accept(match)):
                yield start, end

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The pattern, compiled when it is first used: most training processes never use it."""
        return re.compile(self.pattern)


def _is_not_words(match: re.Match[str]) -> bool:
    """Whether it is a key, not a name such as `sk-learn-contrib-lightning`."""
    parts = re.split(r"[-_.]", match["secret"])
    return not all(part.isalpha() and part.islower() and len(part) <= 14 for part in parts if part)


def _is_mixed(match: re.Match[str]) -> bool:
    """Whether it has capitals, lower-case letters and digits, unlike names of layers."""
    text = match["secret"]
    return text != text.lower() and text != text.upper() and any(map(str.isdigit, text))


def _has_credentials(match: re.Match[str]) -> bool:
    """Whether it has a user and a password, or a user name long enough to be a token."""
    user, colon, _ = match["secret"].partition(":")
    if colon:
        return True
    before = match.string[max(match.start() - 16, 0) : match.start()].lower()
    if before.endswith(("abfs", "abfss", "wasb", "wasbs")):
        return False  # it is the name of a container
    has_digit = any(map(str.isdigit, user))
    return len(user) >= 20 or (has_digit and len(user) >= 10 and before.endswith(("http", "https")))


def _is_pair_in_base64(match: re.Match[str]) -> bool:
    """Whether it is the `user:password` of a Basic header, and not a word after `basic`."""
    text = match["secret"].rstrip("=")
    try:
        return b":" in binascii.a2b_base64(text + "=" * (-len(text) % 4))
    except binascii.Error:
        return False


def _is_not_word(match: re.Match[str]) -> bool:
    text = match["secret"]
    return any(map(str.isdigit, text)) or text not in {text.lower(), text.capitalize(), text.upper()}


def _is_not_number_pair(match: re.Match[str]) -> bool:
    return not match["secret"].replace(":", "").isdigit()


def _is_random_text(match: re.Match[str]) -> bool:
    return is_random(match["secret"])


_PEM = (
    Shape(
        "pem",
        r"(?s)-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r".*?(?:-----END [A-Z0-9 ]{0,60}-----|\Z)",
        ("-----begin ",),
    ),
)

_ADDRESSES = (
    Shape(
        "webhook",
        r"(?i)hooks\.slack(?:-gov)?\.com/(?P<secret>(?:services|workflows|triggers)/[\w/.-]+)",
        ("hooks.slack",),
    ),
    Shape(
        "webhook",
        r"(?i)discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks/(?P<secret>[\w/-]+)",
        ("/webhooks/",),
    ),
    Shape(
        "webhook",
        r"(?i)(?:webhook\.office\.com|outlook\.office(?:365)?\.com|logic\.azure\.com(?::443)?)"
        r"/(?P<secret>(?:webhook|workflows)[^\s\"'<>]+)",
        (".office", "logic.azure"),
    ),
    Shape("webhook", r"(?i)api\.telegram\.org/bot(?P<secret>[0-9]{6,}:[\w-]+)", ("api.telegram",)),
    Shape("url", r"://(?P<secret>[^\s/?#\"'<>]+)@", ("://",), _has_credentials),
    # A password with a slash in it; a port and a path with an @ are not one.
    Shape(
        "url",
        r"://(?P<secret>[^\s/:@?#\"'<>]{0,64}:(?![0-9]{1,5}[/?#])[^\s@?#\"'<>]{1,128})@",
        ("://",),
    ),
)

_HEADERS = (
    Shape(
        "header",
        r"(?i)authorization[\"'\\]{0,4}[ \t]{0,3}[:=][ \t]{0,3}[\"'\\]{0,4}"
        r"(?P<secret>[^\s\"'\\,][^\r\n\"'\\]*)",
        ("authorization",),
    ),
    Shape(
        "header",
        r"(?i)(?<![\w-])(?:set-)?cookie[\"']?[ \t]{0,3}:[ \t]{0,3}[\"']?"
        r"(?P<secret>[^\s\"'=;]{1,128}=[^\r\n\"']*)",
        ("cookie",),
    ),
    Shape(
        "bearer", r"(?i)(?<![\w-])bearer[ \t]{1,3}(?P<secret>[\w.~+/-]{8,}={0,2})", ("bearer",), _is_not_word
    ),
    Shape(
        "basic",
        r"(?i)(?<![\w-])basic[ \t]{1,3}(?P<secret>[A-Za-z0-9+/]{6,}={0,2})",
        ("basic",),
        _is_pair_in_base64,
    ),
    Shape(
        "netrc",
        r"(?i)(?<!\w)login\s{1,4}[^\s]{1,128}\s{1,4}password\s{1,4}(?P<secret>[^\s]+)",
        ("login",),
    ),
    Shape(
        "user",
        r"(?<![\w-])(?:-u|--user|--proxy-user)[\"']?,?(?:[ \t]{1,3}|=)[\"']?"
        r"(?P<secret>[^\s:\"'/=]{1,64}:[^\s\"']+)",
        ("-u", "-user"),
        _is_not_number_pair,
    ),
)

_PREFIXES: dict[str, dict[str, tuple[str, ...]]] = {
    # rule: {what follows the edge of a word: its hints}
    "aws": {
        "A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16,}": ("akia", "asia", "abia", "acca"),
        "(?:FwoGZXIvYXdz|IQoJb3JpZ2lu)[A-Za-z0-9+/=%]{40,}": ("fwogzxivyxdz", "iqojb3jpz2lu"),
    },
    "google": {
        "AIza[A-Za-z0-9_-]{35,}": ("aiza",),
        r"ya29\.[A-Za-z0-9_.-]{20,}": ("ya29.",),
        "GOCSPX-[A-Za-z0-9_-]{20,}": ("gocspx-",),
    },
    "github": {
        "gh[opsur]_[A-Za-z0-9]{16,}": ("gho_", "ghp_", "ghs_", "ghu_", "ghr_"),
        "github_pat_[A-Za-z0-9_]{20,}": ("github_pat_",),
    },
    "gitlab": {
        "gl(?:pat|ptt|dt|rt|cbt|soat|ft|agent|imt|oas)-[A-Za-z0-9_.-]{16,}": (
            *("glpat-", "glptt-", "gldt-", "glrt-", "glcbt-"),
            *("glsoat-", "glft-", "glagent-", "glimt-", "gloas-"),
        )
    },
    "huggingface": {"hf_[A-Za-z0-9]{16,}": ("hf_",), "api_org_[A-Za-z0-9]{16,}": ("api_org_",)},
    "slack": {r"xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}": ("xox",), "xapp-[A-Za-z0-9-]{16,}": ("xapp-",)},
    "stripe": {
        "(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}": ("_live_", "_test_"),
        "whsec_[A-Za-z0-9+/=]{16,}": ("whsec_",),
    },
    "npm": {"npm_[A-Za-z0-9]{30,}": ("npm_",)},
    "pypi": {"pypi-AgE[A-Za-z0-9_-]{20,}": ("pypi-age",)},
    "wandb": {"wandb_v1_[A-Za-z0-9_]{20,}": ("wandb_v1_",)},
    "vendor": {
        "dckr_pat_[A-Za-z0-9_-]{16,}": ("dckr_pat_",),
        "dapi[0-9a-f]{32,}": ("dapi",),
        "do[opr]_v1_[0-9a-f]{32,}": ("_v1_",),
        r"hv[sbr]\.[A-Za-z0-9_-]{20,}": ("hvs.", "hvb.", "hvr."),
        "gl(?:c|sa)_[A-Za-z0-9_+/=]{20,}": ("glc_", "glsa_"),
        r"SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,}": ("sg.",),
        "shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32,}": ("shp",),
        "(?:tskey|NRAK|PMAK|AGE-SECRET-KEY)-[A-Za-z0-9-]{20,}": (
            "tskey-",
            "nrak-",
            "pmak-",
            "age-secret-key-",
        ),
    },
}

_EDGE = r"(?<![A-Za-z0-9])"


def _prefix_shapes() -> tuple[Shape, ...]:
    return tuple(
        Shape(
            name,
            f"{_EDGE}(?:{'|'.join(patterns)})",
            tuple(hint for hints in patterns.values() for hint in hints),
        )
        for name, patterns in _PREFIXES.items()
    )


_TOKENS = (
    Shape("jwt", r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*){1,3}", ("eyj",)),
    Shape("azure", r"(?<![\w~.-])[\w~.-]{3}[0-9]Q~[\w~.-]{30,}", ("q~",)),
    Shape("discord", r"(?<![\w-])(?P<secret>[MNO][\w-]{22,28}\.[\w-]{6}\.[\w-]{27,})", (".",), _is_mixed),
    Shape("telegram", r"(?<![\w-])[0-9]{8,10}:AA[\w-]{32,}", (":aa",)),
    *_prefix_shapes(),
    Shape(
        "vendor",
        rf"{_EDGE}(?P<secret>(?:gsk|pplx|xai|r8|rpa|lin_api|ntn|sbp|sntrys|sntryu|pscale_tkn|fo1)"
        r"[-_][A-Za-z0-9_-]{24,})",
        ("gsk_", "pplx-", "xai-", "r8_", "rpa_", "lin_api_", "ntn_", "sbp_", "sntry", "pscale_tkn_", "fo1_"),
        _is_not_words,
    ),
    Shape(
        "key",
        rf"{_EDGE}(?P<secret>(?:sk|pk|rk)[-_][A-Za-z0-9_-]{{16,}})",
        ("sk-", "sk_", "pk-", "pk_", "rk-", "rk_"),
        _is_not_words,
    ),
)

SHAPES_BEFORE_NAMES = (*_PEM, *_ADDRESSES, *_HEADERS)
"""Shapes that cover more than the rule for names would: they contain its match."""

SHAPES_AFTER_NAMES = (
    *_TOKENS,
    Shape(
        "entropy",
        # The prefix of a checksum says what it is: `sha256-` in lock files, `SHA256:` in fingerprints.
        r"(?<![A-Za-z0-9+/_-])(?:(?i:sha[0-9]{1,3}|md5)[-:=][A-Za-z0-9+/_-]+"
        rf"|(?P<secret>[A-Za-z0-9+/_-]{{{MIN_LENGTH},}}={{0,2}}))",
        accept=_is_random_text,
    ),
)
