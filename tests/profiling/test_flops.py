"""Floating-point operations agree with formulas worked out by hand, forward and backward."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from stepscope.profiling.model.flops import Flops
from stepscope.profiling.model.model import ModelProfiler

# Sequences of LENGTH places of WIDTH numbers; a feed-forward layer of HIDDEN.
LENGTH, WIDTH, HIDDEN, HEADS = 5, 16, 32, 4
SEQUENCE = torch.zeros(1, LENGTH, WIDTH)
PROJECTIONS = 2 * LENGTH * 4 * WIDTH * WIDTH
ATTENTION = 2 * 2 * LENGTH * LENGTH * WIDTH
FEED_FORWARD = 2 * LENGTH * 2 * WIDTH * HIDDEN
LAYER = PROJECTIONS + ATTENTION + FEED_FORWARD


def flops_of(model: nn.Module, example: object, *, backward: bool = False) -> Flops:
    return ModelProfiler(model, example).flops(backward=backward)


class Calls(nn.Module):
    """A function of its input, with the modules it needs."""

    def __init__(self, function, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.function = function

    def forward(self, x):
        return self.function(x, *self.parts)


def product(function, *shape: int) -> tuple[nn.Module, torch.Tensor]:
    return Calls(function), torch.ones(1, *shape)


def attend(x, *, causal: bool = False):
    split = x.view(1, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2)
    return nn.functional.scaled_dot_product_attention(split, split, split, is_causal=causal)


def encoder(**options: object) -> nn.Module:
    return nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, **options)


FORWARD = {
    "Linear": (nn.Linear(8, 3), torch.ones(1, 8), 2 * 8 * 3),
    "Linear without bias on a sequence": (nn.Linear(8, 3, bias=False), torch.ones(1, 7, 8), 7 * 2 * 8 * 3),
    "Conv1d": (nn.Conv1d(4, 6, 3), torch.ones(1, 4, 10), 2 * 8 * 6 * 4 * 3),
    "Conv2d in groups": (nn.Conv2d(4, 6, 3, groups=2), torch.ones(1, 4, 8, 8), 2 * 36 * 6 * 2 * 9),
    "Conv2d with stride": (nn.Conv2d(4, 6, 3, stride=2), torch.ones(1, 4, 9, 9), 2 * 16 * 6 * 4 * 9),
    "depthwise Conv2d": (nn.Conv2d(4, 4, 3, groups=4), torch.ones(1, 4, 8, 8), 2 * 36 * 4 * 9),
    "Conv3d": (nn.Conv3d(2, 3, 2, groups=1), torch.ones(1, 2, 4, 4, 4), 2 * 27 * 3 * 2 * 8),
    "ConvTranspose1d": (nn.ConvTranspose1d(4, 6, 3, stride=2), torch.ones(1, 4, 5), 2 * 5 * 4 * 6 * 3),
    "ConvTranspose2d in groups": (
        nn.ConvTranspose2d(4, 6, 3, groups=2),
        torch.ones(1, 4, 5, 5),
        2 * 25 * 4 * 3 * 9,
    ),
    "LSTM": (nn.LSTM(WIDTH, 8, batch_first=True), SEQUENCE, 2 * LENGTH * 4 * 8 * (WIDTH + 8)),
    "LSTM of two layers in both directions": (
        nn.LSTM(WIDTH, 8, 2, batch_first=True, bidirectional=True),
        SEQUENCE,
        2 * 2 * LENGTH * 4 * 8 * ((WIDTH + 8) + (2 * 8 + 8)),
    ),
    "LSTM with a projection": (
        nn.LSTM(WIDTH, 8, batch_first=True, proj_size=4),
        SEQUENCE,
        2 * LENGTH * (4 * 8 * (WIDTH + 4) + 8 * 4),
    ),
    "GRU": (nn.GRU(WIDTH, 8, batch_first=True), SEQUENCE, 2 * LENGTH * 3 * 8 * (WIDTH + 8)),
    "RNN": (nn.RNN(WIDTH, 8, batch_first=True), SEQUENCE, 2 * LENGTH * 8 * (WIDTH + 8)),
    "LSTMCell": (nn.LSTMCell(WIDTH, 8), torch.ones(1, WIDTH), 2 * 4 * 8 * (WIDTH + 8)),
    "MultiheadAttention on its fast path": (
        Calls(lambda x, part: part(x, x, x), nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)),
        SEQUENCE,
        PROJECTIONS + ATTENTION,
    ),
    "MultiheadAttention across": (
        nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
        (SEQUENCE, torch.ones(1, 3, WIDTH), torch.ones(1, 3, WIDTH)),
        2 * WIDTH * WIDTH * (2 * LENGTH + 2 * 3) + 2 * 2 * LENGTH * 3 * WIDTH,
    ),
    "TransformerEncoderLayer on its fast path": (encoder(batch_first=True), SEQUENCE, LAYER),
    "TransformerEncoderLayer without": (encoder(batch_first=True, bias=False), SEQUENCE, LAYER),
    "TransformerEncoder": (nn.TransformerEncoder(encoder(batch_first=True), 3), SEQUENCE, 3 * LAYER),
    "attention": (Calls(attend), SEQUENCE, ATTENTION),
    "causal attention": (Calls(lambda x: attend(x, causal=True)), SEQUENCE, ATTENTION),
    "Embedding": (nn.Embedding(9, 4), torch.tensor([[1, 2]]), 0),
    "matmul": (*product(lambda x: x @ torch.ones(8, 3), 4, 8), 2 * 4 * 8 * 3),
    "matmul with a vector": (*product(lambda x: x[0] @ torch.ones(8), 4, 8), 2 * 4 * 8),
    "dot": (*product(lambda x: torch.dot(x[0], x[0]).view(1), 8), 2 * 8),
    "bmm": (*product(lambda x: torch.bmm(x, torch.ones(1, 8, 3)), 4, 8), 2 * 4 * 8 * 3),
    "baddbmm": (
        *product(lambda x: torch.baddbmm(torch.ones(1, 4, 3), x, torch.ones(1, 8, 3)), 4, 8),
        2 * 4 * 8 * 3,
    ),
    "addbmm": (
        *product(lambda x: torch.addbmm(torch.ones(4, 3), x, torch.ones(1, 8, 3)), 4, 8),
        2 * 4 * 8 * 3,
    ),
    "einsum": (*product(lambda x: torch.einsum("bij,jk->bik", x, torch.ones(8, 3)), 4, 8), 2 * 4 * 8 * 3),
    "activations and normalisation": (nn.Sequential(nn.ReLU(), nn.LayerNorm(8)), torch.ones(1, 8), 0),
}


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.filterwarnings(
    "ignore:enable_nested_tensor:UserWarning", "ignore:LSTM with projections:UserWarning"
)
def test_a_forward_pass_is_counted_by_its_formula(name: str) -> None:
    model, example, expected = FORWARD[name]
    assert flops_of(model, example).per_sample == expected


def test_padding_that_the_fast_path_takes_out_is_not_counted() -> None:
    layers = nn.TransformerEncoder(encoder(batch_first=True), 1)

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, x, mask):
            return self.layers(x, src_key_padding_mask=mask)

    mask = torch.tensor([[False, False, False, True, True]])
    with pytest.warns(UserWarning, match="nested tensors"):
        counted = flops_of(Masked(), (SEQUENCE, mask)).per_sample
    assert counted == 2 * 3 * (4 * WIDTH * WIDTH + 2 * WIDTH * HIDDEN) + 2 * 2 * 3 * 3 * WIDTH


# The input needs no gradient: its product is missing in the first layer.
BACKWARD = {
    "Linear": (nn.Linear(8, 3), torch.ones(1, 8), 2 * 8 * 3),
    "two Linear": (
        nn.Sequential(nn.Linear(8, 3), nn.Linear(3, 2)),
        torch.ones(1, 8),
        2 * 8 * 3 + 2 * 2 * 3 * 2,
    ),
    "Conv2d in groups": (nn.Conv2d(4, 6, 3, groups=2), torch.ones(1, 4, 8, 8), 2 * 36 * 6 * 2 * 9),
    "two Conv2d": (
        nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.Conv2d(6, 2, 3, groups=2, stride=2)),
        torch.ones(1, 4, 9, 9),
        2 * 49 * 6 * 2 * 9 + 2 * (2 * 9 * 2 * 3 * 9),
    ),
    "ConvTranspose2d in groups": (
        nn.ConvTranspose2d(4, 6, 3, groups=2),
        torch.ones(1, 4, 5, 5),
        2 * 25 * 4 * 3 * 9,
    ),
    "LSTM": (nn.LSTM(WIDTH, 8, batch_first=True), SEQUENCE, 2 * 2 * LENGTH * 4 * 8 * (WIDTH + 8)),
    "GRU": (
        nn.GRU(WIDTH, 8, batch_first=True),
        SEQUENCE,
        2 * LENGTH * 3 * 8 * (WIDTH + 8) + 2 * (LENGTH - 1) * 3 * 8 * 8,
    ),
    "TransformerEncoderLayer": (
        encoder(batch_first=True),
        SEQUENCE,
        # Without the gradient of its input; scores are worked out again.
        2 * (PROJECTIONS + FEED_FORWARD) - 2 * LENGTH * 3 * WIDTH * WIDTH + ATTENTION * 5 // 2,
    ),
    "Embedding": (nn.Embedding(9, 4), torch.tensor([[1, 2]]), 0),
    "frozen": (nn.Linear(8, 3).requires_grad_(requires_grad=False), torch.ones(1, 8), 0),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_a_backward_pass_is_counted_by_its_formula(name: str) -> None:
    model, example, expected = BACKWARD[name]
    assert flops_of(model, example, backward=True).backward_per_sample == expected


TOKENS, VOCABULARY = 8, 50
IDS = {"input_ids": torch.ones(1, TOKENS, dtype=torch.int64)}
BLOCK = 2 * TOKENS * (4 * WIDTH * WIDTH + 2 * WIDTH * 4 * WIDTH)
SCORES = 2 * 2 * TOKENS * TOKENS * WIDTH


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_small_gpt_2_counts_its_attention_forward_and_backward(attention: str) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": WIDTH, "vocab_size": VOCABULARY, "n_positions": 32}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(**sizes, **ends, attn_implementation=attention)
    counted = flops_of(transformers.GPT2LMHeadModel(config), IDS, backward=True)
    head = 2 * TOKENS * WIDTH * VOCABULARY
    assert counted.per_sample == 2 * (BLOCK + SCORES) + head
    again = SCORES // 2 if attention == "sdpa" else 0
    assert counted.backward_per_sample == 2 * (2 * (BLOCK + SCORES) + head) + 2 * again


def test_a_small_bert_counts_its_attention_forward_and_backward() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=4 * WIDTH,
        vocab_size=VOCABULARY,
        max_position_embeddings=32,
    )
    counted = flops_of(transformers.BertModel(config), IDS, backward=True)
    pooler = 2 * WIDTH * WIDTH
    assert counted.per_sample == 2 * (BLOCK + SCORES) + pooler
    assert counted.backward_per_sample == 2 * (2 * (BLOCK + SCORES) + pooler) + 2 * (SCORES // 2)


def test_a_compiled_model_counts_as_the_one_it_was_made_from() -> None:
    compiled = torch.compile(nn.Linear(8, 3), backend="eager")
    compiled(torch.ones(1, 8))
    assert flops_of(compiled, torch.ones(1, 8)).per_sample == 2 * 8 * 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_a_quantised_model_has_a_reason_why_it_was_not_counted() -> None:
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 3)), {nn.Linear})
    counted = flops_of(model, torch.ones(1, 8))
    assert counted.per_sample is None
    assert "quantized.linear_dynamic" in counted.method


def test_a_product_without_a_formula_has_a_reason_and_is_never_zero() -> None:
    counted = flops_of(nn.Bilinear(4, 5, 3), (torch.ones(1, 4), torch.ones(1, 5)))
    assert counted.per_sample is None
    assert counted.method == "not counted: there is no formula for aten._trilinear"


def test_a_custom_operator_has_a_reason() -> None:
    with torch.library._scoped_library("stepscope_tests", "FRAGMENT") as library:
        library.define("mystery(Tensor x) -> Tensor")
        library.impl("mystery", lambda x: x @ x, "CPU")
        counted = flops_of(
            Calls(lambda x: torch.ops.stepscope_tests.mystery(x[0])[None]), torch.ones(1, 4, 4)
        )
    assert counted.per_sample is None
    assert "stepscope_tests.mystery" in counted.method


class Counting(nn.Module):
    """Changes buffers even in evaluation mode: one in place, one by another."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop, self.layer = nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x):
        self.calls += 1
        self.last = x.mean(0)
        return self.layer(self.drop(self.norm(x))) + torch.rand(1)


