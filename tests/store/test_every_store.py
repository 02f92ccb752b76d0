"""What every store must do: one suite for all of them."""

import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepscope.schema.record import Event
from stepscope.schema.series import Selection
from stepscope.store.base import Reader, Store
from tests.store.run_samples import (
    BEGUN_NS,
    NS,
    RUN,
    append,
    assert_buckets_match,
    bits,
    points,
    process,
    seal,
    source,
    times,
)

OTHER = "cifar-12345678"


class TestProcesses:
    def test_a_process_is_read_back_as_it_was_stored(self, store):
        stored = process(
            segment="b2",
            rank=3,
            host="knoten-ü",
            role="worker",
            status="failed",
            reason="ValueError: nan",
            exit_code=1,
            ended_ns=BEGUN_NS + 5,
            last_ns=BEGUN_NS + 4,
            dropped=7,
            lost=2,
            facts={"argv": ["train.py", "\ud800"], "torch": None, "mark": {"pid": 1}},
        )
        with store.transaction():
            store.put_process(stored)
        assert store.processes(RUN) == [process(), stored]

    def test_what_became_of_a_process_replaces_what_was_known_of_it(self, store):
        ended = process(status="finished", ended_ns=BEGUN_NS + 9, last_ns=BEGUN_NS + 8)
        with store.transaction():
            store.put_process(ended)
        assert store.processes(RUN) == [ended]

    def test_a_pid_that_comes_again_is_another_process(self, store):
        with store.transaction():
            store.put_process(process(started_ns=BEGUN_NS + NS))
        assert len(store.processes(RUN)) == 2

    def test_runs_come_oldest_first(self, store):
        with store.transaction():
            store.put_process(process(OTHER, started_ns=BEGUN_NS - 1))
        assert [run.id for run in store.runs()] == [OTHER, RUN]
        assert [(run.name, run.project) for run in store.runs()][1] == ("mnist", "demo")

    def test_a_resumed_run_has_a_segment_for_each_start(self, store):
        with store.transaction():
            store.put_process(process(status="crashed", reason="killed", ended_ns=BEGUN_NS + 1))
            store.put_process(process(segment="b2", started_ns=BEGUN_NS + NS))
        (run,) = store.runs()
        assert [(part.id, part.status) for part in run.segments] == [
            ("a1", "crashed"),
            ("b2", "running"),
        ]
        assert run.status == "running"

    def test_the_status_of_a_dead_rank_is_the_status_of_the_run(self, store):
        with store.transaction():
            store.put_process(process(rank=1, status="crashed", reason="out of memory"))
        (run,) = store.runs()
        assert (run.status, run.reason, run.ended_ns) == ("crashed", "rank 1: out of memory", None)

    def test_an_unknown_run_has_nothing(self, store):
        assert store.processes("nobody") == []
        assert store.keys("nobody") == []
        assert store.events("nobody") == []
        assert store.arrays("nobody", "x") == []
        assert store.alerts("nobody") == store.findings("nobody") == []
        assert len(points(store, run_id="nobody")) == 0
        assert len(store.buckets(Selection("nobody", "loss"), 10)) == 0


