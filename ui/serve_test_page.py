"""Runs stepscope with a page that shows scripts what its charts draw, for browser tests and benchmarks.

python ui/serve_test_page.py serve --store runs --port 0

The page is built from the same sources, with `window.__stepscope` (see src/chart/control/registry.ts).
"""

from __future__ import annotations

import sys
from pathlib import Path

from page_build import build_page

from stepscope.cli.main import main
from stepscope.web.api import routes_page

UI = Path(__file__).resolve().parent
PAGE = UI / "dist" / "test_page"

if __name__ == "__main__":
    build_page(UI, PAGE, "build-for-tests")
    routes_page.PAGE_FOLDER = PAGE
    sys.exit(main())
