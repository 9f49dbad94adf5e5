"""Passes change memory and time of a training: never its weights' names, and recomputation no bit of its gradients."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.testing import assert_close

import regard
from regard.look import look
from regard.models.llama import Llama, LlamaConfig
from regard.models.pooled import Pooled, PooledConfig
from regard.models.recurrent import RecurrentConfig
from regard.models.resnet import ResNet, ResNetConfig
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer, TransformerConfig
from regard.parts import attention, document_mask
from regard.parts.document_mask import DocumentMask
from regard.parts.heads import Model
from regard.training import passes
from regard.training.passes import compile_blocks, find_blocks, mixed_precision, recompute_blocks
from regard.training.provenance import read_train_json
from regard.training.train import train

B, T, V = 2, 12, 17
IDS = torch.arange(B * T).view(B, T) % V
Body = Callable[[], nn.Module]


def llama(dropout: float = 0.0, **sizes: int) -> Model:
    torch.manual_seed(1)
    config = LlamaConfig(vocab=V, **{"dim": 16, "layers": 3, "heads": 2, "hidden": 24, "context": 64} | sizes)
    body = Llama(config if not dropout else LlamaConfig(**vars(config) | {"dropout": dropout}))
    return Model(body, body.lm_head()).train()


def gradients(model: Model, *inputs: object) -> tuple[Tensor, list[Tensor]]:
    """Output and gradients; the random numbers of dropout are the same in every call."""
    torch.manual_seed(2)
    model.zero_grad()
    y = model.body(*inputs)
    torch.rand(1)  # the backward pass must not depend on the state of the generator
    y.square().sum().backward()
    return y, [weight.grad for weight in model.parameters() if weight.grad is not None]


def saved_bytes(model: Model) -> int:
    """Memory of the tensors that a forward pass keeps for the backward pass, without the weights."""
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    storages: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        if x.untyped_storage().data_ptr() not in weights:
            storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        y = model.body(IDS)
    assert y.requires_grad
    return sum(storages.values())


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_recomputation_changes_no_bit_and_keeps_only_inputs_of_blocks(dtype: passes.Dtype) -> None:
    plain = llama(dropout=0.2)
    recomputing = recompute_blocks(copy.deepcopy(plain))
    with mixed_precision(torch.device("cpu"), dtype):
        y, expected = gradients(plain, IDS)
        z, actual = gradients(recomputing, IDS)
    assert torch.equal(y, z)
    assert len(actual) == len(expected)
    assert all(map(torch.equal, actual, expected))
    assert saved_bytes(recomputing) < saved_bytes(plain) / 4
    assert [*recomputing.state_dict()] == [*plain.state_dict()]


def test_the_comparison_of_gradients_detects_other_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "checkpoint", lambda *args, **kwargs: None)
    plain = llama(dropout=0.2)
    careless = copy.deepcopy(plain)
    for block in find_blocks(careless.body):
        block.forward = passes.partial(
            torch.utils.checkpoint.checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False
        )
    expected, actual = gradients(plain, IDS)[1], gradients(careless, IDS)[1]
    assert not all(map(torch.equal, actual, expected))


def test_recomputation_counts_a_batch_once_in_batch_norms() -> None:
    torch.manual_seed(1)
    body = ResNet(ResNetConfig(channels=3, stages=2, layers=1, dim=8))
    plain = Model(body, nn.Identity()).train()
    recomputing, pixels = recompute_blocks(copy.deepcopy(plain)), torch.randn(4, 3, 8, 8)
    expected, actual = gradients(plain, pixels)[1], gradients(recomputing, pixels)[1]
    assert all(map(torch.equal, actual, expected))
    buffers = zip(plain.buffers(), recomputing.buffers(), strict=True)
    assert all(torch.equal(buffer, other) for buffer, other in buffers)
    assert any(buffer.is_floating_point() and buffer.any() for buffer in plain.buffers())


def bodies() -> Iterator[tuple[str, nn.Module, int]]:
    sizes = {"dim": 8, "hidden": 8, "heads": 2}
    yield "both stacks", Transformer(TransformerConfig(vocab=V, encoder_layers=3, decoder_layers=2, **sizes)), 5
    yield "recurrent", Seq2Seq(RecurrentConfig(vocab=V, dim=8, layers=2)), 4
    yield "stages", ResNet(ResNetConfig(channels=3, stages=3, layers=2, dim=8)), 6
    yield "no blocks", Pooled(PooledConfig(vocab=V, dim=8, hidden=8)), 0


@pytest.mark.parametrize(("body", "count"), [pytest.param(body, n, id=name) for name, body, n in bodies()])
def test_blocks_are_the_layers_of_all_stacks(body: nn.Module, count: int) -> None:
    assert len([*find_blocks(body)]) == count


def test_a_model_without_blocks_cannot_recompute() -> None:
    body = Pooled(PooledConfig(vocab=V, dim=8, hidden=8))
    with pytest.raises(ValueError, match="--recompute needs a model of several blocks.*leave it out"):
        recompute_blocks(Model(body, nn.Identity()))


@pytest.mark.parametrize("recompute", [False, True])
def test_equal_blocks_share_compiled_graphs_and_compute_the_same(recompute: bool) -> None:
    graphs: list[torch.fx.GraphModule] = []

    def count_graphs(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    plain = llama(layers=4)
    compiled = copy.deepcopy(plain)
    compile_blocks(recompute_blocks(compiled) if recompute else compiled, count_graphs)
    y, expected = gradients(plain, IDS)
    z, actual = gradients(compiled, IDS)
    assert len(graphs) == 1
    assert_close(z, y, rtol=1e-5, atol=1e-5)
    assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert [*compiled.state_dict()] == [*plain.state_dict()]
    trial = gradients(copy.deepcopy(compiled), IDS)[1]  # a copy has weights of its own
    assert_close(trial, expected, rtol=1e-5, atol=1e-5)
    assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_compiled_blocks_draw_dropout() -> None:
    model = compile_blocks(llama(dropout=0.5, layers=1), "aot_eager")
    y, grads = gradients(model, IDS)
    assert all(grad.isfinite().all() for grad in grads)
    assert not torch.equal(y, gradients(llama(layers=1), IDS)[0])


def test_compiled_blocks_read_packed_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in attention, document_mask:
        monkeypatch.setattr(module, "CHUNK_TOKENS", 4)
    plain = llama()
    compiled = compile_blocks(copy.deepcopy(plain), "aot_eager")
    for lengths in ([3, 2, 7], [6, 6]):
        mask = DocumentMask(torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)).expand(B, T))
        assert_close(gradients(compiled, IDS, mask), gradients(plain, IDS, mask), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("prepare", [recompute_blocks, lambda model: compile_blocks(model, "aot_eager")])
def test_evaluation_and_traces_run_the_blocks_as_they_are(prepare: Callable[[Model], Model]) -> None:
    plain = llama(dropout=0.2)
    changed = prepare(copy.deepcopy(plain))
    with torch.inference_mode():
        caches = plain.body.caches(), changed.body.caches()
        for ids in IDS[:, :5], IDS[:, 5:6]:
            expected, actual = (m.eval().next_logits(ids, c) for m, c in zip((plain, changed), caches, strict=True))
            assert torch.equal(actual, expected)
    traces = []
    for model in plain.train(), changed.train():
        with look(model, gradients=True) as trace:
            gradients(model, IDS)
        traces.append({name: tensor.grad for name, tensor in trace.items() if tensor.grad is not None})
    assert "body.blocks.1.mixer.inner.weights" in traces[0]
    assert traces[0].keys() == traces[1].keys()
    assert all(torch.equal(traces[1][name], grad) for name, grad in traces[0].items())


def test_mixed_precision_multiplies_in_bf16_and_keeps_the_rest_in_fp32() -> None:
    model, dtypes = llama(), {}
    linear_and_norm = (nn.Linear, nn.RMSNorm)
    for name, module in ((n, m) for n, m in model.named_modules() if isinstance(m, linear_and_norm)):
        module.register_forward_hook(lambda _, x, y, name=name: dtypes.update({name: (x[0].dtype, y.dtype)}))
    with mixed_precision(torch.device("cpu"), "bf16"):
        loss = model.head.loss(model.body(IDS).flatten(0, 1), IDS.flatten())
    loss.backward()
    assert dtypes["body.blocks.0.mixer.inner.query"] == (torch.float32, torch.bfloat16)
    assert dtypes["body.blocks.1.mixer.norm"] == dtypes["body.norm"] == (torch.float32, torch.float32)
    assert {loss.dtype, *(weight.grad.dtype for weight in model.parameters())} == {torch.float32}
    with mixed_precision(torch.device("cpu"), None):
        assert model.body.blocks[0].mixer.inner.query(torch.ones(16)).dtype == torch.float32  # the default of a CPU


TEXTS = [
    f"the {a} {b} the {c}" for a in ("cat", "dog", "cow") for b in ("sees", "hears") for c in ("sun", "moon", "sea")
]


def options(tmp_path: Any, name: str, **changes: object) -> dict[str, Any]:
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS * 4), encoding="utf-8")
    sizes = {"model": "llama", "dim": 16, "layers": 2, "heads": 2, "hidden": 24, "context": 32, "dropout": 0.2}
    length = {"steps": 6, "evals": 2, "batch_tokens": 128, "grad_accum": 2}
    return {
        "data": file,
        "cache": str(tmp_path / "cache"),
        "output_dir": str(tmp_path / name),
        **sizes,
        **length,
    } | changes


def weights(folder: Any) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.safetensors")}


def test_a_run_repeats_its_passes_when_it_resumes(tmp_path: Any) -> None:
    chosen = {"dtype": "bf16", "recompute": True}
    assert len([*train("write", **options(tmp_path, "whole", **chosen))]) == 6
    for step in train("write", **options(tmp_path, "broken", **chosen)):
        if step.number == 4:
            break
    assert len([*train("write", output_dir=str(tmp_path / "broken"), resume=True)]) in (2, 3)
    assert weights(tmp_path / "broken") == weights(tmp_path / "whole")
    stored = read_train_json(tmp_path / "whole")
    assert (stored["dtype"], stored["recompute"], stored["compile"]) == ("bf16", True, False)

    [*train("write", **options(tmp_path, "plain", dtype="bf16"))]
    assert weights(tmp_path / "plain") == weights(tmp_path / "whole")  # recomputation changes no bit of a run
    [*train("write", **options(tmp_path, "fp32"))]
    assert read_train_json(tmp_path / "fp32")["dtype"] == "fp32"
    assert weights(tmp_path / "fp32") != weights(tmp_path / "whole")  # the control
    with pytest.raises(ValueError, match="--dtype"):
        [*train("write", **options(tmp_path, "whole"))]

    loaded = regard.load(tmp_path / "whole")
    assert isinstance(loaded.model, Model)
    assert isinstance(loaded("the cat", max_new_tokens=3, temperature=0.0), str)


def test_a_run_may_begin_to_recompute_when_it_resumes(tmp_path: Any) -> None:
    assert len([*train("write", **options(tmp_path, "whole"))]) == 6
    for step in train("write", **options(tmp_path, "broken")):
        if step.number == 4:
            break
    [*train("write", output_dir=str(tmp_path / "broken"), resume=True, recompute=True)]
    assert weights(tmp_path / "broken") == weights(tmp_path / "whole")
