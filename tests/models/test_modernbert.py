"""Local attention of ModernBERT, with padding."""

import pytest
import torch
from torch.testing import assert_close

from regard.models import modernbert
from regard.models.modernbert import ModernBert, ModernBertConfig
from regard.parts import attention
from regard.parts.document_mask import DocumentMask

V, T, D, L, WINDOW = 13, 9, 8, 2, 2


def make_body(**options: int) -> ModernBert:
    torch.manual_seed(1)
    config = ModernBertConfig(vocab=V, context=T, dim=D, layers=L, heads=2, hidden=12, dropout=0.0, **options)
    return ModernBert(config).double()


def test_local_mask_is_the_window() -> None:
    mask = make_body(global_every=2, window=WINDOW).local_mask(torch.zeros(1, T, dtype=torch.long), None)
    for t in range(T):
        assert mask[t].nonzero().flatten().tolist() == [s for s in range(T) if abs(t - s) <= WINDOW]


@pytest.mark.parametrize("chunk", [1, 4])
def test_long_rows_see_the_same_window(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = make_body(global_every=2, window=WINDOW).eval(), torch.randint(V - 1, (2, T))
    documents = DocumentMask(torch.tensor([[0] * 4 + [1] * (T - 4)]).expand(2, T))
    expected = model(ids), model(ids, documents.dense())
    monkeypatch.setattr(modernbert, "DENSE_TOKENS", 1)
    monkeypatch.setattr(attention, "CHUNK_TOKENS", chunk)
    assert isinstance(model.local_mask(ids, None), DocumentMask)
    assert_close((model(ids), model(ids, documents)), expected)


def test_padding_outside_every_window_has_finite_gradients() -> None:
    model, ids = make_body(global_every=2, window=WINDOW), torch.randint(V - 1, (2, T))
    mask = (torch.arange(T) < torch.tensor([[T], [2]]))[:, None, None]
    model(ids, mask)[mask[:, 0, 0]].square().sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name


def test_padding_is_invisible_to_local_attention() -> None:
    model, ids = make_body(global_every=2, window=WINDOW).eval(), torch.randint(V - 1, (1, T))
    mask = (torch.arange(T) < 3)[None, None, None]
    assert_close(model(ids, mask)[:, :3], model(ids[:, :3]))