def test_counting_leaves_the_model_its_mode_gradients_buffers_and_random_numbers() -> None:
    model = Counting().train()
    model.drop.eval()
    model(torch.randn(8, 4)).sum().backward()
    before = copy.deepcopy(model.state_dict())
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    last, state = model.last, torch.get_rng_state()
    flops_of(model, torch.randn(2, 4, generator=torch.Generator()), backward=True)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(
        torch.equal(parameter.grad, kept)
        for parameter, kept in zip(model.parameters(), gradients, strict=True)
    )
    assert model.last is last
    assert [part.training for part in (model, model.norm, model.drop, model.layer)] == [
        True,
        True,
        False,
        True,
    ]
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_batch_normalisation_that_was_traced_in_training_keeps_its_statistics() -> None:
    traced = torch.jit.trace(nn.BatchNorm2d(4), torch.randn(8, 4, 3, 3), check_trace=False)
    before = copy.deepcopy(traced.state_dict())
    flops_of(traced, torch.randn(8, 4, 3, 3))
    assert all(torch.equal(value, before[name]) for name, value in traced.state_dict().items())


def test_a_graph_that_waits_for_its_backward_pass_is_not_disturbed() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4)).eval()
    loss = model(torch.randn(8, 4)).sum()
    flops_of(model, torch.randn(8, 4), backward=True)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_recurrent_layer_is_in_its_mode_again_after_a_backward_pass_was_counted() -> None:
    model = nn.LSTM(WIDTH, 8, 2, dropout=0.5, batch_first=True).eval()
    state = torch.get_rng_state()
    flops_of(model, SEQUENCE, backward=True)
    assert not model.training
    assert torch.equal(torch.get_rng_state(), state)


def test_a_backward_pass_that_was_not_asked_for_is_not_nothing() -> None:
    counted = flops_of(nn.Linear(8, 3), torch.ones(1, 8))
    assert (counted.backward_per_sample, counted.backward_method) == (
        None,
        "not counted: call flops(backward=True)",
    )
