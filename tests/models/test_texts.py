"""What every body that reads text must do, whatever it is made of: same answer however it is asked, no peeking."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from regard.look import look
from regard.models.bert import Bert, BertConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.llama import Llama, LlamaConfig
from regard.models.nanochat import NanoChat, NanoChatConfig
from regard.parts.heads import Model

B, T, V, D, H, LAYERS = 3, 9, 19, 24, 6, 2
CONTEXT, SEP = 17, 4
SIZES = {"vocab": V, "context": CONTEXT, "dim": D, "layers": LAYERS, "heads": H, "hidden": 10, "dropout": 0.1}
BODIES = {
    "gpt": (GPT, GPTConfig(**SIZES)),
    "llama": (Llama, LlamaConfig(**SIZES, kv_heads=3)),
    "nanochat": (NanoChat, NanoChatConfig(**SIZES, kv_heads=2)),
    "bert": (Bert, BertConfig(**SIZES, sep=SEP)),
}
CAUSAL = [name for name in BODIES if name != "bert"]
PIECES = [(0, 4), (4, 7), (7, 8), (8, 9)]
LENGTHS = [T, 2, 5]
TEXTS = [[4, 3, 2], [9], [1, 8]]  # lengths of the texts packed into each row


@pytest.fixture
def body(request: pytest.FixtureRequest, stirred) -> nn.Module:
    torch.manual_seed(1)
    kind, config = BODIES[request.param]
    return stirred(kind(config)).double().eval()


global_every = pytest.mark.parametrize("body", BODIES, indirect=True)
causal = pytest.mark.parametrize("body", CAUSAL, indirect=True)


def close(body: nn.Module, ours: Tensor, theirs: Tensor) -> None:
    """Rotary tables are computed in single precision; all else is exact."""
    error = 1e-6 if isinstance(body, Llama | NanoChat) else 1e-10
    assert_close(ours, theirs, rtol=error, atol=error)


def ids(length: int = T) -> Tensor:
    return torch.randint(V - 1, (B, length), generator=torch.Generator().manual_seed(length))


def padding(lengths: list[int], longest: int = T) -> Tensor:
    return (torch.arange(longest) < torch.tensor(lengths)[:, None])[:, None, None]


def same_text(texts: list[list[int]]) -> Tensor:
    """(B,1,T,T), True where two tokens are of one text."""
    number = torch.stack([torch.tensor([i for i, n in enumerate(row) for _ in range(n)]) for row in texts])
    return (number[:, :, None] == number[:, None])[:, None]


@global_every
def test_a_body_makes_a_vector_of_every_token_and_its_vocabulary_a_score_of_every_word(body: nn.Module) -> None:
    model = Model(body, body.lm_head().double())
    assert body(ids()).shape == (B, T, D)
    assert model(ids()).shape == (B, T, V)


@causal
def test_what_comes_later_cannot_change_what_came_before(body: nn.Module) -> None:
    given, before = ids(), body(ids())
    for changed in range(T):
        other = given.clone()
        other[:, changed] = (given[:, changed] + 1) % V
        differs = (body(other) - before).abs().amax((0, 2)) > 1e-9
        assert differs.tolist() == [t >= changed for t in range(T)]


@pytest.mark.parametrize("body", ["bert"], indirect=True)
def test_both_sides_are_seen_where_nothing_is_causal(body: nn.Module) -> None:
    given, before = ids(), body(ids())
    for changed in range(T):
        other = given.clone()
        other[:, changed] = (given[:, changed] + 1) % V
        assert ((body(other) - before).abs().amax(-1) > 1e-9).all()


@causal
@pytest.mark.parametrize("pieces", [PIECES, [(t, t + 1) for t in range(T)]], ids=["in pieces", "one by one"])
def test_token_by_token_equals_all_at_once(body: nn.Module, pieces: list[tuple[int, int]]) -> None:
    given, caches = ids(), body.caches()
    with torch.inference_mode():
        parts = [body(given[:, a:b], cache=caches) for a, b in pieces]
    assert [cache.length for cache in caches] == [T] * LAYERS
    close(body, torch.cat(parts, 1), body(given))
    assert [cache.length for cache in body.caches()] == [0] * LAYERS


@causal
@pytest.mark.parametrize("kind", ["padded", "packed"])
def test_a_mask_means_the_same_in_pieces_as_at_once(body: nn.Module, kind: str) -> None:
    given, caches = ids(), body.caches()
    mask = padding(LENGTHS) if kind == "padded" else same_text(TEXTS)
    pieces = PIECES if kind == "padded" else [(0, 4), (4, 9)]
    with torch.inference_mode():
        parts = [
            body(given[:, a:b], mask[..., :b] if kind == "padded" else mask[..., a:b, :b], caches) for a, b in pieces
        ]
    close(body, torch.cat(parts, 1), body(given, mask))


@global_every
@pytest.mark.parametrize("more", [0, 1, 8])
def test_padding_is_invisible_whatever_stands_there(body: nn.Module, more: int) -> None:
    mask, longer = padding(LENGTHS), padding(LENGTHS, T + more)
    garbage = torch.cat((ids(), ids(more) if more else ids()[:, :0]), 1)
    garbage = torch.where(longer[:, 0, 0], garbage, (garbage * 7 + 3) % V)
    real = mask[:, 0, 0]
    close(body, body(garbage, longer)[:, :T][real], body(ids(), mask)[real])


@global_every
def test_a_batch_equals_its_texts_one_by_one(body: nn.Module) -> None:
    together = body(ids(), padding(LENGTHS))
    for b, length in enumerate(LENGTHS):
        close(body, together[b, :length], body(ids()[b : b + 1, :length])[0])


@global_every
def test_texts_packed_into_a_row_equal_each_alone(body: nn.Module) -> None:
    given = ids()
    given[0, 2] = given[1, 3] = given[2, 5] = SEP
    together = body(given, same_text(TEXTS))
    for b, row in enumerate(TEXTS):
        for end, length in zip(torch.tensor(row).cumsum(0).tolist(), row, strict=True):
            alone = body(given[b : b + 1, end - length : end])[0]
            close(body, together[b, end - length : end], alone)


@global_every
def test_every_weight_learns_but_the_bias_of_keys_which_no_softmax_can_see(body: nn.Module, stirred) -> None:
    model = Model(body.train(), stirred(body.lm_head()).double())
    given = torch.cat((ids(CONTEXT - 1), torch.full((B, 1), SEP)), 1)  # a row of positions for every token
    given[:, 3] = SEP
    model.head.loss(body(given).flatten(0, 1), given.flatten(), 0.1).backward()
    idle = [name for name, w in model.named_parameters() if w.grad is None or w.grad.abs().max() < 1e-9]
    assert idle == [name for name, _ in model.named_parameters() if name.endswith("key.bias")]


@global_every
def test_dropout_is_on_in_training_only(body: nn.Module) -> None:
    assert torch.equal(body(ids()), body(ids()))
    body.train()
    assert not torch.equal(body(ids()), body(ids()))


@global_every
def test_more_tokens_than_the_context_are_refused_with_both_numbers(body: nn.Module) -> None:
    assert body(ids(CONTEXT)).shape == (B, CONTEXT, D)
    with pytest.raises(ValueError, match=rf"{CONTEXT + 1} tokens .*context of {CONTEXT}\b"):
        body(ids(CONTEXT + 1))


@causal
def test_a_cache_does_not_outgrow_the_context(body: nn.Module) -> None:
    caches = body.caches()
    body(ids(CONTEXT), cache=caches)
    with pytest.raises(ValueError, match=rf"{CONTEXT + 1} tokens .*context of {CONTEXT}\b"):
        body(ids(1), cache=caches)


@global_every
def test_looking_shows_who_sees_whom_and_changes_no_bit(body: nn.Module) -> None:
    mask = padding(LENGTHS)
    before = body(ids(), mask)
    with look(body) as seen:
        assert torch.equal(body(ids(), mask), before)
    for layer in range(LAYERS):
        weights = seen[f"blocks.{layer}.mixer.inner.weights"]
        assert weights.shape == (B, H, T, T)
        assert_close(weights.sum(-1), torch.ones(B, H, T, dtype=weights.dtype))
        assert not weights[~mask.expand_as(weights)].any()
        assert bool(weights.triu(1).any()) is isinstance(body, Bert)


@global_every
def test_a_copy_shares_nothing_with_its_original(body: nn.Module) -> None:
    before, twin = body(ids()), copy.deepcopy(body)
    assert torch.equal(twin(ids()), before)
    with torch.no_grad():
        for weight in [*body.parameters(), *body.buffers()]:
            weight.zero_()
    assert torch.equal(twin(ids()), before)


@global_every
def test_half_precision_goes_all_the_way(body: nn.Module) -> None:
    exact = body(ids())
    half = body.bfloat16()(ids())
    assert half.dtype == torch.bfloat16
    assert_close(half.double(), exact, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("name", BODIES)
def test_sizes_that_cannot_be_are_refused_with_their_numbers(name: str) -> None:
    config = BODIES[name][1].__class__
    for field in ("vocab", "context", "dim", "layers", "heads", "hidden"):
        with pytest.raises(ValueError, match=f"{field} must be at least 1, not 0"):
            config(**{**SIZES, field: 0})
    with pytest.raises(ValueError, match=r"heads \(5\) .*dim \(24\)"):
        config(**{**SIZES, "heads": 5})
    with pytest.raises(ValueError, match="dropout must be at least 0 and below 1, not 1"):
        config(**{**SIZES, "dropout": 1})


@pytest.mark.parametrize("name", BODIES)
def test_padding_is_the_last_id_unless_told(name: str) -> None:
    config = BODIES[name][1].__class__
    assert config(V).pad == V - 1
    assert config(V, pad=2).pad == 2


@pytest.mark.parametrize("name", ["llama", "nanochat"])
def test_heads_share_keys_evenly_or_not_at_all(name: str) -> None:
    config = BODIES[name][1].__class__
    assert config(**SIZES).kv_heads == H
    with pytest.raises(ValueError, match=r"kv-heads \(4\) must divide heads \(6\)"):
        config(**SIZES, kv_heads=4)
    with pytest.raises(ValueError, match="kv-heads must be 0 or more, not -2"):
        config(**SIZES, kv_heads=-2)
    with pytest.raises(ValueError, match=r"heads \(8\) must divide dim \(24\) into even widths"):
        config(**{**SIZES, "heads": 8})
