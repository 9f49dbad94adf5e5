"""Looking: nothing is lost, nothing is changed unless it is asked for, and nothing is paid when nobody looks."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from regard.look import look, show, someone_looks, without
from regard.models.gpt import GPT, GPTConfig
from regard.models.recurrent import Reader, RecurrentConfig
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


def test_everything_that_attention_works_with_is_seen() -> None:
    body = gpt()
    with look(body) as seen:
        body(ids())
    for layer in range(L):
        inner = f"blocks.{layer}.mixer.inner"
        q, k, v, weights = (seen[f"{inner}.{name}"] for name in ("queries", "keys", "values", "weights"))
        assert q.shape == k.shape == v.shape == (B, H, T, D // H)
        assert weights.shape == (B, H, T, T)
        assert_close(weights.sum(-1), torch.ones(B, H, T, dtype=torch.float64), atol=1e-12, rtol=0)
        said = attention.join(weights @ v)
        assert_close(body.blocks[layer].mixer.inner.out(said), seen[inner])


def test_a_change_that_changes_nothing_changes_nothing() -> None:
    body = gpt()
    with look(body, change={WEIGHTS: lambda w: w.clone(), "blocks.0": lambda x: x}):
        changed = body(ids())
    assert_close(changed, body(ids()))


def test_a_head_that_is_silenced_says_nothing() -> None:
    body, head = gpt(), 1
    with look(body, change={WEIGHTS: without(head)}) as seen:
        silenced = body(ids())
    assert not seen[WEIGHTS][:, head].any()
    assert seen[WEIGHTS][:, 0].any()
    E = D // H
    with torch.no_grad():
        body.blocks[1].mixer.inner.out.weight[:, head * E : (head + 1) * E] = 0
    assert_close(silenced, body(ids()))


def test_frozen_attention_mixes_another_text_as_this_one() -> None:
    body, other = gpt(), ids(seed=1)
    with look(body) as seen:
        body(ids())
    frozen = {name: weights for name, weights in seen.items() if name.endswith(".weights")}
    change = {name: lambda _, weights=weights: weights for name, weights in frozen.items()}
    with look(body, change=change) as again:
        body(other)
    for name, weights in frozen.items():
        assert torch.equal(again[name], weights)
    assert_close(again[f"{WEIGHTS.removesuffix('.weights')}.values"].shape, (B, H, T, D // H))


@pytest.mark.parametrize("name", ["queries", "keys", "values"])
def test_what_is_changed_before_the_scores_is_what_counts(name: str) -> None:
    body = gpt()
    whole = f"blocks.0.mixer.inner.{name}"
    with look(body, change={whole: torch.zeros_like}) as seen:
        body(ids())
    weights = seen["blocks.0.mixer.inner.weights"]
    if name == "values":
        assert_close(seen["blocks.0.mixer.inner"], body.blocks[0].mixer.inner.out.bias.expand(B, T, D))
    else:  # nothing in common with anybody: all that may be seen is seen alike
        even = torch.ones(T, T, dtype=torch.float64).tril()
        assert_close(weights, (even / even.sum(-1, keepdim=True)).expand(B, H, T, T))


def test_an_activation_can_be_swapped_for_that_of_another_text() -> None:
    body = gpt()
    with look(body) as seen:
        wanted = body(ids(seed=1))
    with look(body, change={f"blocks.{L - 1}": lambda _: seen[f"blocks.{L - 1}"]}):
        assert_close(body(ids()), wanted)


def test_cross_attention_is_changed_for_every_beam() -> None:
    torch.manual_seed(0)
    cross, source, x = CrossAttention(D, H).double(), torch.randn(B, S, D).double(), torch.randn(3 * B, T, D).double()
    alone = torch.cat([cross(x[3 * b + i][None], source[b][None]) for b in range(B) for i in range(3)])
    with look(cross) as seen:
        cache = attention.Cache(cross.answers(source), None)
        assert_close(cross(x, cache=cache), alone)
    assert seen["weights"].shape == (3 * B, H, T, S)
    with look(cross, change={"weights": without(0, 1, 2)}):
        silent = cross(x, cache=attention.Cache(cross.answers(source), None))
    assert_close(silent, cross.out.bias.expand_as(silent))


def test_gradients_reach_everything_that_is_seen() -> None:
    body = gpt()
    with look(body, gradients=True) as seen:
        body(ids()).square().sum().backward()
    for name, tensor in seen.items():
        if name.endswith(".mask"):  # truth values have none
            continue
        assert tensor.grad is not None, name
        assert tensor.grad.shape == tensor.shape
    plain = gpt()
    plain(ids()).square().sum().backward()
    for (name, one), other in zip(body.named_parameters(), plain.parameters(), strict=True):
        if one.grad is not None:
            assert_close(one.grad, other.grad, msg=name)


def test_a_gradient_is_that_of_a_small_change() -> None:
    body, small = gpt(), 1e-6
    with look(body, gradients=True) as seen:
        body(ids()).square().sum().backward()
    place = (1, 2, 4, 3)

    def moved(w: Tensor) -> Tensor:
        w = w.clone()
        w[place] += small
        return w

    with torch.no_grad():
        with look(body, change={WEIGHTS: moved}):
            after = body(ids()).square().sum()
        slope = (after - body(ids()).square().sum()) / small
    assert_close(seen[WEIGHTS].grad[place], slope, rtol=1e-4, atol=1e-4)


def test_a_wrong_name_is_refused_with_the_nearest() -> None:
    body = gpt()
    says = r'nothing named "blocks.1.mixer.inner.weight".*blocks.1.mixer.inner.weights'
    with pytest.raises(ValueError, match=says), look(body, change={"blocks.1.mixer.inner.weight": without(0)}):
        body(ids())
    assert not someone_looks()


def test_a_wrong_shape_and_a_wrong_head_are_refused() -> None:
    body = gpt()
    with pytest.raises(ValueError, match=r"must stay so"), look(body, change={WEIGHTS: lambda w: w[:, :1]}):
        body(ids())
    with pytest.raises(ValueError, match=r"no head 3.*0 to 2"), look(body, change={WEIGHTS: without(3)}):
        body(ids())


def test_gates_can_be_seen_but_not_changed() -> None:
    torch.manual_seed(0)
    body = Reader(RecurrentConfig(vocab=V, context=9, dim=D, layers=1, one_way=True)).eval()
    with look(body) as seen:
        body(ids())
    [name] = [name for name in seen if name.endswith("gates")]
    with pytest.raises(ValueError, match="seen, not changed"), look(body, change={name: torch.zeros_like}):
        body(ids())


def test_when_nobody_looks_no_hook_is_there_and_no_weight_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    body, calls = gpt().requires_grad_(False), []
    monkeypatch.setattr(attention, "weights_openly", lambda *_, **__: calls.append(1))
    monkeypatch.setattr(attention, "show", lambda *_, **__: calls.append(1))
    body(ids())
    assert not calls
    assert not any(module._forward_hooks for module in body.modules())


def test_two_may_look_at_once() -> None:
    body = gpt()
    with look(body) as outer, look(body.blocks[0], change={"mixer.inner.weights": without(0)}) as inner:
        body(ids())
    assert torch.equal(outer["blocks.0.mixer.inner"], inner["mixer.inner"])
    assert "blocks.1" not in inner


def test_outside_of_a_model_nothing_is_shown() -> None:
    mixer = SelfAttention(D, H)
    with look(gpt()) as seen:
        mixer(torch.randn(B, T, D))
        show(mixer, "weights", torch.ones(1))
    assert not seen


def test_a_translator_shows_both_sides_and_what_lies_between() -> None:
    torch.manual_seed(0)
    config = TransformerConfig(vocab=V, context=9, dim=D, encoder_layers=1, decoder_layers=1, heads=H, hidden=20)
    body = Transformer(config).eval()
    with look(body) as seen:
        body(ids(S), ids(T, seed=1))
    shapes = sorted(tuple(w.shape[2:]) for name, w in seen.items() if name.endswith(".weights"))
    assert shapes == sorted([(S, S), (T, T), (T, S)])
