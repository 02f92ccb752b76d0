"""Attention is measured where it is given, worked out where it is not, and known answers come out."""

from __future__ import annotations

import logging
import math
import sys

import pytest

from stepscope.model_stats.attention import Attention
from stepscope.model_stats.attention_weights import AttentionCall, head_figures
from stepscope.model_stats.sampled_hooks import WARM_UP
from tests.model_stats.recording_sink import RecordedMetrics, always, end_step

torch = pytest.importorskip("torch")
nn = torch.nn
functional = torch.nn.functional


def figures(weights) -> tuple[float, float, float]:
    entropy, top, keys = head_figures(torch, weights)[0].tolist()
    return entropy, top, keys


@pytest.fixture(autouse=True)
def _nothing_was_compiled() -> None:
    """Other tests of this process may have compiled something; with that, functions are left alone."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is not None:
        utils.counters.clear()


def test_even_attention_has_the_entropy_of_its_keys() -> None:
    for count in (2, 16, 100):
        values = figures(torch.full((1, 1, 3, count), 1 / count))
        assert values == pytest.approx((math.log(count), 1 / count, count), rel=1e-5)


def test_attention_on_one_key_has_none() -> None:
    weights = torch.zeros(2, 1, 3, 8)
    weights[..., 5] = 1
    assert figures(weights) == (0, 1, 1)


def test_heads_are_distinguished() -> None:
    weights = torch.full((1, 2, 4, 4), 0.25)
    weights[:, 1] = torch.eye(4)
    assert head_figures(torch, weights)[:, 2].tolist() == pytest.approx([4, 1])


def test_weights_after_dropout_are_scaled_to_whole_ones() -> None:
    weights = torch.tensor([0.5, 0.5, 0.0, 0.0]).reshape(1, 1, 1, 4)
    assert figures(weights) == pytest.approx((math.log(2), 0.5, 2))
    assert figures(weights * 2) == pytest.approx((math.log(2), 0.5, 2))


def test_a_query_that_may_attend_to_nothing_is_left_out() -> None:
    weights = torch.full((1, 1, 2, 4), 0.25)
    weights[0, 0, 1] = 0
    assert figures(weights) == pytest.approx((math.log(4), 0.25, 4))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("separate", [False, True])
def test_a_multihead_attention_is_worked_out_as_it_would_give_it(batch_first: bool, separate: bool) -> None:
    torch.manual_seed(0)
    sizes = {"kdim": 6, "vdim": 5} if separate else {}
    layer = nn.MultiheadAttention(8, 2, batch_first=batch_first, dropout=0.0, **sizes)
    shape = (3, 7) if batch_first else (7, 3)
    widths = (8, sizes.get("kdim", 8), sizes.get("vdim", 8))
    query, key, value = (torch.randn(*shape, width) for width in widths)
    passed = {"need_weights": False}
    passed["key_padding_mask"] = torch.zeros(3, 7, dtype=torch.bool)
    passed["key_padding_mask"][:, 5:] = True
    mask = torch.ones(7, 7, dtype=torch.bool).triu(1)
    heads = Attention(layer).heads(lambda: layer(query, key, value, attn_mask=mask, **passed))
    _, weights = layer(
        query, key, value, attn_mask=mask, average_attn_weights=False, **{**passed, "need_weights": True}
    )
    (rows,) = heads.values()
    expected = head_figures(torch, weights).tolist()
    assert [value for row in rows for value in row] == pytest.approx(
        [value for row in expected for value in row]
    )


def test_a_mask_for_each_head_and_a_single_sequence_are_followed() -> None:
    layer = nn.MultiheadAttention(4, 2, batch_first=True)
    x = torch.randn(3, 5, 4)
    mask = torch.zeros(6, 5, 5)
    mask[::2, :, 1:] = -math.inf  # the first head of each sequence sees its first key alone
    (rows,) = Attention(layer).heads(lambda: layer(x, x, x, attn_mask=mask)).values()
    assert rows[0] == pytest.approx([0, 1, 1])
    assert rows[1][2] > 2
    assert (
        Attention(layer).measure(lambda: layer(x[0], x[0], x[0]))["attention_entropy/MultiheadAttention"] > 0
    )


def test_a_transformer_is_measured_layer_by_layer() -> None:
    taken = RecordedMetrics()
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(block, 2)
    watch = Attention(model, outlets=taken.sink, _draw=always)
    for step in range(WARM_UP + 1):
        model(torch.randn(2, 6, 8)).sum().backward()
        end_step(watch, step)
    (row,) = taken.rows
    assert set(row) == {
        f"attention_{figure}/layers.{layer}.self_attn"
        for figure in ("entropy", "top_ratio", "effective_keys")
        for layer in (0, 1)
    }
    assert all(1 <= row[f"attention_effective_keys/layers.{layer}.self_attn"] <= 6 for layer in (0, 1))
    assert [(key, len(rows), len(rows[0])) for key, rows in taken.arrays] == [
        (f"attention_heads/layers.{layer}.self_attn", 2, 3) for layer in (0, 1)
    ]


class EagerAttention(nn.Module):
    """Gives its weights beside its output, as models of Hugging Face do."""

    def forward(self, x):
        weights = (x @ x.transpose(-2, -1)).softmax(-1)
        return weights @ x, (x, x), weights.unsqueeze(1)


class FusedAttention(nn.Module):
    def __init__(self, **options) -> None:
        super().__init__()
        self.options = options

    def forward(self, query, key):
        return functional.scaled_dot_product_attention(query, key, key, **self.options)


def test_weights_that_a_layer_gives_are_taken() -> None:
    model = nn.Sequential(EagerAttention())
    figures = Attention(model).measure(lambda: model[0](torch.zeros(2, 9, 4)))
    assert figures["attention_effective_keys/0"] == pytest.approx(9)


def test_a_fused_layer_gives_none() -> None:
    layer = FusedAttention()
    x = torch.zeros(2, 3, 9, 4)
    assert Attention(layer).measure(lambda: layer(x, x)) == {}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 3.0},
        {"attn_mask": torch.ones(9, 9).tril().bool()},
        {"enable_gqa": True},
    ],
    ids=lambda one: next(iter(one), "plain"),
)
def test_a_fused_layer_is_worked_out_if_asked(options) -> None:
    torch.manual_seed(0)
    layer = FusedAttention(**options)
    query = torch.randn(2, 4, 9, 8)
    key = torch.randn(2, 2 if "enable_gqa" in options else 4, 9, 8)
    calls = []

    def weights_by_identity() -> None:
        layer(query, key)
        # The output for values that are unit vectors is the weights themselves.
        values = torch.eye(9).expand(2, key.shape[1], 9, 9)
        calls.append(functional.scaled_dot_product_attention(query, key, values, **options))

    (rows, *_) = Attention(layer, recompute=True).heads(weights_by_identity).values()
    expected = head_figures(torch, calls[0]).tolist()
    assert [value for row in rows for value in row] == pytest.approx(
        [value for row in expected for value in row], rel=1e-4
    )


def test_a_fused_call_outside_of_any_attention_layer_is_numbered() -> None:
    x = torch.zeros(1, 2, 5, 4)
    model = nn.Linear(1, 1)
    watch = Attention(model, recompute=True)
    figures = watch.measure(lambda: [functional.scaled_dot_product_attention(x, x, x) for _ in range(2)])
    assert figures["attention_effective_keys/call_0"] == pytest.approx(5)
    assert "attention_effective_keys/call_1" in figures


def test_functions_are_put_back_after_a_burst() -> None:
    original = functional.scaled_dot_product_attention
    model = nn.Linear(1, 1)
    watch = Attention(model, recompute=True, outlets=RecordedMetrics().sink, _draw=always)
    for step in range(WARM_UP):
        assert functional.scaled_dot_product_attention is original
        end_step(watch, step)
    assert functional.scaled_dot_product_attention is not original
    watch.close()
    assert functional.scaled_dot_product_attention is original


def test_a_failure_of_ours_never_reaches_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    class OddAttention(nn.Module):
        def forward(self, x):
            return x, torch.ones(1, 1, 1, 1).as_subclass(Sly)

    class Sly(torch.Tensor):
        def detach(self):
            raise ValueError("no")

    layer = OddAttention()
    watch = Attention(layer, outlets=RecordedMetrics().sink, _draw=always)
    with caplog.at_level(logging.WARNING, logger="stepscope"):
        for step in range(WARM_UP + 4):
            layer(torch.ones(1))
            end_step(watch, step)
    said = [record.message for record in caplog.records if record.name == "stepscope"]
    assert said == ["Watching attention is switched off: ValueError('no')"]
    assert not layer._forward_hooks


def test_many_long_sequences_are_thinned() -> None:
    x = torch.randn(64, 2, 1000, 4)
    assert AttentionCall(x, x, is_causal=True).weights(torch).shape == (4, 2, 63, 1000)


def test_chances_of_the_training_stay_its_own() -> None:
    layer = nn.MultiheadAttention(4, 2, dropout=0.5)
    x = torch.randn(5, 3, 4)
    torch.manual_seed(0)
    plain = layer(x, x, x)[0]
    torch.manual_seed(0)
    measured = []
    Attention(layer).measure(lambda: measured.append(layer(x, x, x)[0]))
    assert torch.equal(plain, measured[0])


def test_head_figures_need_no_attention_layer() -> None:
    assert Attention(nn.Linear(2, 2)).measure(lambda: None) == {}
