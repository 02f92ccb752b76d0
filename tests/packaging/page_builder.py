"""Loads what builds the page, which lies beside the package and not in it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def page_builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stepscope_page_build", ROOT / "ui" / "page_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def put_page(page: Path, script: str = "console.log(1)") -> None:
    """A page as a build leaves it."""
    (page / "assets").mkdir(parents=True)
    (page / "index.html").write_text(
        '<base href="/"><script type="module" src="./assets/index-1.js"></script>'
    )
    (page / "assets" / "index-1.js").write_text(script)
    (page / "sw.js").write_text("self.skipWaiting()")
    (page / "assets" / "licences.txt").write_text("svelte 5 (MIT)")
