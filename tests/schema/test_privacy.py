"""Names of people and machines become unreadable where that is asked for."""

from __future__ import annotations

import pytest

from stepscope.schema.privacy import Privacy, hash_name, shorten_home


def test_a_hashed_name_is_the_same_everywhere_and_another_with_another_salt() -> None:
    first = hash_name("node7", "salt")
    assert first == hash_name("node7", "salt")
    assert len({first, hash_name("node8", "salt"), hash_name("node7", "other")}) == 3
    assert "node7" not in first


def test_any_name_can_be_hashed() -> None:
    assert hash_name("\ud800", "").startswith("anon-")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/srv/ada/project/train.py", "~/project/train.py"),
        ("in '/srv/ada': no", "in '~': no"),
        ("/srv/adam/x and /srv/ada-2/x", "/srv/adam/x and /srv/ada-2/x"),
        ("/data/srv/ada/x", "/data/srv/ada/x"),
        ("/home/grace/x, /Users/grace/y", "~/x, ~/y"),
        ("/mnt/home/grace/x", "/mnt/home/grace/x"),
        ("--out=/srv/ada/x:/srv/ada/y", "--out=~/x:~/y"),
    ],
)
def test_a_home_directory_is_shown_as_a_tilde(text: str, shown: str) -> None:
    assert shorten_home(text, "/srv/ada/") == shown


def test_the_root_of_a_file_system_is_not_a_home() -> None:
    assert shorten_home("/a/b", "/") == "/a/b"


def test_nothing_is_changed_unless_asked_for() -> None:
    privacy = Privacy(names=("ada",))
    assert privacy.name("node7") == "node7"
    assert privacy.text("ada in /home/ada") == "ada in /home/ada"


def test_names_are_hashed_where_text_mentions_them() -> None:
    privacy = Privacy(salt="s", names=("node7", "node7.cluster", "ada", ""))
    host, long, user = (hash_name(name, "s") for name in ("node7", "node7.cluster", "ada"))
    assert (
        privacy.text("ada@node7 to node7.cluster, adamant node77")
        == f"{user}@{host} to {long}, adamant node77"
    )
    assert privacy.name("node7") == host
