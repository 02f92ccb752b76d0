"""Whatever is given either loads or raises ConfigError."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.config.document_keys import TODAY
from stepscope.config.load import load
from stepscope.config.reference import dotted, leaves
from stepscope.config.sections import from_dict, to_dict
from stepscope.errors import ConfigError

NAMES = sorted({part for key in [*TODAY, *map(dotted, leaves())] for part in key.split(".")})

names = st.sampled_from(NAMES) | st.text(max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**400)
    | st.floats()
    | st.text(st.characters(), max_size=12)
    | st.sampled_from(["auto", "process", "html", "info", "https://a:b@c/d", b"bytes", 1j, object()])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(names | st.integers() | st.none(), inner, max_size=4)
    ),
    max_leaves=12,
)
mappings = st.dictionaries(names | st.integers(), values, max_size=6)
fast = settings(max_examples=150, deadline=None, database=None)


def assert_travels(loaded):
    sent = json.dumps(to_dict(loaded.settings), allow_nan=True)
    assert json.dumps(to_dict(from_dict(json.loads(sent)))) == sent


@pytest.mark.slow
@fast
@given(mappings)
def test_any_mapping_loads_or_is_refused(tmp_path_factory, source):
    with contextlib.suppress(ConfigError):
        assert_travels(load(source, environment={}, directory=tmp_path_factory.getbasetemp()))


@fast
@given(st.text(max_size=60) | st.text(alphabet="ab:-[]{}\n '\"&*!|>#%,?01.", max_size=60))
def test_any_file_loads_or_is_refused(tmp_path_factory, text):
    folder = tmp_path_factory.getbasetemp()
    (folder / "any.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(ConfigError):
        assert_travels(load("any.yaml", environment={}, directory=folder))


@fast
@given(
    st.dictionaries(
        st.lists(names, min_size=1, max_size=5).map(lambda path: "STEPSCOPE_" + "__".join(path).upper()),
        st.text(max_size=20),
        max_size=4,
    )
)
def test_any_environment_loads_or_is_refused(tmp_path_factory, environment):
    environment.pop("STEPSCOPE_CONFIG", None)
    with contextlib.suppress(ConfigError):
        assert_travels(load(environment=environment, directory=tmp_path_factory.getbasetemp()))


@fast
@given(st.text(max_size=20))
def test_any_file_name_loads_or_is_refused(tmp_path_factory, name):
    with contextlib.suppress(ConfigError):
        assert_travels(load(name, environment={}, directory=tmp_path_factory.getbasetemp()))
