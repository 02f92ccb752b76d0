"""The mail channel against a real server."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from dataclasses import replace
from email import message_from_bytes, policy

import pytest

import stepscope
from stepscope.alerts.delivery import message
from stepscope.alerts.delivery.mail_message import mail_message
from stepscope.channels.base import DeliveryError
from stepscope.channels.mail import MailChannel
from stepscope.errors import ConfigError
from stepscope.journal.private_settings import SUFFIX
from tests.channels.mail_server import PASSWORD, USER, mailbox
from tests.channels.notices import DETAIL, INJECTIONS, notice

PEOPLE = ["ann@example.com", "bob@example.com"]
HEADERS = {"From", "To", "Subject", "Date", "Message-ID", "In-Reply-To", "References", "Auto-Submitted"} | {
    "Content-Type",
    "Content-Transfer-Encoding",
    "MIME-Version",
}


@pytest.fixture
def guarded(certificate):
    with mailbox(starttls=certificate.server) as box:
        yield box


@pytest.fixture
def open_box():
    with mailbox() as box:
        yield box


def with_login(box, certificate, **changes):
    options = {"user": USER, "password": PASSWORD, "ca_file": str(certificate.file), "port": box.port}
    return MailChannel(
        host="127.0.0.1", sender="stepscope@example.com", recipients=PEOPLE, **options | changes
    )


def without_login(port, **changes):
    options = {"security": "none", "port": port, "sender": "stepscope@example.com", "recipients": PEOPLE}
    return MailChannel(host="127.0.0.1", **options | changes)


def test_one_well_formed_mail_arrives_over_starttls_with_a_login(guarded, certificate):
    with_login(guarded, certificate).send(notice())
    [envelope], [mail] = guarded.envelopes, guarded.mails
    assert guarded.was_encrypted == [True]
    assert guarded.logins == [USER]
    assert envelope.mail_from == "stepscope@example.com"
    assert envelope.rcpt_tos == PEOPLE
    assert set(mail.keys()) - {"X-Peer", "X-MailFrom", "X-RcptTo"} == HEADERS
    assert mail["From"] == "stepscope@example.com"
    assert mail["To"] == "ann@example.com, bob@example.com"
    assert mail["Subject"] == "[CRITICAL] mnist-baseline: Loss is NaN."
    assert mail["Date"] == "Thu, 01 Jan 2026 00:00:00 +0000"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail.get_content_type() == "text/plain"
    assert mail.get_content().replace("\r\n", "\n") == message.text(notice())
    assert not mail.defects


def test_one_mail_arrives_over_a_connection_that_is_encrypted_from_the_start(certificate):
    with mailbox(tls=certificate.server) as box:
        with_login(box, certificate, security="tls", user="", password="").send(notice())
        assert len(box.mails) == 1


def test_every_attempt_has_the_same_id_and_another_notice_another(open_box):
    channel = without_login(open_box.port)
    for sent in (notice(), notice(), notice(id="notice-8")):
        channel.send(sent)
    first, again, other = [mail["Message-ID"] for mail in open_box.mails]
    assert first == again != other
    assert first.endswith("@example.com>")


def test_firing_and_resolved_mails_are_in_one_thread():
    other = replace(DETAIL, rule="slow", severity="info")

    def threads(*alerts, **changes):
        mail = mail_message(notice(alerts=alerts, **changes), "a@example.com", PEOPLE)
        return mail["In-Reply-To"], set(mail["References"].split())

    parent, references = threads(DETAIL, other)
    assert threads(DETAIL, id="notice-8", kind="resolved") == (parent, {parent})
    assert threads(other, id="notice-9", kind="resolved")[1] < references
    assert threads(DETAIL, run_id="run-2")[0] != parent


def test_a_test_without_alerts_belongs_to_no_thread():
    mail = mail_message(notice(kind="test", alerts=()), "a@example.com", PEOPLE)
    assert (mail["References"], mail["In-Reply-To"]) == (None, None)


@pytest.mark.parametrize("text", INJECTIONS)
@pytest.mark.parametrize("place", ["run", "rule", "message"])
def test_no_name_adds_a_header_or_a_recipient(place, text):
    sent = notice(**{place: text})
    mail = mail_message(sent, "a@example.com", PEOPLE)
    content = mail.as_bytes()
    parsed = message_from_bytes(content, policy=policy.default)
    assert Counter(parsed.keys()) == Counter(HEADERS)
    assert parsed["To"] == ", ".join(PEOPLE)
    assert len(parsed["Subject"]) <= 200
    assert not [line for line in content.split(b"\r\n") if len(line) > 998 or b"\n" in line or b"\r" in line]
    assert parsed.get_content().replace("\r\n", "\n") == message.text(sent)


def test_each_unusual_name_arrives_as_one_mail(open_box):
    channel = without_login(open_box.port)
    for text in INJECTIONS:
        channel.send(notice(run=text, rule=text, message=text, host=text, project=text))
    assert len(open_box.envelopes) == len(INJECTIONS)
    assert all(envelope.rcpt_tos == PEOPLE for envelope in open_box.envelopes)
    assert all(len(mail.get_all("Subject")) == 1 for mail in open_box.mails)
    assert all(mail["Bcc"] is None for mail in open_box.mails)


def test_only_the_refused_recipient_is_named_and_retried(open_box):
    open_box.refuses = {"bob@example.com": "451 4.7.1 try later"}
    channel = without_login(open_box.port)
    with pytest.raises(DeliveryError, match=r"refused bob@example.com \(451 4.7.1 try later\)") as raised:
        channel.send(notice())
    assert not raised.value.is_final
    open_box.refuses = {}
    channel.send(notice())
    assert [envelope.rcpt_tos for envelope in open_box.envelopes] == [
        ["ann@example.com"],
        ["bob@example.com"],
    ]


def test_a_permanently_refused_recipient_is_not_retried(open_box):
    open_box.refuses = {"ann@example.com": "550 no such user", "bob@example.com": "451 try later"}
    channel = without_login(open_box.port)
    with pytest.raises(DeliveryError, match=r"ann@example.com \(550 .*bob@example.com \(451 ") as raised:
        channel.send(notice())
    assert not raised.value.is_final
    with pytest.raises(DeliveryError) as raised:
        channel.send(notice())
    assert "ann@example.com" not in str(raised.value)
    open_box.refuses = {}
    with pytest.raises(DeliveryError, match=r"refused ann@example.com \(550 no such user\)") as raised:
        channel.send(notice())
    assert raised.value.is_final
    assert [envelope.rcpt_tos for envelope in open_box.envelopes] == [["bob@example.com"]]


@pytest.mark.parametrize("everybody", [True, False])
def test_an_unknown_recipient_is_final(open_box, everybody):
    open_box.refuses = {"bob@example.com": "550 5.1.1 no such user"}
    if everybody:
        open_box.refuses["ann@example.com"] = "550 5.1.1 no such user"
    with pytest.raises(DeliveryError, match="bob@example.com") as raised:
        without_login(open_box.port).send(notice())
    assert raised.value.is_final
    assert ("ann@example.com" in str(raised.value)) == everybody


@pytest.mark.parametrize(
    ("answer", "is_final"), [("554 5.7.1 is spam", True), ("452 4.3.1 disk full", False)]
)
def test_the_reply_of_the_server_decides_whether_to_retry(open_box, answer, is_final):
    open_box.answer = answer
    with pytest.raises(DeliveryError, match=answer) as raised:
        without_login(open_box.port).send(notice())
    assert raised.value.is_final == is_final


def test_a_wrong_password_is_final_and_not_repeated(guarded, certificate):
    with pytest.raises(DeliveryError, match=r"refused the user or the password \(535\)") as raised:
        with_login(guarded, certificate, password="canary-wrong").send(notice())
    assert raised.value.is_final
    assert "canary" not in str(raised.value)
    assert guarded.mails == []


def test_nothing_is_sent_to_a_server_with_an_untrusted_certificate(guarded, certificate):
    with pytest.raises(DeliveryError, match="no trusted certificate"):
        with_login(guarded, certificate, ca_file="").send(notice())
    assert (guarded.logins, guarded.mails) == ([], [])


def test_nothing_is_sent_to_a_server_without_encryption(open_box, certificate):
    with pytest.raises(DeliveryError, match="does not support the configured encryption") as raised:
        with_login(open_box, certificate).send(notice())
    assert raised.value.is_final
    assert (open_box.logins, open_box.mails) == ([], [])


def test_a_server_that_does_not_answer_times_out():
    expected = pytest.raises(DeliveryError, match="did not answer within 0.1 s")
    with socket.create_server(("127.0.0.1", 0)) as silent, expected as raised:
        without_login(silent.getsockname()[1], timeout_s=0.1).send(notice())
    assert not raised.value.is_final


def test_a_closed_connection_is_retried():
    with socket.create_server(("127.0.0.1", 0)) as rude:

        def hang_up():
            rude.accept()[0].close()

        hanging_up = threading.Thread(target=hang_up)
        hanging_up.start()
        with pytest.raises(DeliveryError) as raised:
            without_login(rude.getsockname()[1]).send(notice())
        hanging_up.join()
    assert not raised.value.is_final


def test_an_unreachable_server_is_retried():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DeliveryError, match="cannot be reached: Connection refused") as raised:
        without_login(port).send(notice())
    assert not raised.value.is_final


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"security": "ssl"}, r"security must be one of starttls, tls, none"),
        ({"recipients": "ann@example.com"}, "recipients must be a list"),
        ({"recipients": ["ann@example.com\nBcc: x@example.com"]}, r"recipients\[0\] contains a line break"),
        ({"recipients": ["Ann <ann@example.com>"]}, "an address without a name"),
        ({"sender": "nobody"}, "sender must be an address without a name"),
        ({"user": "ann"}, "password is not set"),
        ({"password": "canary"}, "user is not set"),
        ({"user": "ann", "password": "canary"}, "would be sent without encryption"),
        ({"port": 0}, "port must be a number from 1 to 65535"),
        ({"security": "tls", "ca_file": "/nowhere.pem"}, "ca_file cannot be used"),
        ({"security": "tls", "ca_file": __file__}, "ca_file cannot be used"),
    ],
)
def test_an_invalid_option_is_a_clear_error(wrong, said):
    with pytest.raises(ConfigError, match=said) as raised:
        without_login(wrong.pop("port", 25), **wrong)
    assert "canary" not in str(raised.value)


def test_a_password_is_sent_unencrypted_only_if_allowed():
    with mailbox(plain_login=True) as box:
        without_login(box.port, user=USER, password=PASSWORD, allow_plain_password=True).send(notice())
        assert (box.was_encrypted, box.logins) == ([False], [USER])


def test_the_agent_sends_one_mail_for_an_alert_and_one_for_its_resolution(
    guarded, certificate, folder, monkeypatch, until
):
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)
    mail = {
        "host": "127.0.0.1",
        "port": guarded.port,
        "user": USER,
        "password": {"env": "MAIL_PASSWORD"},
        "sender": "stepscope@example.com",
        "recipients": PEOPLE,
        "ca_file": str(certificate.file),
    }
    rules = [{"name": "high", "when": "loss > 2", "message": "Loss {loss:.1f}"}]
    settings = {
        "agent": {"interval_s": 0.1},
        "alerts": {"rules": rules, "channels": {"console": {"enabled": False}, "mail": mail}},
    }
    with stepscope.TrainingMonitor(settings, run="r", directory=folder) as monitor:
        for _ in range(20):
            monitor.log({"loss": 3.0})
        until(lambda: guarded.mails)
        monitor.log({"loss": 1.0})
        until(lambda: len(guarded.mails) == 2)
    first, second = guarded.mails
    assert first["Subject"] == "[WARNING] r: Loss 3.0"
    assert second["Subject"].startswith("[resolved WARNING] r:")
    assert first["References"] == second["References"]
    assert PASSWORD.encode() not in b"".join(
        path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != SUFFIX
    )
