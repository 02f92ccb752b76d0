"""Adds the config groups of stepscope to Hydra's search path, after those of the application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hydra.plugins.search_path_plugin import SearchPathPlugin

from stepscope.integrations.hydra.nodes import register

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath


class StepscopeSearchPath(SearchPathPlugin):  # type: ignore[misc, unused-ignore]  # Any if it is not installed
    """Makes `callbacks=[throughput_monitor]` and `stepscope=default` known."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Appends the folder with the groups; a file of the application with the same name comes first."""
        register()
        search_path.append(provider="stepscope", path="pkg://stepscope.integrations.hydra")
