"""Personal data is taken out where somebody asks for it, and numbers of a training stay."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.schema.personal_data import redact_personal_data
from stepscope.schema.privacy import Privacy
from stepscope.schema.redact import redact_text
from tests.schema.corpus import INNOCENT

PERSONAL = {
    "email": [
        "ada@example.org",
        "mail ada.lovelace+runs@mail.example.co.uk.",
        "<ada@example.org>",
        "user=o'hara@example.com;",
        "ö.müller@bücher.de",
        "mailto:ada@example.org?subject=x",
        "author='Ada <ada@example.org>'",
        "KeyError: 'ada@example.org'",
    ],
    "phone": [
        *("+49 170 1234567", "+4915112345678", "+1 (555) 123-4567", "+1(555)123-4567", "+1-555-123-4567"),
        *(
            "+44 20 7946 0958",
            "0049 170 1234567",
            "+33 1 23 45 67 89",
            "+86 138 1234 5678",
            "+91 98765 43210",
        ),
        *("(555) 123-4567", "555-123-4567", "555.123.4567", "1-800-555-0199", "(11) 91234-5678"),
        *("01 23 45 67 89", "06.12.34.56.78", "03-1234-5678", "090-1234-5678", "(02) 9876 5432"),
        *("0170 1234567", "0170/1234567", "030-12345678", "(030) 1234567", "07911 123456", "020 7946 0958"),
        *("phone 5551234567 now", "phone: 030 123456", "Tel. 555 123 4567", "phone number is 555-1234"),
        *("call me at 555 123 4567", "user_phone=5551234567", "mobile: +491701234567"),
    ],
    "ip": [
        *("10.0.0.5", "10.0.0.5:29500", "192.168.0.1", "http://93.184.216.34/x", "peer 8.8.8.8 is gone"),
        *("connected from 1.2.3.4", "1.2.3.4:8080", "MASTER_ADDR=10.1.2.3", "tcp://10.1.2.3:29500"),
        *("2001:db8::8a2e:370:7334", "[2001:db8::1]:443", "fe80::1%eth0", "::ffff:10.0.0.5", "fd00:1:2::3"),
    ],
    "iban": [
        *("DE89370400440532013000", "DE89 3704 0044 0532 0130 00", "GB82 WEST 1234 5698 7654 32 EUR"),
        *("iban=GB29NWBK60161331926819,", "NO9386011117947", "fr1420041010050500013m02606"),
    ],
}

NUMBERS = [
    "1234567890 steps",
    "step 1234567890 of 9876543210",
    "loss=0.3123 at 1731663769.123456 after 1731663769123456789 ns",
    "2026-11-15T09:02:49.123456+01:00 and 2026-11-15 09:02:49,123 and 15.11.2026 and 11/15/2026",
    "20261115-090249 [00:12<03:45, 12.34it/s] 3:14:15",
    "nvidia-cudnn-cu12==8.9.2.26 version 1.2.3.4 v1.2.3.4 driver: 1.2.3.4 1.2.3.4 12.1.0.105-1",
    "version='10.2.0.89' CUDA 11.8.0.1 1.2.3.4.5",
    "127.0.0.1:8787 0.0.0.0 ::1 [::]:80 255.255.255.0 localhost",
    "x[1::2] x[::2] std::vector abc::def aa:bb:cc:dd:ee:ff 0000:3b:00.0 12:34:56:78:9a:bc:de:f0",
    "3f786850e387550fdab836ed7e6dc881de23001b 550e8400-e29b-41d4-a716-446655440000",
    "git@github.com:org/repo.git q@k.transpose(-2, -1) x@self.weight.T x@w.weight a@b.T @torch.no_grad",
    "user@1000.service pkg@1.2.3 logo@2x.png",
    "shape 128 256 1024 torch.Size([32, 768, 1024]) (32x768 and 512x10)",
    "00012000/0100000 step 0012/100000 epoch 3/100 123/456",
    "1e-4 +1.5 -2.25e+10 +1234567 delta +12345678 bytes 1,234,567,890 100-200-300",
    "DE89370400440532013001 has a wrong check digit",
    "recall 0.1234567 install 1234567890 function call 1234567890 took 5 ms, call 3 times, tel: 42",
    "0.5 0.25 0.125 0.0625 lr 0.001 betas 0.9 0.999",
    "model-00001-of-00004.safetensors shard-000123-of-008192.tar",
    "meta-llama/Llama-3-8B gpt-3.5-turbo-0125 resnet50-0676ba61.pth",
]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind in PERSONAL for text in PERSONAL[kind]])
def test_personal_data_is_replaced_by_its_kind(kind: str, text: str) -> None:
    shown = redact_personal_data(text)
    assert shown.count("[redacted:") == 1
    assert f"[redacted:{kind}]" in shown
    assert redact_personal_data(shown) == shown


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_versions_dates_and_hashes_stay(text: str) -> None:
    assert redact_personal_data(text) == text


@pytest.mark.parametrize("text", INNOCENT)
def test_of_an_innocent_text_only_addresses_are_taken_out(text: str) -> None:
    if "ada@example.org" not in text and "192.168.0.1" not in text:
        assert redact_personal_data(text) == text


def test_what_stands_around_personal_data_stays() -> None:
    assert redact_personal_data("10.0.0.5:29500 lost, tell ada@example.org or phone: 030 123456!") == (
        "[redacted:ip]:29500 lost, tell [redacted:email] or phone: [redacted:phone]!"
    )


@given(st.integers(0, 10**15), st.sampled_from(["", " steps", ".5", "/1000", " ms", ","]))
def test_a_whole_number_is_never_taken_for_personal_data(number: int, after: str) -> None:
    assert redact_personal_data(f"{number}{after}") == f"{number}{after}"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_measured_number_is_never_taken_for_personal_data(number: float) -> None:
    for text in (f"loss={number}", f"{number:.6f}", f"{number:+.3e}", f"({number!r}, {number!r})"):
        assert redact_personal_data(text) == text


@given(st.datetimes())
def test_a_moment_is_never_taken_for_personal_data(moment) -> None:
    for text in (moment.isoformat(), str(moment), moment.strftime("%Y%m%d-%H%M%S %d.%m.%Y %m/%d/%Y")):
        assert redact_personal_data(text) == text


@given(st.ip_addresses())
def test_any_address_but_this_machines_own_is_taken_out(address) -> None:
    shown = redact_personal_data(f"connected to host {address} now")
    is_own = address.is_loopback or address.is_unspecified
    if address.version == 4 and not is_own and not str(address).startswith("255."):
        assert shown == "connected to host [redacted:ip] now"
    elif is_own:
        assert str(address) in shown


@given(st.text(max_size=200))
def test_any_text_can_be_searched_and_nothing_is_found_twice(text: str) -> None:
    once = redact_personal_data(redact_text(text))
    assert redact_personal_data(once) == once


PIECES = [
    *("+1 ", "+1", "(1) ", "1-", "1.", "0", "01 ", "555-123-", "phone ", "call 55 ", "00 49 ", "+49 (0) "),
    *("a@", "a.", "a@b.", "@", "%", "::", "1:", "ffff:", "1.2.3.", "10.0.0.1 ", "DE89 ", "DE89", "A1 ", "-"),
]


@pytest.mark.parametrize("piece", PIECES)
def test_a_text_made_to_be_slow_to_search_is_not(piece: str) -> None:
    text = (piece * 100_000)[:100_000]
    began = time.process_time()
    redact_personal_data(text)
    # Linear time is at most some tenths of a second; quadratic time would be minutes.
    assert time.process_time() - began < 10


def test_nothing_is_taken_out_unless_asked_for_and_the_name_of_a_field_helps() -> None:
    fields = {"phone": "5551234567", "version": "10.2.0.89", "who": ["ada@example.org"], "count": 5551234567}
    assert Privacy().nested(fields) == fields
    assert Privacy(personal_data=True).nested(fields) == {
        "phone": "[redacted:phone]",
        "version": "10.2.0.89",
        "who": ["[redacted:email]"],
        "count": 5551234567,
    }
