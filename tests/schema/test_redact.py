"""Secrets are taken out wherever they stand, and what only looks like one stays."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.schema.redact import (
    Redaction,
    add_rule,
    redact_mapping,
    redact_start,
    redact_text,
    redact_value,
    redact_words,
    remove_rule,
)
from stepscope.schema.secret_names import is_secret_name
from tests.schema.corpus import BASE64, INNOCENT, drawn, secrets

SECRETS = secrets()
MIB = 1 << 20


@pytest.fixture
def rule() -> Iterator[str]:
    yield "badge"
    remove_rule("badge")


def test_the_corpus_is_as_large_as_it_should_be() -> None:
    assert len(SECRETS) >= 60
    assert len(INNOCENT) >= 45


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_taken_out_and_its_place_is_marked(kind: str) -> None:
    text, secret = SECRETS[kind]
    shown = redact_text(text)
    assert secret not in shown
    assert "[redacted:" in shown
    assert "[redacted:unclear]" not in shown


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("around", ["({})", "'{}'", '"{}",', "key={};", "\n{}\n", "[{}]", "<{}>", "x: {}"])
def test_a_secret_is_found_within_any_text(kind: str, around: str) -> None:
    text, secret = SECRETS[kind]
    assert secret not in redact_text(around.format(text))


@pytest.mark.parametrize("text", INNOCENT)
def test_an_innocent_text_stays_as_it_is(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize("text", [*(text for text, _ in SECRETS.values()), *INNOCENT])
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


PIECES = [
    *(secret for _, secret in SECRETS.values()),
    *(
        "password",
        "=",
        ": ",
        "--token ",
        "token",
        "sk-",
        "://",
        "@",
        "eyJ",
        ".",
        "-----BEGIN PRIVATE KEY-----",
    ),
    *(
        "[redacted:name]",
        "[redacted:",
        "]",
        '"',
        "'",
        "\\",
        " ",
        "\n",
        ";",
        "AKIA",
        "hf_",
        "Bearer ",
        "sig=",
        "\ud800",
    ),
]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=30)), max_size=12).map("".join))
def test_any_text_can_be_redacted_and_redacting_again_changes_nothing(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


@given(st.text(st.characters(exclude_categories=[]), max_size=200))
def test_no_character_is_too_odd(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once
    assert redact_words([text, "--password", text])[1] == "--password"


@given(st.integers(0, 2**32), st.sampled_from([32, 40, 64]))
def test_a_random_key_under_an_innocent_name_is_nearly_always_taken_out(seed: int, length: int) -> None:
    source = random.Random(seed)
    keys = [drawn(length, BASE64, source) for _ in range(40)]
    missed = [key for key in keys if redact_text(f"value={key}") == f"value={key}"]
    assert len(missed) <= 8, missed


HOSTILE = [
    *("a", "A", "0", "/", "-", "_", "=", ".", ":", "@", "%", '"', "'", "\\", "[", "{", " ", "\n", ";"),
    *(
        "password=",
        "password='",
        'password="',
        "password=[",
        "password: a ",
        "pwd=/",
        "sig=(",
        "sig=[(",
        "--token ",
    ),
    *(
        "token: a ",
        "api ",
        "access ",
        "token=5 ",
        '\\"key\\":',
        "secret=a,",
        "a=b&",
        "://",
        "://a:",
        "://a:b",
        "://@",
    ),
    *(
        "eyJ",
        "eyJaaaaaaaa.",
        "-eyJ",
        "eyJaaaaaaaa.aaaaaaaa-",
        "sk-",
        "hf_",
        "AKIA",
        "ya29.",
        "SG.aaaaaaaaaaaaaaaaaa.",
    ),
    *(
        "xoxb-",
        "authorization:",
        "authorization",
        "cookie: a",
        "bearer aaaaaaaa ",
        "basic aaaaaa ",
        "login a ",
    ),
    *(
        "-u a:",
        "-u 1:",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN ",
        "MNO",
        "a~",
        "0Q~",
        "1:AA",
        "sha256-",
        "aA1",
    ),
    *(
        "hooks.slack.com/services/a ",
        "/webhooks/",
        "[redacted:name]",
        "[redacted:",
        "ABCDEFabcdef123456/",
        "\ud800",
    ),
]


def seconds_for(text: str) -> float:
    began = time.process_time()
    redact_text(text)
    return time.process_time() - began


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("size", [pytest.param(MIB, marks=pytest.mark.slow, id="1MiB"), MIB // 16])
def test_a_text_made_to_be_slow_is_not(piece: str, size: int) -> None:
    # Linear time is at most two seconds for a mebibyte; quadratic time would be hours.
    assert seconds_for((piece * (size // len(piece) + 1))[:size]) < 10


@pytest.mark.slow
@pytest.mark.parametrize("between", ["", "\n"], ids=["on one line", "on lines"])
def test_a_mebibyte_of_everything_slow_is_done_in_seconds(between: str) -> None:
    share = MIB // len(HOSTILE)
    assert seconds_for(between.join((piece * share)[:share] for piece in HOSTILE)) < 20


@pytest.mark.parametrize(
    "name",
    [
        *(
            "password",
            "smtp_password",
            "API_KEY",
            "apiKey",
            "APIKey",
            "openai-api-key",
            "HF_TOKEN",
            "slack-token",
        ),
        *(
            "aws_secret_access_key",
            "AWS_SESSION_TOKEN",
            "AccountKey",
            "SharedAccessKey",
            "client_secret",
            "id_token",
        ),
        *(
            "PGPASSWORD",
            "MYSQL_PWD",
            "DB_PASS",
            "REDISCLI_AUTH",
            "private_key",
            "ssh_key",
            "credentials",
            "passphrase",
        ),
        *(
            "Authorization",
            "cookie",
            "_authToken",
            "WANDB_API_KEY",
            "db.password",
            "--api-token",
            "api_tokens",
            "jwt",
        ),
    ],
)
def test_the_name_of_a_secret_is_recognised(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "tokens_per_second",
            "tokenizer",
            "max_tokens",
            "pad_token",
            "eos_token_id",
            "image_token",
            "per_token_loss",
        ),
        *(
            "token_file",
            "password_file",
            "secret_name",
            "token_url",
            "SharedAccessKeyName",
            "key",
            "monkey",
            "keyboard",
        ),
        *(
            "primary_key",
            "public_key",
            "key_dim",
            "cache_key",
            "forward_pass",
            "pass",
            "passing",
            "compass",
            "author",
        ),
        *("learning_rate", "", "---", "token_type_ids", "num_key_value_heads", "pin_memory", "tokens"),
    ],
)
def test_a_harmless_name_is_not_changed(name: str) -> None:
    assert not is_secret_name(name)


def test_a_command_line_loses_its_secrets_and_keeps_the_rest() -> None:
    given_ = (
        "train.py --password a --api-key=b HF_TOKEN=c -u ada:d -u 1000:1000 --tokenizer gpt2 --token --fast"
    )
    shown = (
        "train.py --password [redacted:name] --api-key=[redacted:name] HF_TOKEN=[redacted:name] "
        "-u [redacted:user] -u 1000:1000 --tokenizer gpt2 --token --fast"
    )
    assert redact_words(given_.split()) == shown.split()
    assert redact_words(["++db.password=a b", "--lr", "1"]) == ["++db.password=[redacted:name]", "--lr", "1"]


def test_secrets_at_any_depth_of_a_configuration_are_removed() -> None:
    shown = redact_mapping(
        {
            "lr": 0.1,
            "db": {"user": "ada", "password": "a", "pool": [{"token": "b"}, "https://ada:c@db.example"]},
            "env": [{"name": "HF_TOKEN", "value": "d"}, {"name": "LANG", "value": "C"}],
            "credentials": {"id": 7, "parts": ["e", {"deep": "f"}]},
            "tokens": [101, 2023],
            "password": 1234,
            "api_key": None,
            "smtp": {"password": {"env": "SMTP_PASSWORD"}},
            "note": b"secret=g",
        }
    )
    hidden = "[redacted:name]"
    assert shown == {
        "lr": 0.1,
        "db": {
            "user": "ada",
            "password": hidden,
            "pool": [{"token": hidden}, "https://[redacted:url]@db.example"],
        },
        "env": [{"name": "HF_TOKEN", "value": hidden}, {"name": "LANG", "value": "C"}],
        "credentials": {"id": 7, "parts": [hidden, {"deep": hidden}]},
        "tokens": [101, 2023],
        "password": hidden,
        "api_key": None,
        "smtp": {"password": {"env": "SMTP_PASSWORD"}},
        "note": "secret=[redacted:name]",
    }


def test_an_environment_of_nothing_but_secrets_shows_none() -> None:
    environment = {f"SETTING_{number}": secret for number, (_, secret) in enumerate(SECRETS.values())}
    named = {f"SERVICE_{number}_API_KEY": secret for number, (_, secret) in enumerate(SECRETS.values())}
    shown = json.dumps(redact_mapping(named))
    assert not [secret for secret in environment.values() if secret in shown]


def test_a_key_of_a_mapping_may_be_a_secret_itself() -> None:
    text, secret = SECRETS["GitHub token"]
    assert secret not in json.dumps(redact_mapping({text: 1, ("a", secret): 2}))


@pytest.mark.parametrize("place", [0, 900, 995, 4_990, 5_100])
def test_the_start_of_a_text_holds_no_half_of_a_secret(place: int) -> None:
    secret = "hf_" + "Ab1Cd2Ef3G" * 4
    text = f"{'w ' * (place // 2)} {secret} {'rest ' * 2_000}"
    start = redact_start(text, 1_000)
    assert len(start) <= 1_000
    assert start.endswith("…")
    assert "hf_" not in start


def test_a_value_that_contains_itself_comes_to_an_end() -> None:
    loop: dict[str, object] = {"lr": 1}
    loop["self"] = [loop, {"again": loop}]
    assert redact_mapping(loop)["lr"] == 1
    wide: list[object] = []
    for _ in range(40):
        wide = [wide, wide]
    redact_value(wide)


def test_a_value_without_a_text_is_named_by_its_type() -> None:
    class Mute:
        def __str__(self) -> str:
            raise OSError("no")

    assert redact_value({"x": Mute()}) == {"x": "<Mute that cannot be shown: OSError>"}


nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40) | st.binary(max_size=20),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=12), inside, max_size=4),
    max_leaves=20,
)


@given(nested)
def test_any_nested_value_can_be_redacted_and_redacting_again_changes_nothing(value: object) -> None:
    once = redact_value(value)
    assert repr(redact_value(once)) == repr(once)


def test_a_rule_of_ones_own_takes_out_what_it_matches(rule: str) -> None:
    text = "badge B-1234 entered"
    assert redact_text(text) == text
    add_rule(rule, r"\bB-[0-9]{4}\b")
    assert redact_text(text) == "badge [redacted:badge] entered"
    assert redact_value({"who": text}) == {"who": "badge [redacted:badge] entered"}
    remove_rule(rule)
    assert redact_text(text) == text


def test_a_rule_may_name_the_part_that_is_the_secret(rule: str) -> None:
    add_rule(rule, r"badge (?P<secret>\S+)")
    assert (
        redact_text("badge B-1 entered, badge B-2 left")
        == "badge [redacted:badge] entered, badge [redacted:badge] left"
    )


@pytest.mark.parametrize(
    ("name", "pattern", "message"),
    [
        ("Badge", "x", "'Badge'; a name has small letters"),
        ("a]", "x", "a name has small letters"),
        ("badge", "(", "badge cannot be read"),
        ("badge", "x*", "would match everywhere"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(name: str, pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        add_rule(name, pattern)


def test_a_rule_that_matches_what_others_leave_behind_does_not_spin(rule: str) -> None:
    add_rule(rule, "[a-z]+")
    once = redact_text("password=hunter2 and more")
    assert redact_text(once) == once
    assert "hunter2" not in once


def test_a_list_of_words_or_pairs_loses_its_secrets_and_keeps_the_rest() -> None:
    logged = {
        "argv": ["train.py", "--api-key", "hunter2xyz", "--lr", "0.1", "--verbose"],
        "cmd": ("--password", "hunter2xyz"),
        "login": ["curl", "-u", "me:hunter2xyz", "-u", "me"],
        "env": [["HF_TOKEN", "hunter2xyz"], ["EPOCHS", "3"]],
        "pairs": [("password", "hunter2xyz")],
        "columns": ["token", "text"],
        "betas": [["first", 0.9], ["second", 0.99]],
        "sizes": [[1, 2], [3, 4]],
        "none": [],
    }
    assert redact_mapping(logged) == {
        "argv": ["train.py", "--api-key", "[redacted:name]", "--lr", "0.1", "--verbose"],
        "cmd": ["--password", "[redacted:name]"],
        "login": ["curl", "-u", "[redacted:user]", "-u", "me"],
        "env": [["HF_TOKEN", "[redacted:name]"], ["EPOCHS", "3"]],
        "pairs": [["password", "[redacted:name]"]],
        "columns": ["token", "text"],
        "betas": [["first", 0.9], ["second", 0.99]],
        "sizes": [[1, 2], [3, 4]],
        "none": [],
    }


def test_fields_keep_their_names_when_a_long_text_is_cut_and_there_is_a_rule_of_ones_own(rule: str) -> None:
    add_rule(rule, "patient-[0-9]+")
    cut = Redaction(max_characters=10).mapping({"text": "word " * 100, "after": 1})
    assert cut["text"].startswith("word")
    assert cut["after"] == 1
