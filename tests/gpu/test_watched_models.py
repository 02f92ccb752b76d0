"""Gradients, histograms, activations and attention on a real GPU: right, and without one synchronisation."""

from __future__ import annotations

import math

import pytest

from stepscope.model_stats.activations import Activations
from stepscope.model_stats.attention import Attention
from stepscope.model_stats.gradient_monitor import GradientMonitor
from stepscope.model_stats.gradient_watch import Pace
from stepscope.model_stats.histograms import Histogram, Histograms
from stepscope.model_stats.metric_sink import MetricSink
from stepscope.model_stats.sampled_hooks import WARM_UP

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Later:
    """Keeps tensors as they are, and reads them when the GPU is done."""

    def __init__(self) -> None:
        self.tensors: list = []
        self.arrays: dict = {}
        self.events: list[dict] = []
        self._requests: list = []
        self.sink = MetricSink(
            record_tensor=lambda keys, values: self.tensors.append((keys, values.clone())),
            record_array=lambda key, values: self.arrays.update({key: values.clone()}),
            event=lambda kind, **fields: self.events.append({"kind": kind, **fields}),
            read_later=lambda values, then: self._requests.append((values.clone(), then)),
        )

    def arrive(self) -> None:
        """Everything has come from the GPU."""
        for values, then in self._requests:
            then(values.tolist())

    @property
    def rows(self) -> list[dict[str, float]]:
        return [dict(zip(keys, values.tolist(), strict=True)) for keys, values in self.tensors]


def guarded(optimizer, *watches) -> list:
    """Makes any synchronisation an error while our hooks run, and only then."""
    forbid = lambda *_: torch.cuda.set_sync_debug_mode("error")
    allow = lambda *_: torch.cuda.set_sync_debug_mode("default")
    optimizer.register_step_pre_hook(forbid)
    optimizer.register_step_post_hook(forbid)
    made = [watch() for watch in watches]
    optimizer.register_step_pre_hook(allow)
    optimizer.register_step_post_hook(allow)
    return made


def always() -> float:
    return 0.0


EAGER = Pace(budget_ratio=1e9, draw=always)


class Mixed(nn.Module):
    """Gradients of several kinds: sparse, half, float64, none at all."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, 64, sparse=True)
        self.middle = nn.Linear(64, 64).to(torch.bfloat16)
        self.last = nn.Linear(64, 8).to(torch.float64)
        self.unused = nn.Linear(3, 3)

    def forward(self, tokens):
        hidden = self.middle(self.embed(tokens).to(torch.bfloat16)).relu()
        return self.last(hidden.to(torch.float64)).square().mean()


def test_gradients_and_histograms_of_any_kind_are_right_without_waiting() -> None:
    model = Mixed().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    later = Later()
    gradients, histograms = guarded(
        optimizer,
        lambda: GradientMonitor(model, optimizer, outlets=later.sink, pace=EAGER),
        lambda: Histograms(model, optimizer, outlets=later.sink, _draw=always),
    )
    expected = []
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randint(0, 50, (64,), device="cuda")).backward()
        norms = [
            parameter.grad.to_dense().double().norm()
            for parameter in model.parameters()
            if parameter.grad is not None
        ]
        expected.append(math.hypot(*(norm.item() for norm in norms)))
        optimizer.step()
    assert not gradients.is_off
    assert not histograms._hooks.is_off
    recorded = [row["gradient_norm"] for row in later.rows if "gradient_norm" in row]
    assert recorded == pytest.approx(expected, rel=1e-3)
    assert Histogram.read(later.arrays["histogram/parameter/middle"].tolist()).elements == 64 * 64 + 64
    for array in later.arrays.values():
        histogram = Histogram.read(array.tolist())
        assert sum(histogram.counts) == histogram.elements
    gradients.close()
    histograms.close()


def test_histograms_are_the_same_when_determinism_is_asked_for() -> None:
    from stepscope.model_stats.histograms import histogram

    x = torch.randn(100_000, device="cuda")
    x[:3] = torch.tensor([math.nan, math.inf, -math.inf])
    plain = histogram(torch, [x]).tolist()
    torch.use_deterministic_algorithms(mode=True)
    try:
        assert histogram(torch, [x]).tolist() == pytest.approx(plain)
    finally:
        torch.use_deterministic_algorithms(mode=False)


def test_a_planted_nan_is_named_when_its_numbers_arrive() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    later = Later()
    (gradients,) = guarded(
        optimizer, lambda: GradientMonitor(model, optimizer, outlets=later.sink, pace=EAGER)
    )
    model(torch.randn(4, 8, device="cuda")).sum().backward()
    model[1].weight.grad[3, 3] = math.nan
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    gradients.close()
    assert later.events == []
    later.arrive()
    assert [(event["kind"], event["layer"]) for event in later.events] == [("gradient_not_finite", "1")]


def test_an_optimizer_that_unscales_by_itself_is_read_unscaled_without_waiting() -> None:
    model = nn.Linear(16, 16).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    later = Later()
    (gradients,) = guarded(
        optimizer, lambda: GradientMonitor(model, optimizer, outlets=later.sink, pace=EAGER)
    )
    scaler.scale(model(torch.ones(4, 16, device="cuda")).sum()).backward()
    expected = math.hypot(*(parameter.grad.norm().item() for parameter in model.parameters())) / 1024
    scaler.step(optimizer)
    gradients.close()
    assert not gradients.is_off
    assert later.rows[0]["gradient_norm"] == pytest.approx(expected, rel=1e-5)
    assert later.rows[0]["gradient_step_skipped"] == 0


def test_bursts_under_autocast_do_not_wait() -> None:
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = nn.TransformerEncoder(block, 2).cuda()
    later = Later()
    watches = [
        Activations(model, outlets=later.sink, _draw=always),
        Attention(model, outlets=later.sink, recompute=True, _draw=always),
    ]
    x = torch.randn(8, 100, 64, device="cuda")
    mask = nn.Transformer.generate_square_subsequent_mask(100, device="cuda")
    for step in range(WARM_UP + 1):
        torch.cuda.set_sync_debug_mode("error")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(x, mask=mask, is_causal=False).square().mean()
        loss.backward()
        for watch in watches:
            watch.after_step(step)
        torch.cuda.set_sync_debug_mode("default")
    assert not any(watch._hooks.is_off for watch in watches)
    row = {key: value for logged in later.rows for key, value in logged.items()}
    assert 0 < row["activation_std/layers.0.linear1"] < 10
    assert 1 < row["attention_effective_keys/layers.1.self_attn"] < 100
    assert later.arrays["attention_heads/layers.0.self_attn"].shape == (4, 3)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_model_of_hugging_face_is_measured(implementation: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=2, n_head=4, n_embd=64, vocab_size=100, n_positions=64, attn_implementation=implementation
    )
    model = transformers.GPT2LMHeadModel(config).cuda()
    tokens = torch.randint(0, 100, (2, 32), device="cuda")
    watch = Attention(model, recompute=implementation == "sdpa")
    figures = watch.measure(lambda: model(tokens, output_attentions=implementation == "eager"))
    keys = [key for key in figures if key.startswith("attention_effective_keys/")]
    assert len(keys) == 2, figures
    assert all(1 <= figures[key] <= 32 for key in keys)
