"""Puts the built web page into wheel and sdist, so that installing them needs no Node."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from types import ModuleType


class PageBuildHook(BuildHookInterface[BuilderConfig]):
    """Builds the page when its sources have changed; in an editable install `make page` does it."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Node as a wheel, where the page has to be built and the machine has none."""
        builder, ui, page = self._parts()
        return [builder.NODE_WHEEL] if builder and builder.needs_node_wheel(ui, page) else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds the page before files are gathered."""
        del build_data
        builder, ui, page = self._parts()
        if builder is None:
            return
        if version == "editable":
            if not builder.is_current(ui, page):
                self.app.display_info("The web page is not built yet. Build it with: make page")
            return
        try:
            self.app.display_info(builder.build_page(ui, page))
        except builder.PageError as error:
            self.app.abort(str(error))

    def _parts(self) -> tuple[ModuleType | None, Path, Path]:
        root = Path(self.root)
        file = root / "ui" / "page_build.py"
        page = root / "src" / "stepscope" / "web" / "page"
        if not file.is_file():
            return None, root / "ui", page
        spec = importlib.util.spec_from_file_location("stepscope_page_build", file)
        if spec is None or spec.loader is None:
            return None, root / "ui", page
        builder = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(builder)
        return builder, root / "ui", page
