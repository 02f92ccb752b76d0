"""The price tables are complete, match the names drivers report, and can be changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stepscope.config.sections import Energy
from stepscope.errors import ConfigError
from stepscope.views.energy.prices import fits, load_tables


@pytest.fixture
def table(tmp_path: Path):
    """Writes a user's file and loads the tables with it."""

    def load(text: str, **settings: object):
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return load_tables(Energy(prices_file=str(path), region="DE", **settings))

    return load


@pytest.mark.parametrize(
    ("pattern", "gpu", "expected"),
    [
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("a100-sxm4-80gb", "NVIDIA A100-SXM4-80GB", True),
        ("L4", "NVIDIA L40S", False),
        ("A10", "NVIDIA A10G", False),
        ("B200", "NVIDIA GB200", False),
        ("*RTX 4090", "NVIDIA GeForce RTX 4090", True),
        ("*RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU", False),
        ("A100", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", False),
        ("*A100* MIG 1g*", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", True),
    ],
)
def test_a_pattern_matches_whole_words_or_the_whole_name(pattern: str, gpu: str, expected: bool) -> None:
    assert fits(pattern, gpu) is expected


@pytest.mark.parametrize(
    ("gpu", "provider"),
    [
        ("NVIDIA H100 80GB HBM3", "Lambda"),
        ("NVIDIA H100 PCIe", "Lambda"),
        ("NVIDIA A10G", "AWS"),
        ("NVIDIA A10", "Lambda"),
        ("NVIDIA L4", "AWS"),
        ("Tesla T4", "AWS"),
        ("NVIDIA GB200", "CoreWeave"),
        ("AMD Instinct MI300X", "DigitalOcean"),
    ],
)
def test_names_reported_by_drivers_have_prices(gpu: str, provider: str) -> None:
    price = load_tables(Energy()).price_of(gpu)
    assert price is not None
    assert price.provider == provider


def test_all_prices_have_a_provider_a_date_and_a_source() -> None:
    prices = load_tables(Energy()).gpus
    assert prices
    for price in prices:
        assert 0 < price.per_hour < 100
        assert price.provider
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", price.date)
        assert price.source
        assert re.fullmatch("[A-Z]{3}", price.currency)


def test_all_regions_have_a_year_and_a_source() -> None:
    regions = load_tables(Energy(region="world")).regions
    assert {"WORLD", "EU", "DE", "US", "NO", "US-CENTRAL1"} <= set(regions)
    for carbon in regions.values():
        assert 0 < carbon.grams_per_kwh < 1500
        assert carbon.year is not None
        assert "https://" in carbon.source


def test_a_country_is_known_by_two_letters_or_three_in_any_case() -> None:
    tables = load_tables(Energy(region="NO"))
    assert tables.carbon_of("no") == tables.carbon_of("NOR") == tables.carbon_of("NO")
    assert tables.carbon_of("NO").name == "Norway"


def test_a_users_file_comes_first_and_adds_to_the_tables(table) -> None:
    tables = table("""
        gpus:
          - {patterns: [H200], price_per_hour: 2.5, currency: EUR, date: 2026-01-01, source: contract}
          - {patterns: ["Imaginary 9000"], price_per_hour: 1}
        carbon:
          DE: {grams_per_kwh: 12, year: 2030, source: our roof}
          basement: {grams_per_kwh: 0}
        """)
    assert (tables.price_of("NVIDIA H200").per_hour, tables.price_of("NVIDIA H200").currency) == (2.5, "EUR")
    assert tables.price_of("NVIDIA Imaginary 9000").per_hour == 1.0
    assert tables.price_of("NVIDIA L4").provider == "AWS"
    assert tables.carbon_of("DEU").grams_per_kwh == 12.0
    assert tables.carbon_of("Basement").grams_per_kwh == 0.0
    assert tables.carbon_of("FR").grams_per_kwh == 44.18


def test_prices_in_the_settings_come_before_a_users_file(table) -> None:
    tables = table("gpus: [{patterns: [H200], price_per_hour: 2.5}]", gpu_price_per_hour={"*H200*": 1.5})
    assert tables.price_of("NVIDIA H200").per_hour == 1.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "gpus:\n  - {patterns: [A], price_per_hour: cheap}",
            "mine.yaml:2: gpus[0].price_per_hour is 'cheap'",
        ),
        ("gpus:\n  - patterns: [A]", "mine.yaml:2: gpus[0].price_per_hour is missing"),
        ("gpus:\n  - {patterns: [A], price_per_hour: -1}", "must be a number, at least 0"),
        ("gpus:\n  - {patterns: [A], price_per_hour: .inf}", "must be a number, at least 0"),
        ("gpus:\n  - {patterns: A, price_per_hour: 1}", "gpus[0].patterns must be a list"),
        ("gpus: H100", "mine.yaml:1: gpus must be a list"),
        ("gpu_prices: []", "mine.yaml:1: gpu_prices is not a part of such a file"),
        ("carbon:\n  DE: 300", "mine.yaml:2: carbon.DE must be a section"),
        ("carbon:\n  DE: {grams_per_kwh: 300, year: last}", "carbon.DE.year is 'last'"),
        ("carbon:\n  DE: {grams_per_kwh: 300, also: DEU}", "carbon.DE.also must be a list"),
        (
            "carbon:\n  DE: {grams_per_kwh: 1}\n  DE: {grams_per_kwh: 2}",
            "mine.yaml:3: carbon.DE is given twice",
        ),
    ],
)
def test_errors_in_a_users_file_name_the_line(table, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        table(text)
    assert said in str(raised.value)


def test_a_missing_users_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere.yaml: there is no such file"):
        load_tables(Energy(prices_file=str(tmp_path / "nowhere.yaml")))
