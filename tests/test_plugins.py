"""Packages of others add members by entry points; a file of the package takes precedence."""

from __future__ import annotations

from pathlib import Path

import pytest

MEMBER = """
from stepscope.exporters.base import Feed
class Counter(Feed):
    def __init__(self, *, path: str) -> None:
        self.path = path
    def take(self, table) -> None: ...
    def close(self) -> None: ...
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of packages, in which a package of somebody else is installed."""
    folder = tmp_path / "site"
    about = folder / "others-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "others.py").write_text(MEMBER)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[stepscope.exporters]\nothers = others:Counter\njsonl = others:Counter\n"
        "[stepscope.channels]\nodd = others:Counter\n"
    )
    return folder


def test_a_member_of_another_package_is_listed_checked_and_made(run_script, installed: Path) -> None:
    result = run_script(
        """
        from stepscope import plugins
        from stepscope.channels.base import Channel
        from stepscope.errors import StepscopeError
        from stepscope.exporters.base import Exporter, Feed
        print("others" in plugins.names("exporters"), "others" in plugins.names("channels"))
        print(plugins.make("exporters", "others", Feed, {"path": "a"}).path)
        print(plugins.load("exporters", "jsonl", Exporter).__module__)
        for folder, name, base, options in (
            ("exporters", "others", Feed, {"paths": "a"}),
            ("exporters", "others", Feed, {}),
            ("channels", "odd", Channel, {}),
        ):
            try:
                plugins.make(folder, name, base, options)
            except StepscopeError as error:
                print(error)
        """,
        environment={"PYTHONPATH": str(installed)},
    )
    assert result.stdout.splitlines() == [
        "True False",
        "a",
        "stepscope.exporters.jsonl",
        "exporters.others has no option 'paths'; it has: path.",
        "exporters.others needs the option 'path'.",
        "others:Counter is not a Channel; it was installed as 'odd'.",
    ], result.stderr
