"""Columns of numbers are packed small, and every bit comes back."""

import threading

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from stepscope.store.chunks import pack_floats, pack_ints, unpack_floats, unpack_ints
from tests.store.run_samples import bits

lengths = st.integers(0, 700)
any_ints = npst.arrays(np.int64, lengths, elements=st.integers(-(2**63), 2**63 - 1))
any_bits = npst.arrays(np.uint64, lengths, elements=st.integers(0, 2**64 - 1))
special = st.sampled_from(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -2.3e-308, 1.7e308, 2.0**53, 2.0**53 + 2, -(2.0**60)]
)
mixed = npst.arrays(np.float64, lengths, elements=special | st.floats(width=64))
whole = npst.arrays(np.float64, lengths, elements=st.integers(-(2**70), 2**70).map(float))
small_whole = npst.arrays(np.float64, lengths, elements=st.integers(-9, 10**6).map(float))
singles = npst.arrays(np.float64, lengths, elements=st.floats(width=32) | special)
constant = st.builds(np.full, lengths, st.floats() | special)

ordinary = settings(max_examples=100, deadline=None, database=None)
thorough = settings(max_examples=5000, deadline=None, database=None)


def assert_floats_survive(values):
    assert bits(unpack_floats(pack_floats(values), len(values))) == bits(values)


def assert_ints_survive(values):
    assert unpack_ints(pack_ints(values), len(values)).tolist() == values.tolist()


@ordinary
@given(any_bits.map(lambda patterns: patterns.view(np.float64)))
def test_any_bits_survive_as_floats(values):
    assert_floats_survive(values)


@pytest.mark.slow
@ordinary
@given(mixed | whole | small_whole | singles | constant)
def test_floats_of_every_shape_survive(values):
    assert_floats_survive(values)


@ordinary
@given(any_ints)
def test_any_whole_numbers_survive(values):
    assert_ints_survive(values)


@ordinary
@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), lengths)
def test_any_stride_survives_even_where_it_wraps_around(start, stride, count):
    wrapped = np.arange(count, dtype=np.uint64) * np.uint64(stride % 2**64)
    assert_ints_survive((wrapped + np.uint64(start % 2**64)).view(np.int64))


@pytest.mark.slow
@thorough
@given(mixed | whole | small_whole | singles | constant)
def test_floats_of_every_shape_survive_a_long_search(values):
    assert_floats_survive(values)


@pytest.mark.slow
@thorough
@given(any_ints)
def test_any_whole_numbers_survive_a_long_search(values):
    assert_ints_survive(values)


@pytest.mark.parametrize(
    ("values", "most_bytes"),
    [
        pytest.param(np.full(4096, np.nan), 9, id="constant"),
        pytest.param(np.full(4096, -0.0), 9, id="constant zero below zero"),
        pytest.param(np.arange(4096.0), 100, id="epochs and counters"),
        pytest.param(np.arange(4096.0) + 2.0**60, 4096, id="whole beyond 2**53"),
        pytest.param(
            np.random.default_rng(1).normal(2, 0.1, 4096).astype("f4").astype("f8"),
            3.5 * 4096,
            id="float32 noise",
        ),
        pytest.param(np.random.default_rng(1).normal(2, 0.1, 4096), 7.5 * 4096, id="float64 noise"),
        pytest.param(np.linspace(3e-4, 0, 4096), 6 * 4096, id="linear schedule"),
        pytest.param(
            3e-4 * 0.5 * (1 + np.cos(np.pi * np.arange(4096) / 1e5)), 6 * 4096, id="cosine schedule"
        ),
    ],
)
def test_what_training_logs_is_packed_small_and_exact(values, most_bytes):
    packed = pack_floats(values)
    assert bits(unpack_floats(packed, len(values))) == bits(values)
    assert len(packed) <= most_bytes


def test_steps_take_a_few_bytes_however_many_they_are():
    steps = np.arange(0, 4096 * 50, 50)
    assert len(pack_ints(steps)) == 17
    assert_ints_survive(steps)


def test_a_column_of_a_table_is_packed_like_any_other():
    table = np.random.default_rng(3).normal(size=(500, 3))
    assert bits(unpack_floats(pack_floats(table[:, 1]), 500)) == bits(table[:, 1])
    table_of_ints = np.random.default_rng(3).integers(-9, 9, size=(500, 3))
    assert unpack_ints(pack_ints(table_of_ints[:, 1]), 500).tolist() == table_of_ints[:, 1].tolist()


@pytest.mark.parametrize("count", [-1, 4095, 4097, 2**40])
def test_a_wrong_length_is_refused_before_memory_is_reserved(count):
    noise = np.random.default_rng(5).normal(size=4096)
    with pytest.raises(ValueError, match="numbers"):
        unpack_floats(pack_floats(noise), count)
    with pytest.raises(ValueError, match="numbers"):
        unpack_ints(pack_ints(noise.view(np.int64)), count)


@pytest.mark.parametrize("values", [np.arange(3.0), np.ones(3), np.array([0.1, 0.2, 0.3])])
def test_a_length_no_block_has_is_refused(values):
    for count in (-1, 2**40):
        with pytest.raises(ValueError, match="cannot hold"):
            unpack_floats(pack_floats(values), count)
        with pytest.raises(ValueError, match="cannot hold"):
            unpack_ints(pack_ints(np.arange(3)), count)


def test_a_flipped_bit_in_packed_numbers_is_noticed():
    values = np.random.default_rng(6).normal(size=1000)
    packed = pack_floats(values)
    for at in range(1, len(packed), 97):
        damaged = bytearray(packed)
        damaged[at] ^= 16
        try:
            unpacked = unpack_floats(bytes(damaged), 1000)
        except (ValueError, zstandard.ZstdError):
            continue
        assert bits(unpacked) == bits(values)


def test_threads_pack_and_unpack_at_the_same_time():
    wrong: list[int] = []

    def work(seed: int) -> None:
        values = np.random.default_rng(seed).normal(size=4096)
        for _ in range(150):
            if bits(unpack_floats(pack_floats(values), 4096)) != bits(values):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
