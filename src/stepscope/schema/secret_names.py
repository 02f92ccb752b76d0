"""Recognises a secret by its name: `HF_TOKEN` is one, `pad_token` and `token_file` are not."""

from __future__ import annotations

import functools
import itertools
import re

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BETWEEN_WORDS = re.compile(r"[^a-z0-9]+")

_FRAGMENTS = ("passw", "passphrase", "secret", "credential")
"""Parts of a word, as in PGPASSWORD."""
_OTHER_WORDS = re.compile("secret(?=ar|ion|e|ory|iv|ly)")
"""Words such as `secretary` and `secretion`, which only begin with `secret`."""


def _word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_WORDS = _word_set(
    "apikey apitoken authkey authtoken accesskey accesstoken privatekey authorization bearer jwt cookie "
    "cookies pwd sshpass salt hmac"
)
_KINDS_OF_KEY = _word_set(
    "access account admin aes api app application auth client deploy encryption license master private "
    "rsa service session shared signing ssh storage subscription"
)
_KINDS_OF_PASS = _word_set("admin db ftp http https mail mysql pg postgres proxy redis root smtp user")
_KINDS_OF_AUTH = _word_set("basic http proxy redis rediscli")
_KINDS_OF_TOKENS = _word_set("access api auth refresh bot hub")
_BEFORE_HARMLESS_TOKEN = _word_set(
    "additional audio begin bos byte cls completion decoder draft each end eos first forced image input "
    "last mask max min next num of output pad padding per prompt reasoning sep separator special speech "
    "start stop target text thinking time total unk video vision"
)
_AFTER_HARMLESS_TOKEN = _word_set(
    "accuracy budget choice count counts dim drop dropout embed embedding embeddings entropy id ids idx "
    "index latency len length level limit logit logits loss merging mixing per position positions prob "
    "probs rate shift size throughput times type types"
)
_HARMLESS_ENDS = _word_set(
    "accuracy auc f1 loss perplexity ppl precision recall score "
    "arn count dir directory enabled endpoint env expires expiry field file filename folder hint len "
    "length limit max min mode name path policy required ttl type uri url version"
)
_MAX_LENGTH = 200
_FOR_NUMBERS_TOO = ("passw", "passphrase", "secret", "pwd", "sshpass")


def is_secret_name(name: str) -> bool:
    """Whether a key, flag or variable of this name holds a secret."""
    return _is_secret_name(name[-_MAX_LENGTH:])


def hides_numbers(name: str) -> bool:
    """Whether even a plain number under this name is a secret: a password may be one, a token may not."""
    words = " ".join(_OTHER_WORDS.sub("", word) for word in _words(name[-_MAX_LENGTH:]))
    return any(fragment in words for fragment in _FOR_NUMBERS_TOO)


@functools.lru_cache(maxsize=1024)
def _is_secret_name(name: str) -> bool:
    words = _words(name)
    if not words or words[-1] in _HARMLESS_ENDS:
        return False
    return any(map(_is_secret_word, words)) or _has_token(words) or _has_pair(words)


def _words(name: str) -> list[str]:
    return [word for word in _BETWEEN_WORDS.split(_HUMP.sub("_", name).lower()) if word]


def _is_secret_word(word: str) -> bool:
    if "secret" in word:
        word = _OTHER_WORDS.sub("", word)
    return word in _WORDS or any(fragment in word for fragment in _FRAGMENTS)


def _has_token(words: list[str]) -> bool:
    """Whether one word is an access token, not a token of a language model."""
    for index, word in enumerate(words):
        before = words[index - 1] if index else ""
        after = words[index + 1] if index + 1 < len(words) else ""
        if word == "tokens" and before in _KINDS_OF_TOKENS and after not in _AFTER_HARMLESS_TOKEN:
            return True
        if word == "token" and before not in _BEFORE_HARMLESS_TOKEN and after not in _AFTER_HARMLESS_TOKEN:
            return True
    return False


def _has_pair(words: list[str]) -> bool:
    return any(
        (second in {"key", "keys"} and first in _KINDS_OF_KEY)
        or (second == "pass" and first in _KINDS_OF_PASS)
        or (second == "auth" and first in _KINDS_OF_AUTH)
        for first, second in itertools.pairwise(words)
    )
