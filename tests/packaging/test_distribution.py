"""What people install: the page and what is compiled are there, and it works without Node and a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.packaging.page_builder import ROOT, page_builder, put_page

pytestmark = pytest.mark.slow

build = page_builder()
NEEDED = (
    "pyproject.toml",
    "hatch_build.py",
    "README.md",
    "LICENSE",
    "Makefile",
    "constraints.txt",
    ".gitignore",
)

ASKS_FOR_THE_PAGE = """
import re, sys
from pathlib import Path
import stepscope
from starlette.testclient import TestClient
from stepscope.web.app import create_app
from stepscope.web.server.options import ServerOptions

assert Path(stepscope.__file__).is_relative_to(sys.prefix), stepscope.__file__
client = TestClient(create_app(ServerOptions(folder=Path(sys.argv[1]))), base_url="http://127.0.0.1:8787")
page = client.get("/run/some/metrics")
script = re.search(r"assets/[^\\"]+[.]js", page.text)[0]
worker = client.get("/sw.js")
assert (worker.status_code, worker.text) == (200, "self.skipWaiting()"), worker.text
print(page.status_code, script, client.get("/" + script).text)
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with a page that belongs to its sources, apart from the one people work in."""
    folder = tmp_path_factory.mktemp("checkout") / "stepscope"
    skipped = shutil.ignore_patterns("node_modules", "__pycache__", "page")
    for name in ("src", "ui"):
        shutil.copytree(ROOT / name, folder / name, ignore=skipped)
    for name in NEEDED:
        shutil.copy(ROOT / name, folder / name)
    put_page(folder / "src" / "stepscope" / "web" / "page")
    record = folder / "src" / "stepscope" / "web" / "page" / build.RECORD
    record.write_text(build.source_hash(folder / "ui"))
    # git would leave the page out of a build: it is ignored there.
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    return folder


COMPILER = ("cc", "gcc", "as", "ld")


def without_node(tmp: Path, *, programs: Iterable[str] = ()) -> dict[str, str]:
    """An environment with these programs and no others."""
    tmp.mkdir(exist_ok=True)
    for name in programs:
        (tmp / name).symlink_to(shutil.which(name) or f"/usr/bin/{name}")
    return {**os.environ, "PATH": str(tmp)}


@pytest.fixture(scope="module")
def built(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    environment = without_node(tmp_path_factory.mktemp("bin"), programs=COMPILER)
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {"wheel": next(folder.glob("*.whl")), "sdist": next(folder.glob("*.tar.gz"))}


def test_the_wheel_carries_the_page(built):
    names = zipfile.ZipFile(built["wheel"]).namelist()
    page = {
        name.removeprefix("stepscope/web/page/") for name in names if name.startswith("stepscope/web/page/")
    }
    assert page == {"index.html", "sw.js", "assets/index-1.js", "assets/licences.txt", build.RECORD}
    assert not any(name.startswith("ui/") for name in names)


def test_the_wheel_carries_what_is_written_in_c_for_all_versions_of_python(built):
    names = zipfile.ZipFile(built["wheel"]).namelist()
    assert [Path(name).name for name in names if name.endswith(".so")] == [
        "_row_frames.abi3.so",
        "_step_timer.abi3.so",
    ]
    assert not any(name.endswith(".c") for name in names)
    assert "-cp310-abi3-linux_" in built["wheel"].name


def test_the_wheel_carries_the_config_groups_and_the_plug_in_that_hydra_finds(built):
    names = zipfile.ZipFile(built["wheel"]).namelist()
    groups = "stepscope/integrations/hydra"
    assert {
        "hydra_plugins/stepscope_configs/search_path.py",
        f"{groups}/callbacks/throughput_monitor.yaml",
        f"{groups}/stepscope/default.yaml",
    } <= set(names)
    assert "hydra_plugins/__init__.py" not in names  # it belongs to all packages with plug-ins


def test_the_sdist_carries_the_page_and_its_sources_but_no_packages(built):
    with tarfile.open(built["sdist"]) as archive:
        names = [name.split("/", 1)[1] for name in archive.getnames() if "/" in name]
    assert {
        "src/stepscope/web/page/index.html",
        "ui/package-lock.json",
        "ui/src/main.ts",
        "hatch_build.py",
    } <= set(names)
    assert not any("node_modules" in name for name in names)


def test_a_wheel_is_built_from_the_sdist_without_node_and_without_a_compiler(built, tmp_path):
    with tarfile.open(built["sdist"]) as archive:
        archive.extractall(tmp_path, filter="data")
    source = next(path for path in tmp_path.iterdir() if path.is_dir())
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")]
    environment = without_node(tmp_path / "bin")
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    wheel = next((tmp_path / "again").glob("*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    assert "stepscope/web/page/index.html" in names
    assert "_row_frames.c is not compiled, Python does its work" in done.stdout + done.stderr
    assert not any(name.endswith(".so") for name in names)
    assert wheel.name.endswith("-py3-none-any.whl")


def test_the_installed_wheel_serves_the_page_without_node(built, tmp_path):
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*install, str(built["wheel"])], check=True, capture_output=True)
    # The dependencies are lent by the environment of the tests, behind the installed package.
    environment = without_node(tmp_path / "bin")
    lent = f"import sys; sys.path.append({sysconfig.get_paths()['purelib']!r})\n"
    done = subprocess.run(
        [str(python), "-c", lent + ASKS_FOR_THE_PAGE, str(tmp_path)],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "200 assets/index-1.js console.log(1)", done.stdout + done.stderr
