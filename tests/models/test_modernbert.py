"""ModernBERT: windows of near tokens, and what they must not break."""

import torch
from torch.testing import assert_close

from regard.models.modernbert import ModernBert, ModernBertConfig

V, T, D, L, WINDOW = 13, 9, 8, 2, 2


def body(**more: int) -> ModernBert:
    torch.manual_seed(1)
    config = ModernBertConfig(vocab=V, context=T, dim=D, layers=L, heads=2, hidden=12, dropout=0.0, **more)
    return ModernBert(config).double()


def test_a_block_with_a_window_sees_near_tokens_only() -> None:
    """In two blocks, of which the second has a window, a change reaches the window of the first block's whole view; so
    the first block, which sees all, is left out."""
    near = body(global_every=2, window=WINDOW).near(torch.zeros(1, T, dtype=torch.long), None)
    for asks in range(T):
        assert near[asks].nonzero().flatten().tolist() == [s for s in range(T) if abs(asks - s) <= WINDOW]


def test_padding_far_from_every_token_spoils_no_gradient() -> None:
    model, ids = body(global_every=2, window=WINDOW), torch.randint(V - 1, (2, T))
    mask = (torch.arange(T) < torch.tensor([[T], [2]]))[:, None, None]
    model(ids, mask)[mask[:, 0, 0]].square().sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name


def test_padding_does_not_change_what_a_window_sees() -> None:
    model, ids = body(global_every=2, window=WINDOW).eval(), torch.randint(V - 1, (1, T))
    mask = (torch.arange(T) < 3)[None, None, None]
    assert_close(model(ids, mask)[:, :3], model(ids[:, :3]))
