"""Secrets in what objects say of themselves, in overrides and in pairs are taken out whole."""

from __future__ import annotations

import collections
import dataclasses
import json
import pprint
import time
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.schema.redact import redact_text, redact_words
from stepscope.schema.secret_names import is_secret_name

WORD = "hunter2xyz"


@dataclasses.dataclass
class Secret:
    value: str


@dataclasses.dataclass
class Login:
    user: str
    password: object
    port: int = 5432


LOGIN = Login("ada", Secret(f"{WORD} {WORD}"))

SHOWN = {
    f"Client(api_key='{WORD}')": "Client(api_key='[redacted:name]')",
    f'Config(password="{WORD}", user="y")': 'Config(password="[redacted:name]", user="y")',
    repr(LOGIN): "Login(user='ada', password=[redacted:name], port=5432)",
    f"Config(token=Token('{WORD} {WORD}'), n=1)": "Config(token=[redacted:name], n=1)",
    f"Config(token=auth.Token(value='{WORD}'), n=1)": "Config(token=[redacted:name], n=1)",
    f"credentials=Login(user='{WORD}', password='{WORD}') ok": "credentials=[redacted:name] ok",
    repr({"token": {"a": {"b": WORD}, "c": f"{WORD} {WORD}"}, "n": 1}): "{'token': [redacted:name], 'n': 1}",
    repr({"api_key": bytearray(WORD.encode()), "n": 1}): "{'api_key': [redacted:name], 'n': 1}",
    repr(types.SimpleNamespace(secret=types.SimpleNamespace(a=WORD), n=1)): (
        "namespace(secret=[redacted:name], n=1)"
    ),
    repr(list(collections.OrderedDict(password=WORD, user="ada").items())): (
        "[('password', '[redacted:name]'), ('user', 'ada')]"
    ),
    f"[(b'authorization', b'Bearer {WORD}'), (b'host', b'x')]": (
        "[(b'authorization', b'[redacted:name]'), (b'host', b'x')]"
    ),
    f"Config(\n  token=(\n    '{WORD}',\n  ),\n  n=1)": "Config(\n  token=[redacted:name],\n  n=1)",
    f"    api_key: str | None = '{WORD}'": "    api_key: str | None = '[redacted:name]'",
    f"password:          {WORD}": "password:          [redacted:name]",
    f"password: |\n  {WORD}\n  {WORD}\nuser: ada": "password: [redacted:name]\nuser: ada",
    f"credentials={{'u': 'https://a:{WORD}@c', 'k': '{WORD} {WORD}'}} ok": "credentials=[redacted:name] ok",
    f"hmac={WORD} password=${WORD}$x": "hmac=[redacted:name] password=[redacted:name]",
    f"trainer.logger={{api_key:{WORD},name:x}}": "trainer.logger={api_key:[redacted:name],name:x}",
}


@pytest.mark.parametrize("text", SHOWN)
def test_a_secret_in_an_object_is_taken_out_and_the_rest_stays(text: str) -> None:
    assert redact_text(text) == SHOWN[text]
    assert redact_text(SHOWN[text]) == SHOWN[text]


def test_a_long_secret_that_pprint_divides_is_taken_out_whole() -> None:
    text = pprint.pformat({"password": " ".join([WORD] * 20), "user": "ada"}, width=60)
    assert text.count("\n") > 2
    assert WORD not in redact_text(text)
    assert "'user': 'ada'" in redact_text(text)


WORDS = {
    f"--env=WANDB_API_KEY={WORD} {WORD}": "--env=WANDB_API_KEY=[redacted:name]",
    f"-eFOO_SECRET={WORD} {WORD}": "-eFOO_SECRET=[redacted:name]",
    f"+trainer.logger.api_key={WORD} {WORD}": "+trainer.logger.api_key=[redacted:name]",
    f"HF_TOKEN={WORD}={WORD}": "HF_TOKEN=[redacted:name]",
    f"db.password={WORD}": "db.password=[redacted:name]",
    f"--url=https://x.example?token={WORD}&b=c": "--url=https://x.example?token=[redacted:name]&b=c",
    "--lr=0.1": "--lr=0.1",
    "--define=a=b=c d": "--define=a=b=c d",
    "model.pad_token_id=0": "model.pad_token_id=0",
    "+data.max_tokens=512": "+data.max_tokens=512",
}


@pytest.mark.parametrize("word", WORDS)
def test_an_assignment_in_a_command_line_loses_its_secret_up_to_its_end(word: str) -> None:
    assert redact_words(["env", word, "python"]) == ["env", WORDS[word], "python"]


@pytest.mark.parametrize(
    "text",
    [
        "secretary_loss=0.5 secretary=Anna secretion_rate=0.1 secretory: high",
        "password_detection_f1=0.91 secret_recall=0.5 credential_loss=0.25",
        "token_accuracy=0.5 tokens_per_second=3 pad_token_id=0 max_tokens=512 token_entropy=2.5",
        "def login(token: str, password: str, api_key: bytes) -> None:",
        "Tokenizer(vocab_size=5, pad_token='<pad>', special_tokens={'bos_token': '<s>'})",
        "AddedToken('<s>', rstrip=False) token_embedding=Embedding(32000, 4096)",
        "columns=('token', 'label') features=['token', 'pos'] f('token', 'x')",
        "meta-llama/Llama-3-8B mistralai/Mixtral-8x7B-Instruct-v0.1 wikitext-103-raw-v1",
    ],
)
def test_what_only_sounds_like_a_secret_stays(text: str) -> None:
    assert redact_text(text) == text


def test_words_that_begin_like_secret_do_not_hide_numbers() -> None:
    assert not is_secret_name("secretary_count_total")
    assert is_secret_name("secretary_secret")


plain = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=12, max_size=20)
spaced = st.lists(plain, min_size=1, max_size=3).map(" ".join)
nested = st.recursive(
    st.integers() | spaced,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(plain, inside, max_size=3),
    max_leaves=6,
)


def texts_in(value: object) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(text for part in value.values() for text in texts_in(part))]
    if isinstance(value, list):
        return [text for part in value for text in texts_in(part)]
    return [value] if isinstance(value, str) else []


@given(nested, st.sampled_from(["password", "api_key", "client_secret"]), st.sampled_from([repr, json.dumps]))
def test_values_under_a_secret_name_are_not_shown(value: object, name: str, written) -> None:
    shown = redact_text(f"before {written({'lr': 1, name: value, 'steps': 7})} after")
    assert not [text for text in texts_in(value) if text in shown]
    assert shown.startswith("before ")
    assert shown.endswith(" after")


HOSTILE = [
    *(
        "token=[",
        "token={'a': ",
        "token=A(",
        "token=A('",
        "token=(\n",
        "[('token', '",
        "('token', ",
        "token: |\n ",
    ),
    *(
        "token='a'\n",
        "token=[(",
        "api_key: str = ",
        'token={"',
        "token=\\'",
        "token={[(",
        'token=\\"[',
        "token=(",
    ),
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_objects_made_to_be_slow_to_read_are_not(piece: str) -> None:
    began = time.process_time()
    redact_text((piece * 100_000)[:100_000])
    # Linear time is at most some tenths of a second; quadratic time would be minutes.
    assert time.process_time() - began < 10


def test_a_command_line_of_signs_alone_is_read_once() -> None:
    began = time.process_time()
    redact_words(["a=" * 50_000])
    assert time.process_time() - began < 10