class TestPoints:
    def test_values_come_back_bit_for_bit(self, store):
        payload = np.array([0x7FF8_0000_DEAD_BEEF, 0xFFF0_0000_0000_0001], np.uint64)
        values = [0.1, -0.0, 0.0, np.inf, -np.inf, 5e-324, 1.7e308, 2.0**53 + 2, *payload.view("f8")]
        append(store, {"loss": values})
        loose = points(store)
        seal(store)
        assert bits(loose.values) == bits(points(store).values) == bits(values)

    def test_steps_and_times_come_back_exactly(self, store):
        steps = [0, 2**62, -(2**63), 2**63 - 1, 7]
        moments = BEGUN_NS + np.array([1, 3, 3, 10**15, 10**15 + 1])
        append(store, {"loss": [1, 2, 3, 4, 5]}, steps, moments)
        for _ in range(2):
            series = points(store)
            assert series.steps.tolist() == steps
            assert series.times_ns.tolist() == moments.tolist()
            assert series.times.tolist() == (moments / 1e9).tolist()
            seal(store)

    def test_steps_that_repeat_go_back_or_leave_gaps_are_all_kept_in_order(self, store):
        steps = [5, 5, 5, 1, 1000, 2, 2, -3]
        append(store, {"loss": range(8)}, steps)
        assert points(store).steps.tolist() == steps
        assert points(store).values.tolist() == list(range(8))

    def test_one_row_at_a_time_is_as_good_as_many(self, store):
        for step in range(300):
            append(store, {"loss": [step / 7]}, [step], times(1, after=step))
        assert points(store).values.tolist() == [step / 7 for step in range(300)]

    def test_each_column_is_the_series_of_its_key(self, store):
        append(store, {"loss": [1, 2], "accuracy": [3, 4], "": [5, 6]})
        assert points(store, "accuracy").values.tolist() == [3, 4]
        assert points(store, "").values.tolist() == [5, 6]

    def test_a_key_in_several_key_sets_is_one_series_in_the_order_logged(self, store):
        append(store, {"loss": [0, 2]}, [0, 2], times(1)[[0, 0]] + [0, 2])
        append(store, {"loss": [1, 3], "extra": [8, 9]}, [1, 3], times(1)[[0, 0]] + [1, 3])
        for _ in range(2):
            assert points(store).values.tolist() == [0, 1, 2, 3]
            assert points(store, "extra").values.tolist() == [8, 9]
            seal(store)

    def test_a_key_twice_in_one_row_keeps_both_values(self, store):
        with store.transaction():
            store.append(
                source(),
                ["1", "loss", "1"],
                np.arange(3),
                times(3),
                np.arange(9.0).reshape(3, 3),
            )
        for _ in range(2):
            assert sorted(points(store, "1").values.tolist()) == [0, 2, 3, 5, 6, 8]
            assert points(store, "loss").values.tolist() == [1, 4, 7]
            buckets = store.buckets(Selection(RUN, "1"), 1)
            assert (buckets.count[0], buckets.minimum[0], buckets.maximum[0]) == (6, 0, 8)
            seal(store)

    def test_the_order_of_keys_makes_no_other_series(self, store):
        append(store, {"a": [1], "b": [2]}, [0], times(1))
        append(store, {"b": [20], "a": [10]}, [1], times(1, after=1))
        assert points(store, "a").values.tolist() == [1, 10]
        assert points(store, "b").values.tolist() == [2, 20]

    def test_ranks_hosts_devices_and_segments_are_distinguished(self, store):
        places = [
            source(),
            source(rank=1),
            source(host="node2"),
            source(device="gpu0"),
            source(segment="b2"),
        ]
        for value, place in enumerate(places):
            append(store, {"loss": [value]}, of=place)
        values = [
            points(
                store, segment=place.segment, rank=place.rank, host=place.host, device=place.device
            ).values.tolist()
            for place in places
        ]
        assert values == [[0], [1], [2], [3], [4]]
        assert sorted(points(store).values.tolist()) == [0, 1, 2, 3, 4]

    def test_segments_follow_one_another_whatever_their_clocks_say(self, store):
        with store.transaction():
            store.put_process(process(segment="0z", started_ns=BEGUN_NS + NS))
        append(store, {"loss": [3, 4]}, [1, 2], times(2, after=-(10**6)), source(segment="0z"))
        append(store, {"loss": [1, 2]}, [0, 1])
        assert points(store).values.tolist() == [1, 2, 3, 4]

    def test_rows_without_keys_and_no_rows_at_all_change_nothing(self, store):
        with store.transaction():
            store.append(source(), [], np.arange(3), times(3), np.empty((3, 0)))
            store.append(source(), ["loss"], np.arange(0), times(0), np.empty((0, 1)))
        seal(store)
        assert store.keys(RUN) == []

    @pytest.mark.parametrize(
        "key", ["a/b/c", "../../x", "x'; DROP TABLE run; --", "ключ\u200f\u200b", "nul\0nul", "k" * 10_000]
    )
    def test_any_text_is_a_key(self, store, key):
        append(store, {key: [1.5]})
        seal(store)
        assert [known.key for known in store.keys(RUN)] == [key]
        assert points(store, key).values.tolist() == [1.5]


