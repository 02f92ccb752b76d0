"""A dependency or an extra exists only where the package uses it."""

import re
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {name: needed for name, needed in PROJECT["optional-dependencies"].items() if name != "dev"}
MODULES = {
    "google-re2": "re2",
    "hydra-core": "hydra",
    "mlflow-skinny": "mlflow",
    "nvidia-ml-py": "pynvml",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry.exporter.otlp.proto.http",
    "opentelemetry-sdk": "opentelemetry.sdk",
    "prometheus-client": "prometheus_client",
    "pyyaml": "yaml",
}
"""What is imported of packages whose module has another name."""

SOURCES = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))


def name_of(requirement: str) -> str:
    return re.match(r"[\w.-]+", requirement)[0]


def is_imported(package: str) -> bool:
    module = re.escape(MODULES.get(package, package))
    by_statement = rf"^\s*(?:import|from) {module}\b"
    by_name = rf"(?:load|import_module)\(\"{module}\"\)"
    by_list = rf"^PACKAGES = \(\"{module}\b"  # of names of the same library
    return re.search(f"{by_statement}|{by_name}|{by_list}", SOURCES, re.MULTILINE) is not None


@pytest.mark.parametrize("requirement", PROJECT["dependencies"])
def test_every_package_of_the_base_install_is_imported(requirement):
    assert is_imported(name_of(requirement))


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - {"all"}))
def test_every_package_of_an_extra_is_imported(extra):
    assert all(is_imported(name_of(requirement)) for requirement in EXTRAS[extra])


def test_the_extra_of_all_names_every_other():
    [requirement] = EXTRAS["all"]
    assert set(re.search(r"\[(.*)\]", requirement)[1].split(",")) == EXTRAS.keys() - {"all"}


def test_every_extra_that_a_message_names_exists():
    extras = re.findall(r"stepscope\[(\w+)\]", SOURCES) + re.findall(r"MissingExtra\(\s*\"(\w+)\"", SOURCES)
    assert extras
    assert set(extras) <= EXTRAS.keys()
