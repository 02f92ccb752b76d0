"""A reader of any store that follows it sees how far each series has come, and reads only what is new."""

import numpy as np
import pytest

from stepscope.schema.record import Event
from stepscope.schema.series import Selection
from tests.store.run_samples import BEGUN_NS, RUN, append, bits, points, process, seal, source, times


def since(store, after, key="loss", **labels):
    return store.points_since(Selection(RUN, key, **labels), after)


@pytest.mark.parametrize("after", [0, 1, 4096 - 1, 4096, 4096 + 1, 10_000, 10_001, 99_999])
def test_points_since_are_the_end_of_all_points_wherever_it_begins(store, after) -> None:
    values = np.linspace(-1, 1, 10_001)
    values[[0, 5000, 10_000]] = [np.nan, np.inf, -0.0]
    for begin in range(0, len(values), 700):
        some = values[begin : begin + 700]
        append(store, {"loss": some}, np.arange(begin, begin + len(some)), times(len(some), begin))
    every, newer = points(store), since(store, after)
    assert bits(newer.values) == bits(every.values[after:])
    assert newer.steps.tolist() == every.steps[after:].tolist()
    assert newer.times_ns.tolist() == every.times_ns[after:].tolist()


def test_points_that_were_logged_late_stay_where_they_were_logged(store) -> None:
    append(store, {"loss": [1.0, 2.0, 3.0]}, [0, 1, 2], BEGUN_NS + np.array([30, 10, 20]))
    assert since(store, 1).values.tolist() == points(store).values[1:].tolist() == [2.0, 3.0]


def test_a_key_of_several_key_sets_is_followed_in_order_of_time(store) -> None:
    append(store, {"loss": [1.0, 3.0], "a": [0.0, 0.0]}, [1, 3], times(2) * 1)
    append(store, {"loss": [2.0, 4.0], "b": [0.0, 0.0]}, [2, 4], times(2) + 500)
    for after in range(5):
        assert since(store, after).values.tolist() == points(store).values[after:].tolist()


def test_points_since_pass_over_whole_segments(store) -> None:
    with store.transaction():
        store.put_process(process(segment="b2", started_ns=BEGUN_NS + 10**12))
    append(store, {"loss": [1.0, 2.0]})
    append(store, {"loss": [3.0, 4.0, 5.0]}, of=source(segment="b2"), times_ns=times(3, 10**6))
    for after in range(6):
        assert since(store, after).values.tolist() == points(store).values[after:].tolist()
    assert since(store, 1, segment="b2").values.tolist() == [4.0, 5.0]


def test_a_series_without_points_and_one_that_is_not_there_have_nothing_new(store) -> None:
    assert len(since(store, 0)) == 0
    assert store.reach(Selection(RUN, "loss")) is None


def test_counters_say_how_far_each_series_has_come(store) -> None:
    append(store, {"loss": [1.0, 2.0], "accuracy": [0.1, 0.2]}, [7, 8])
    append(store, {"loss": [3.0]}, [9], times(1, 50), of=source(rank=1))
    progress = {
        (counter.key, counter.source.rank): (counter.points, counter.last_step)
        for counter in store.counters(RUN)
    }
    assert progress == {("loss", 0): (2, 8), ("accuracy", 0): (2, 8), ("loss", 1): (1, 9)}


def test_reach_is_exact_also_where_it_is_sealed(store) -> None:
    append(store, {"loss": np.zeros(4096 + 3)}, np.arange(17, 4096 + 20))
    seal(store)
    assert store.reach(Selection(RUN, "loss")) == (17, 4096 + 19)


def test_the_version_changes_when_somebody_else_has_written_and_only_then(kind, store, tmp_path) -> None:
    reader = kind.reader(tmp_path)
    before = reader.version()
    assert reader.version() == before
    append(store, {"loss": [1.0]})
    assert reader.version() != before
    reader.close()


def test_a_moment_holds_while_somebody_else_writes(kind, store, tmp_path) -> None:
    append(store, {"loss": [1.0]})
    reader = kind.reader(tmp_path)
    with reader.moment():
        assert len(reader.points(Selection(RUN, "loss"))) == 1
        append(store, {"loss": [2.0]}, [1], times(1, 5))
        assert [counter.points for counter in reader.counters(RUN)] == [1]
        assert len(reader.points_since(Selection(RUN, "loss"), 0)) == 1
    assert len(reader.points_since(Selection(RUN, "loss"), 0)) == 2
    reader.close()


def test_the_count_of_a_series_is_that_of_its_points(store) -> None:
    append(store, {"loss": [1.0, 2.0], "accuracy": [0.1, 0.2]})
    append(store, {"loss": [3.0]}, [9], times(1, 50), of=source(rank=1))
    assert store.count(Selection(RUN, "loss")) == 3
    assert store.count(Selection(RUN, "loss", rank=1)) == 1
    assert store.count(Selection(RUN, "unknown")) == 0


def test_events_are_followed_by_their_number(store) -> None:
    assert store.newest_event(RUN) == 0
    events = [Event("mark", BEGUN_NS + at, None, 0, "a1", {"at": at}) for at in range(3)]
    with store.transaction():
        for event in events:
            store.put_event(RUN, event)
    numbered = store.events_since(RUN, 0)
    assert [event for _, event in numbered] == events
    assert store.events_since(RUN, numbered[1][0]) == numbered[2:]
    assert store.newest_event(RUN) == numbered[-1][0]


def test_the_progress_of_journals_is_known_to_readers(store) -> None:
    with store.transaction():
        store.set_progress(7, 100, 0)
        store.set_progress(8, 200, 1)
    assert store.progress_of_all() == {7: 100, 8: 200}


def test_a_sound_store_is_verified_and_in_its_place(store) -> None:
    append(store, {"loss": [1.0]})
    store.verify()
    assert store.is_in_place()
    assert store.damaged_copies() == []