class TestKeys:
    def test_a_key_says_how_many_points_it_has_whose_and_the_newest_value(self, store):
        append(store, {"loss": [1, 2, 3]}, of=source(rank=10))
        append(store, {"loss": [4, 5]}, times_ns=times(2, after=50), of=source(rank=2))
        (loss,) = store.keys(RUN)
        assert (loss.points, loss.ranks, loss.last) == (5, (2, 10), 5)

    def test_a_newest_value_that_is_not_a_number_is_none(self, store):
        append(store, {"loss": [1, np.nan], "other": [1, np.inf]})
        assert [known.last for known in store.keys(RUN)] == [None, np.inf]

    def test_pages_put_together_are_all_keys_in_alphabetical_order(self, store):
        names = ["", "Z", "a", "a/b", "é", "ключ", "😀"]
        append(store, {name: [1] for name in reversed(names)})
        keys: list[str] = []
        while page := store.keys(RUN, limit=2, after=keys[-1] if keys else None):
            assert len(page) <= 2
            keys += [known.key for known in page]
        assert keys == names == [known.key for known in store.keys(RUN)]

    def test_a_limit_of_nothing_gives_nothing(self, store):
        append(store, {"loss": [1]})
        assert store.keys(RUN, limit=0) == []


class TestBuckets:
    def test_nothing_in_range_gives_no_buckets(self, store):
        append(store, {"loss": [1, 2]}, [10, 20])
        for low, high in [(30, 40), (0, 5), (15, 12)]:
            assert len(store.buckets(Selection(RUN, "loss"), 10, low, high)) == 0

    def test_a_gap_has_the_width_of_its_zoom_and_no_buckets(self, store):
        append(store, {"loss": [1, 2]}, [0, 10_000])
        for _ in range(2):
            buckets = store.buckets(Selection(RUN, "loss"), 1, 4097, 8000)
            assert (len(buckets), buckets.width) == (0, 4096)
            seal(store)

    def test_one_bucket_holds_everything_logged_from_zero_on(self, store):
        append(store, {"loss": [3, 1, np.nan, 2]}, [0, 5, 6, 700])
        buckets = store.buckets(Selection(RUN, "loss"), 1)
        assert (len(buckets), buckets.width, buckets.count[0], buckets.nonfinite[0]) == (1, 1024, 4, 1)
        assert (buckets.minimum[0], buckets.maximum[0], buckets.mean[0], buckets.last[0]) == (1, 3, 2, 2)
        assert buckets.times[0] == times(4)[-1] / 1e9

    @pytest.mark.parametrize("most", [0, 1, 2])
    def test_steps_on_both_sides_of_zero_take_two_buckets_at_least(self, store, most):
        append(store, {"loss": [1, 2, 3]}, [-(2**63), -1, 2**63 - 1])
        buckets = store.buckets(Selection(RUN, "loss"), most)
        assert (buckets.starts.tolist(), buckets.count.tolist()) == ([-(2**63), 0], [2, 1])

    def test_a_bucket_without_a_finite_value_has_no_extremes(self, store):
        append(store, {"loss": [np.nan, np.inf, -np.inf]})
        for _ in range(2):
            buckets = store.buckets(Selection(RUN, "loss"), 1)
            assert (buckets.count[0], buckets.nonfinite[0]) == (3, 3)
            assert np.isnan([buckets.minimum[0], buckets.maximum[0], buckets.mean[0]]).all()
            seal(store)

    def test_a_sum_beyond_float64_is_infinite_and_hides_no_extreme(self, store):
        append(store, {"loss": [1.7e308, 1.6e308, 1.5e308]})
        for _ in range(2):
            buckets = store.buckets(Selection(RUN, "loss"), 1)
            assert (buckets.minimum[0], buckets.maximum[0], buckets.mean[0]) == (1.5e308, 1.7e308, np.inf)
            seal(store)

    def test_ranks_are_joined_unless_one_is_asked_for(self, store):
        for rank in range(3):
            append(store, {"loss": [rank, rank]}, [0, 1], of=source(rank=rank))
        assert store.buckets(Selection(RUN, "loss"), 1).count[0] == 6
        assert store.buckets(Selection(RUN, "loss", rank=2), 1).minimum[0] == 2

    def test_what_a_sampler_reads_is_bucketed_by_seconds(self, store):
        read_ns = BEGUN_NS + np.arange(100, dtype=np.int64) * (NS // 4)
        values = np.arange(100.0)
        append(store, {"watts": values}, [0] * 100, read_ns, source(device="gpu0", axis="seconds"))
        for _ in range(2):
            buckets = store.buckets(Selection(RUN, "watts"), 1000)
            assert buckets.width == 1
            assert buckets.starts.tolist() == list(range(BEGUN_NS // NS, BEGUN_NS // NS + 25))
            assert set(buckets.count.tolist()) == {4}
            begin = BEGUN_NS // NS + 3
            part = store.buckets(Selection(RUN, "watts"), 4, begin, begin + 9)
            assert_buckets_match(part, read_ns // NS, values, 4, begin, begin + 9)
            seal(store)

    def test_one_name_on_both_axes_keeps_every_point(self, store):
        for at in range(3):
            for axis in ("step", "seconds"):
                append(store, {"load": [at]}, [at], times(1, after=at), source(axis=axis))
        seal(store)
        assert points(store, "load").values.tolist() == [0, 0, 1, 1, 2, 2]


class TestEvents:
    def test_events_come_oldest_first_and_can_be_asked_for_by_kind(self, store):
        later = Event("epoch", BEGUN_NS + 2, 10, 0, "a1", {"number": 1, "note": "\ud83d ü"})
        earlier = Event("checkpoint", BEGUN_NS + 1, None, 1, "a1", {"path": ["x", None, 1.5]})
        with store.transaction():
            store.put_event(RUN, later)
            store.put_event(RUN, earlier)
        assert store.events(RUN) == [earlier, later]
        assert store.events(RUN, "epoch") == [later]
        assert store.events(RUN, "none") == []

    def test_events_of_the_same_time_stay_in_the_order_stored(self, store):
        events = [Event("mark", BEGUN_NS, None, 0, "a1", {"at": at}) for at in range(5)]
        with store.transaction():
            for event in events:
                store.put_event(RUN, event)
        assert store.events(RUN) == events


class TestArrays:
    @pytest.mark.parametrize("dtype", ["<f8", "<f4", "<i8", "|u1", "|b1"])
    def test_an_array_comes_back_with_type_and_shape(self, store, dtype):
        array = np.arange(12).astype(dtype).reshape(3, 4)
        fields = {"key": "grads", "step": 7, "time": BEGUN_NS, "dtype": dtype, "shape": [3, 4]}
        with store.transaction():
            store.put_array(RUN, "a1", 0, fields, array.tobytes())
            store.put_array(RUN, "a1", 0, {**fields, "step": None}, array.tobytes())
        (first, found), (second, _) = store.arrays(RUN, "grads")
        assert (first, second) == (7, None)
        assert (found.dtype, found.tolist()) == (array.dtype, array.tolist())
        assert store.arrays(RUN, "other") == []

    def test_all_arrays_of_a_run_come_back_with_their_sources_in_the_order_stored(self, store):
        fields = {"key": "grads", "step": 7, "time": BEGUN_NS, "dtype": "<f8", "shape": [2]}
        raw = np.array([1.0, 2.0]).tobytes()
        with store.transaction():
            store.put_array(RUN, "a1", 1, fields, raw)
            store.put_array(RUN, "b2", 0, {**fields, "key": "weights", "step": None}, raw)
        first, second = store.stored_arrays(RUN)
        assert (first.segment, first.rank, first.key, first.step, first.time_ns) == (
            "a1",
            1,
            "grads",
            7,
            BEGUN_NS,
        )
        assert (second.segment, second.rank, second.key, second.step) == ("b2", 0, "weights", None)
        assert first.values.tolist() == [1.0, 2.0]
        assert list(store.stored_arrays("nobody")) == []


class TestTransactions:
    def test_progress_is_kept_with_the_rows_it_stands_for(self, store, reopen):
        with store.transaction():
            store.append(source(), ["loss"], np.arange(3), times(3), np.ones((3, 1)))
            store.set_progress(2**63 - 1, 640, 2)
        again = reopen()
        assert again.progress(2**63 - 1) == (640, 2)
        assert again.progress(5) == (0, 0)
        with again.transaction():
            again.set_progress(2**63 - 1, 700, 3)
        assert again.progress(2**63 - 1) == (700, 3)

    def test_forgotten_progress_is_gone(self, store):
        with store.transaction():
            store.set_progress(1, 10, 0)
            store.set_progress(2, 20, 0)
            store.forget_progress([1, 99])
        assert (store.progress(1), store.progress(2)) == ((0, 0), (20, 0))

    @pytest.mark.parametrize("rows", [3, 5000])
    def test_a_transaction_that_raises_keeps_nothing(self, store, rows):
        append(store, {"loss": [1, 2]}, [0, 1])
        with pytest.raises(RuntimeError), store.transaction():  # noqa: PT012 - all of it is undone
            store.put_process(process(OTHER))
            store.put_event(RUN, Event("mark", BEGUN_NS, None, 0, "a1", {}))
            store.append(source(), ["loss"], np.arange(rows), times(rows, after=2), np.ones((rows, 1)))
            store.append(source(), ["new"], np.arange(2), times(2), np.ones((2, 1)))
            store.set_progress(1, 99, 0)
            raise RuntimeError
        assert [run.id for run in store.runs()] == [RUN]
        assert store.events(RUN) == []
        assert [(known.key, known.points) for known in store.keys(RUN)] == [("loss", 2)]
        assert points(store).values.tolist() == [1, 2]
        assert store.progress(1) == (0, 0)

    def test_writes_can_be_read_within_the_same_transaction(self, store):
        with store.transaction():
            store.append(source(), ["loss"], np.arange(2), times(2), np.ones((2, 1)))
            store.set_progress(1, 99, 0)
            assert points(store).values.tolist() == [1, 1]
            assert store.progress(1) == (99, 0)

    def test_writes_after_a_failed_transaction_follow_the_committed_ones(self, store):
        append(store, {"loss": [1, 2]}, [0, 1])
        with pytest.raises(RuntimeError), store.transaction():  # noqa: PT012 - all of it is undone
            store.append(source(), ["loss"], np.arange(9), times(9), np.zeros((9, 1)))
            raise RuntimeError
        append(store, {"loss": [3, 4]}, [2, 3], times(2, after=2))
        seal(store)
        assert points(store).values.tolist() == [1, 2, 3, 4]
        assert store.buckets(Selection(RUN, "loss"), 4).count.tolist() == [1, 1, 1, 1]


class TestReopening:
    def test_a_reopened_store_continues_where_it_was(self, store, reopen):
        append(store, {"loss": np.arange(5000.0)}, range(5000))
        again = reopen()
        append(again, {"loss": np.arange(5000.0, 9000)}, range(5000, 9000), times(4000, after=5000))
        third = reopen()
        assert points(third).values.tolist() == list(range(9000))
        buckets = third.buckets(Selection(RUN, "loss"), 100)
        assert_buckets_match(buckets, np.arange(9000), np.arange(9000.0), 100, 0, 8999)

    def test_a_process_that_ended_before_the_store_was_reopened_is_packed_as_well(self, store, reopen):
        values = np.ones(4000)
        for at in range(4):
            append(store, {f"metric{at}": values}, of=source(device=f"gpu{at}"))
        loose_bytes = store.bytes_used()
        again = reopen()
        for at in range(4):
            seal(again, source(device=f"gpu{at}"))
        assert again.bytes_used() < loose_bytes / 2
        assert points(again, "metric3").values.tolist() == values.tolist()

    def test_rows_may_come_after_a_process_was_packed(self, store):
        for at in range(3):
            append(store, {"loss": [at]}, [at], times(1, after=at))
            seal(store)
        assert points(store).values.tolist() == [0, 1, 2]

    def test_packing_one_process_leaves_the_others_loose_rows_whole(self, store):
        append(store, {"loss": [1]})
        append(store, {"loss": [2]}, of=source(rank=1))
        seal(store)
        append(store, {"loss": [3]}, of=source(rank=1), times_ns=times(1, after=1))
        assert points(store, rank=1).values.tolist() == [2, 3]

    def test_what_was_committed_survives_the_death_of_the_writer(self, kind, tmp_path, start):
        writer = start(
            """
            import sys
            from pathlib import Path
            from tests.store import kinds, test_every_store as suite
            store = getattr(kinds, sys.argv[1]).store(Path(sys.argv[2]))
            with store.transaction():
                store.put_process(suite.process())
            suite.append(store, {"loss": [1.0, 2.0, 3.0]})
            with store.transaction():
                rows = suite.np.arange(2)
                store.append(suite.source(), ["loss"], rows, suite.times(2), suite.np.ones((2, 1)))
                print("told", flush=True)
                sys.stdin.read()
            """,
            kind.__name__,
            tmp_path,
            environment={"PYTHONPATH": str(Path(__file__).parents[2])},
            stdin=-1,
        )
        assert writer.stdout.readline() == "told\n"
        writer.kill()
        writer.wait()
        reader = kind.reader(tmp_path)
        assert points(reader).values.tolist() == [1, 2, 3]
        reader.close()


class TestReadingWhileWriting:
    def test_a_reader_sees_all_of_a_transaction_or_nothing(self, kind, store, tmp_path):
        reader = kind.reader(tmp_path)
        rounds = 60
        failed: list[BaseException] = []

        def write() -> None:
            try:
                for at in range(rounds):
                    begin = at * 200
                    with store.transaction():
                        for offset, keys in ((0, ["loss"]), (1, ["loss", "extra"])):
                            steps = np.arange(begin + offset, begin + 200, 2)
                            values = np.repeat(steps[:, None].astype(float), len(keys), axis=1)
                            store.append(source(), keys, steps, BEGUN_NS + steps, values)
            except BaseException as error:
                failed.append(error)
                raise

        writer = threading.Thread(target=write)
        writer.start()
        sizes = {0}
        while len(series := points(reader)) < rounds * 200 and not failed:
            sizes.add(len(series))
            assert series.values.tolist() == list(range(len(series)))
            if len(series):
                assert store_count(reader) % 200 == 0
        writer.join()
        reader.close()
        assert not failed
        assert all(size % 200 == 0 for size in sizes)

    def test_a_reader_opened_early_sees_what_came_later(self, kind, store, tmp_path):
        reader = kind.reader(tmp_path)
        append(store, {"loss": [1]})
        assert points(reader).values.tolist() == [1]
        append(store, {"loss": np.arange(5000.0)}, times_ns=times(5000, after=1))
        assert len(points(reader)) == 5001
        store.delete_run(RUN)
        assert len(points(reader)) == 0
        reader.close()

    def test_another_process_reads_what_this_one_writes(self, kind, store, tmp_path, run_script):
        append(store, {"loss": [1.5, 2.5]})
        printed = run_script(
            """
            import sys
            from pathlib import Path
            from tests.store import kinds, test_every_store as suite
            reader = getattr(kinds, sys.argv[1]).reader(Path(sys.argv[2]))
            print(suite.points(reader).values.tolist())
            """,
            kind.__name__,
            tmp_path,
            environment={"PYTHONPATH": str(Path(__file__).parents[2])},
        )
        assert (printed.stdout, printed.stderr) == ("[1.5, 2.5]\n", "")

    def test_readers_in_several_threads_do_not_disturb_each_other(self, kind, store, tmp_path):
        values = np.random.default_rng(7).standard_normal((30_000, 2))
        append(store, {"a": values[:, 0], "b": values[:, 1]})
        seal(store)
        wrong: list[str] = []

        def read(key: str, column: int) -> None:
            reader = kind.reader(tmp_path)
            for _ in range(10):
                if not np.array_equal(points(reader, key).values, values[:, column]):
                    wrong.append(key)
            reader.close()

        threads = [threading.Thread(target=read, args=arguments) for arguments in [("a", 0), ("b", 1)] * 2]
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(before)
        assert wrong == []


class TestDeleting:
    def fill(self, store: Store, run_id: str) -> None:
        fields = {"key": "grads", "step": 1, "time": BEGUN_NS, "dtype": "<f8", "shape": [2]}
        with store.transaction():
            store.put_process(process(run_id))
            store.put_event(run_id, Event("mark", BEGUN_NS, None, 0, "a1", {}))
            store.put_array(run_id, "a1", 0, fields, np.ones(2).tobytes())
        append(store, {"loss": np.arange(5000.0)}, of=source(run_id))

    def contents(self, reader: Reader, run_id: str) -> tuple[object, ...]:
        return (
            reader.processes(run_id),
            [run.id for run in reader.runs() if run.id == run_id],
            reader.keys(run_id),
            reader.events(run_id),
            [array.tolist() for _, array in reader.arrays(run_id, "grads")],
            points(reader, run_id=run_id).values.tolist(),
            reader.buckets(Selection(run_id, "loss"), 10).count.tolist(),
        )

    def test_a_deleted_run_is_gone_and_another_is_untouched(self, store, reopen):
        self.fill(store, RUN)
        self.fill(store, OTHER)
        before = self.contents(store, OTHER)
        store.delete_run(RUN)
        for open_it in (lambda: store, reopen):
            one = open_it()
            assert all(not part for part in self.contents(one, RUN))
            assert self.contents(one, OTHER) == before

    def test_deleting_gives_its_space_back(self, store):
        self.fill(store, OTHER)
        before = store.bytes_used()
        noise = np.random.default_rng(1).standard_normal(200_000)
        append(store, {"loss": noise})
        store.delete_run(RUN)
        assert store.bytes_used() <= before

    def test_a_run_may_be_recorded_again_after_it_was_deleted(self, store):
        append(store, {"loss": [1, 2, 3]})
        append(store, {"loss": [9]}, of=source(rank=1))
        store.delete_run(RUN)
        with store.transaction():
            store.put_process(process(OTHER))
        append(store, {"loss": [7]}, of=source(OTHER))
        with store.transaction():
            store.put_process(process())
        append(store, {"loss": [4, 5]})
        assert points(store).values.tolist() == [4, 5]
        assert points(store, run_id=OTHER).values.tolist() == [7]

    def test_deleting_a_run_leaves_the_loose_rows_of_a_live_one_whole(self, store):
        with store.transaction():
            store.put_process(process(OTHER))
        append(store, {"loss": [1]}, of=source(OTHER))
        store.delete_run(RUN)
        append(store, {"loss": [2]}, of=source(OTHER), times_ns=times(1, after=1))
        assert points(store, run_id=OTHER).values.tolist() == [1, 2]

    def test_deleting_an_unknown_run_is_not_an_error(self, store):
        store.delete_run("nobody")
        assert [run.id for run in store.runs()] == [RUN]


def store_count(reader: Reader) -> int:
    return int(reader.buckets(Selection(RUN, "loss"), 8).count.sum())


def test_what_a_store_takes_grows_with_what_it_holds(store):
    before = store.bytes_used()
    append(store, {"loss": np.random.default_rng(2).standard_normal(50_000)})
    assert store.bytes_used() > before


def test_a_status_may_change_without_new_rows(store, reopen):
    stalled = replace(process(), status="stalled", reason="no record since 2026-11-16 18:41:26 UTC")
    with store.transaction():
        store.put_process(stalled)
    assert reopen().processes(RUN) == [stalled]
