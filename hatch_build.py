"""Compiles what is written in C, and puts the built web page into wheel and sdist.

Installing a wheel needs neither a compiler nor Node. Where there is no compiler, what is written in C is left
out: there is the same in Python, which costs the training more.
"""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from types import ModuleType


class StepscopeBuildHook(BuildHookInterface[BuilderConfig]):
    """Compiles, and builds the page if its sources have changed; in an editable install `make page` does."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Node as a wheel, where the page has to be built and the machine has none."""
        builder, ui, page = self._parts()
        return [builder.NODE_WHEEL] if builder and builder.needs_node_wheel(ui, page) else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Does both before files are gathered."""
        if self.target_name == "wheel" and self._compile():
            build_data["pure_python"] = False
            build_data["tag"] = f"cp310-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
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

    def _compile(self) -> bool:
        """Compiles each file of C next to itself, for all versions of Python; whether that was possible."""
        compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
        options = ["-O2", "-fPIC", "-shared", "-I", sysconfig.get_path("include")]
        sources = sorted(Path(self.root, "src").rglob("*.c"))
        for source in sources:
            source.with_suffix(".abi3.so").unlink(missing_ok=True)
        for source in sources:
            compiled = source.with_suffix(".abi3.so")
            try:
                subprocess.run(
                    [*compiler, *options, str(source), "-o", str(compiled)],
                    check=True,
                    capture_output=True,
                    text=True,
                )
            except (OSError, subprocess.CalledProcessError) as error:
                reason = getattr(error, "stderr", None) or str(error)
                self.app.display_warning(f"{source.name} is not compiled, Python does its work: {reason}")
                return False
        return True

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
