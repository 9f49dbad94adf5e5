"""`look` records every tensor, changes only what `change` names, and costs nothing without a trace."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from regard.look import ablate_heads, is_traced, look, record
from regard.models.gpt import GPT, GPTConfig
from regard.models.recurrent import RecurrentConfig, RecurrentEncoder
from regard.models.transformer import Transformer, TransformerConfig
from regard.parts import attention
from regard.parts.attention import CrossAttention, SelfAttention

B, T, S, D, H, V, L = 2, 7, 5, 12, 3, 11, 2
WEIGHTS = "blocks.1.mixer.inner.weights"


def gpt() -> GPT:
    torch.manual_seed(0)
    body = GPT(GPTConfig(vocab=V, context=9, dim=D, layers=L, heads=H, hidden=20, dropout=0.0)).double()
    for weight in body.parameters():
        nn.init.normal_(weight, std=0.3)
    return body


def ids(length: int = T, seed: int = 0) -> Tensor:
    return torch.randint(V, (B, length), generator=torch.Generator().manual_seed(seed))


def test_all_tensors_of_attention_are_recorded() -> None:
    body = gpt()
    with look(body) as activations:
        body(ids())
    for layer in range(L):
        inner = f"blocks.{layer}.mixer.inner"
        q, k, v, weights = (activations[f"{inner}.{name}"] for name in ("queries", "keys", "values", "weights"))
        assert q.shape == k.shape == v.shape == (B, H, T, D // H)
        assert weights.shape == (B, H, T, T)
        assert_close(weights.sum(-1), torch.ones(B, H, T, dtype=torch.float64), atol=1e-12, rtol=0)
        heads_output = attention.merge_heads(weights @ v)
        assert_close(body.blocks[layer].mixer.inner.out(heads_output), activations[inner])


def test_an_identity_change_leaves_the_output() -> None:
    body = gpt()
    with look(body, change={WEIGHTS: lambda w: w.clone(), "blocks.0": lambda x: x}):
        changed = body(ids())
    assert_close(changed, body(ids()))


def test_an_ablated_head_contributes_nothing() -> None:
    body, head = gpt(), 1
    with look(body, change={WEIGHTS: ablate_heads(head)}) as activations:
        ablated = body(ids())
    assert not activations[WEIGHTS][:, head].any()
    assert activations[WEIGHTS][:, 0].any()
    E = D // H
    with torch.no_grad():
        body.blocks[1].mixer.inner.out.weight[:, head * E : (head + 1) * E] = 0
    assert_close(ablated, body(ids()))


def test_patched_weights_apply_to_another_text() -> None:
    body = gpt()
    with look(body) as activations:
        body(ids())
    frozen = {name: weights for name, weights in activations.items() if name.endswith(".weights")}
    change = {name: lambda _, weights=weights: weights for name, weights in frozen.items()}
    with look(body, change=change) as patched:
        body(ids(seed=1))
    for name, weights in frozen.items():
        assert torch.equal(patched[name], weights)
    assert_close(patched[f"{WEIGHTS.removesuffix('.weights')}.values"].shape, (B, H, T, D // H))


@pytest.mark.parametrize("name", ["queries", "keys", "values"])
def test_changed_queries_keys_and_values_are_used(name: str) -> None:
    body = gpt()
    path = f"blocks.0.mixer.inner.{name}"
    with look(body, change={path: torch.zeros_like}) as activations:
        body(ids())
    weights = activations["blocks.0.mixer.inner.weights"]
    if name == "values":
        assert_close(activations["blocks.0.mixer.inner"], body.blocks[0].mixer.inner.out.bias.expand(B, T, D))
    else:  # equal scores: uniform weights over the visible positions
        even = torch.ones(T, T, dtype=torch.float64).tril()
        assert_close(weights, (even / even.sum(-1, keepdim=True)).expand(B, H, T, T))


def test_activation_patching() -> None:
    body = gpt()
    with look(body) as activations:
        expected = body(ids(seed=1))
    with look(body, change={f"blocks.{L - 1}": lambda _: activations[f"blocks.{L - 1}"]}):
        assert_close(body(ids()), expected)


def test_cross_attention_is_changed_for_every_beam() -> None:
    torch.manual_seed(0)
    cross, source, x = CrossAttention(D, H).double(), torch.randn(B, S, D).double(), torch.randn(3 * B, T, D).double()
    unbatched = torch.cat([cross(x[3 * b + i][None], source[b][None]) for b in range(B) for i in range(3)])
    with look(cross) as activations:
        cache = attention.Cache(cross.project_kv(source), None)
        assert_close(cross(x, cache=cache), unbatched)
    assert activations["weights"].shape == (3 * B, H, T, S)
    with look(cross, change={"weights": ablate_heads(0, 1, 2)}):
        ablated = cross(x, cache=attention.Cache(cross.project_kv(source), None))
    assert_close(ablated, cross.out.bias.expand_as(ablated))


def test_every_recorded_tensor_has_a_gradient() -> None:
    body = gpt()
    with look(body, gradients=True) as activations:
        body(ids()).square().sum().backward()
    for name, tensor in activations.items():
        if name.endswith(".mask"):  # booleans have no gradient
            continue
        assert tensor.grad is not None, name
        assert tensor.grad.shape == tensor.shape
    plain = gpt()
    plain(ids()).square().sum().backward()
    for (name, weight), untraced in zip(body.named_parameters(), plain.parameters(), strict=True):
        if weight.grad is not None:
            assert_close(weight.grad, untraced.grad, msg=name)


def test_gradients_equal_finite_differences() -> None:
    body, epsilon = gpt(), 1e-6
    with look(body, gradients=True) as activations:
        body(ids()).square().sum().backward()
    index = (1, 2, 4, 3)

    def shift(w: Tensor) -> Tensor:
        w = w.clone()
        w[index] += epsilon
        return w

    with torch.no_grad():
        with look(body, change={WEIGHTS: shift}):
            after = body(ids()).square().sum()
        derivative = (after - body(ids()).square().sum()) / epsilon
    assert_close(activations[WEIGHTS].grad[index], derivative, rtol=1e-4, atol=1e-4)


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    body = gpt()
    message = r'no tensor named "blocks.1.mixer.inner.weight".*blocks.1.mixer.inner.weights'
    with pytest.raises(ValueError, match=message), look(body, change={"blocks.1.mixer.inner.weight": ablate_heads(0)}):
        body(ids())
    assert not is_traced()


def test_a_changed_shape_and_an_unknown_head_are_refused() -> None:
    body = gpt()
    with pytest.raises(ValueError, match=r"keep the shape"), look(body, change={WEIGHTS: lambda w: w[:, :1]}):
        body(ids())
    with pytest.raises(ValueError, match=r"no head 3.*0 to 2"), look(body, change={WEIGHTS: ablate_heads(3)}):
        body(ids())


def test_gates_are_read_only() -> None:
    torch.manual_seed(0)
    body = RecurrentEncoder(RecurrentConfig(vocab=V, context=9, dim=D, layers=1, unidirectional=True)).eval()
    with look(body) as activations:
        body(ids())
    [name] = [name for name in activations if name.endswith("gates")]
    with pytest.raises(ValueError, match="read-only"), look(body, change={name: torch.zeros_like}):
        body(ids())


def test_without_a_trace_there_are_no_hooks_and_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    body, calls = gpt().requires_grad_(False), []
    monkeypatch.setattr(attention, "attention_weights", lambda *_, **__: calls.append(1))
    monkeypatch.setattr(attention, "record", lambda *_, **__: calls.append(1))
    body(ids())
    assert not calls
    assert not any(module._forward_hooks for module in body.modules())


def test_traces_nest() -> None:
    body = gpt()
    with look(body) as outer, look(body.blocks[0], change={"mixer.inner.weights": ablate_heads(0)}) as inner:
        body(ids())
    assert torch.equal(outer["blocks.0.mixer.inner"], inner["mixer.inner"])
    assert "blocks.1" not in inner


def test_modules_outside_the_model_are_not_recorded() -> None:
    mixer = SelfAttention(D, H)
    with look(gpt()) as activations:
        mixer(torch.randn(B, T, D))
        record(mixer, "weights", torch.ones(1))
    assert not activations


def test_an_encoder_decoder_records_self_and_cross_attention() -> None:
    torch.manual_seed(0)
    config = TransformerConfig(vocab=V, context=9, dim=D, encoder_layers=1, decoder_layers=1, heads=H, hidden=20)
    body = Transformer(config).eval()
    with look(body) as activations:
        body(ids(S), ids(T, seed=1))
    shapes = sorted(tuple(w.shape[2:]) for name, w in activations.items() if name.endswith(".weights"))
    assert shapes == sorted([(S, S), (T, T), (T, S)])
