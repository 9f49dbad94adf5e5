"""Documents packed into rows: the compact mask equals the one of T x T booleans, and attention to it needs none."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.testing import assert_close

from regard.batch_invariant import reproducible
from regard.data.batches import to_device
from regard.look import look
from regard.parts import attention, document_mask
from regard.parts.attention import SelfAttention, attend, attention_reference
from regard.parts.document_mask import DocumentMask, group_documents
from regard.parts.embedding import segment_ids
from regard.parts.linear_attention import LinearAttention
from regard.parts.local_conv import LocalConv
from regard.parts.positions import Alibi, RelativePositionBias, RotaryPositions, position_ids
from regard.parts.recurrence import GRU, Bidirectional, find_spans
from regard.tasks.language_model import LMBatch, PackedRows

H, G, E, CHUNK = 4, 2, 8, 8
LENGTHS = st.integers(1, 3 * CHUNK)


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    """Chunks of few tokens, and the fused kernel for all of them."""
    with pytest.MonkeyPatch.context() as patch:
        for module in attention, document_mask:
            patch.setattr(module, "CHUNK_TOKENS", CHUNK)
        patch.setattr(attention, "UNFUSED_LIMIT", 0)
        yield


@st.composite
def masks(draw: st.DrawFn, rows: int = 3) -> DocumentMask:
    """Rows of one length; documents shorter and longer than a chunk."""
    lengths = [draw(st.lists(LENGTHS, min_size=1, max_size=6)) for _ in range(rows)]
    T = max(2, *map(sum, lengths))
    return pack([[*row, T - sum(row)] if sum(row) < T else row for row in lengths])


def pack(lengths: list[list[int]]) -> DocumentMask:
    return DocumentMask(torch.stack([torch.arange(len(r)).repeat_interleave(torch.tensor(r)) for r in lengths]))


def visible(lengths: list[list[int]]) -> Tensor:
    """(B,1,T,T) from the lengths alone."""
    return torch.stack([torch.block_diag(*(torch.ones(n, n) for n in row)).bool() for row in lengths])[:, None]


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def queries_keys_values(mask: DocumentMask) -> list[Tensor]:
    B, T = mask.document.shape
    return [numbers(B, heads, T, E).requires_grad_() for heads in (H, G, G)]


def assert_same_attention(mask: DocumentMask, dense: Tensor, causal: bool, bias: Tensor | None = None) -> None:
    """Outputs and gradients; the scale is not the default one."""
    qkv = queries_keys_values(mask)
    upstream = numbers(*qkv[0].shape)
    y, expected = (call(*qkv, m, bias, causal, 0.5) for call, m in ((attend, mask), (attention_reference, dense)))
    assert_close(y, expected)
    assert_close(torch.autograd.grad(y, qkv, upstream), torch.autograd.grad(expected, qkv, upstream))


@given(mask=masks(), causal=st.booleans())
@settings(deadline=None, derandomize=True, max_examples=60)
def test_attention_equals_the_quadratic_reference(mask: DocumentMask, causal: bool) -> None:
    assert_same_attention(mask, visible(mask.lengths), causal)


@given(mask=masks(), causal=st.booleans(), window=st.sampled_from([1, 5, CHUNK + 3]))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_windowed_attention_equals_the_quadratic_reference(mask: DocumentMask, causal: bool, window: int) -> None:
    T = mask.document.size(1)
    distance = (torch.arange(T)[:, None] - torch.arange(T)).abs()
    assert_same_attention(mask.within(window), visible(mask.lengths) & (distance <= window), causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bias", [Alibi(H), RelativePositionBias(H)], ids=["alibi", "relative"])
def test_a_bias_is_added_to_the_scores(bias: torch.nn.Module, causal: bool) -> None:
    lengths = [[7, 20, 3], [30]]
    assert_same_attention(pack(lengths), visible(lengths), causal, bias(30, 30).double())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", [{"rotate": RotaryPositions(E, 30)}, {"score_bias": Alibi(H)}], ids=str)
def test_self_attention_agrees_with_the_dense_mask_traced_or_not(options: dict[str, Any], causal: bool) -> None:
    torch.manual_seed(1)
    mixer, x = SelfAttention(H * E, H, G, causal=causal, **options).eval(), torch.randn(2, 30, H * E)
    mask = pack([[4, 20, 6], [15, 15]])
    y = mixer(x, mask)
    assert_close(y, mixer(x, mask.dense()))
    with look(mixer) as trace:
        assert torch.equal(mixer(x, mask), y)
    expected = visible(mask.lengths)
    assert torch.equal(trace["mask"], expected.tril() if causal else expected)
    assert not trace["weights"].masked_select(~trace["mask"]).any()
    assert_close(trace["weights"].sum(-1), torch.ones(2, H, 30))


@given(mask=masks())
@settings(deadline=None, derandomize=True, max_examples=30)
def test_a_compact_mask_says_the_same_as_the_dense_one(mask: DocumentMask) -> None:
    lengths, dense = mask.lengths, visible(mask.lengths)
    B, T = mask.document.shape
    assert [sum(row) for row in lengths] == [T] * B
    assert torch.equal(mask.dense(), dense)
    assert torch.equal(mask[1:].dense(), dense[1:])
    assert torch.equal(position_ids(mask, T), position_ids(dense, T))
    assert [*map(torch.Tensor.tolist, find_spans(mask, B))] == [*map(torch.Tensor.tolist, find_spans(dense, B))]
    ids = torch.randint(5, (B, T), generator=torch.Generator().manual_seed(T))
    for start in range(3):
        assert torch.equal(segment_ids(ids, 2, start, mask), segment_ids(ids, 2, start, dense))


@pytest.mark.parametrize(
    "mixer",
    [LocalConv(6, 5), Bidirectional(GRU(6, 3), GRU(6, 3)), LinearAttention(6, 2)],
    ids=lambda m: type(m).__name__,
)
def test_other_mixers_agree_with_the_dense_mask(mixer: torch.nn.Module) -> None:
    mask, x = pack([[3, 5, 1], [9]]), torch.randn(2, 9, 6, generator=torch.Generator().manual_seed(1))
    assert_close(mixer(x, mask), mixer(x, mask.dense()))


@given(lengths=st.lists(LENGTHS, min_size=1, max_size=20))
def test_groups_hold_whole_neighbours_and_only_a_long_document_exceeds_a_chunk(lengths: list[int]) -> None:
    groups = [*group_documents(lengths)]
    assert [n for group in groups for n in group] == lengths
    assert all(len(group) == 1 or sum(group) <= CHUNK for group in groups)
    assert all(sum(left) + right[0] > CHUNK for left, right in zip(groups, groups[1:], strict=False))


@pytest.mark.parametrize("window", [None, 5])
def test_saved_tensors_grow_linearly_with_the_row(window: int | None) -> None:
    def saved_bytes(mask: DocumentMask | Tensor) -> int:
        storages: dict[int, int] = {}  # tensors that share memory count once

        def pack_hook(x: Tensor) -> Tensor:
            storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        T = mask.size(-1) if isinstance(mask, Tensor) else mask.document.size(1)
        qkv = [torch.randn(1, heads, T, E).requires_grad_() for heads in (H, G, G)]
        with saved_tensors_hooks(pack_hook, lambda x: x):
            y = attend(*qkv, mask)
        assert y.shape == qkv[0].shape
        return sum(storages.values())

    short, long = (pack([[10, 2, 20] * n]) for n in (4, 16))
    short, long = (mask if window is None else mask.within(window) for mask in (short, long))
    assert saved_bytes(long) <= 4.2 * saved_bytes(short)
    assert saved_bytes(long.dense()) > 10 * saved_bytes(short.dense())  # the control


@pytest.mark.parametrize("window", [None, 5])
def test_a_row_attends_alike_in_any_batch(window: int | None) -> None:
    mask = pack([[4, 20, 6], [15, 15], [30]])
    mask = mask if window is None else mask.within(window)
    q, k, v = (x.float().detach() for x in queries_keys_values(mask))
    with reproducible():
        together = attend(q, k, v, mask, causal=True)
        for row in range(3):
            alone = slice(row, row + 1)
            assert torch.equal(together[alone], attend(q[alone], k[alone], v[alone], mask[alone], causal=True))


def test_a_batch_moves_to_a_device_and_divides_into_rows() -> None:
    mask = pack([[1, 2], [3]])
    batch = LMBatch(PackedRows(torch.zeros(2, 3), mask), torch.zeros(2, 3))
    moved = to_device(batch, torch.device("meta"))
    assert [*moved.inputs.arguments][1].document.device.type == "meta"
    assert to_device(batch, torch.device("cpu")).inputs.mask is mask
    assert mask[1:].lengths == [[3]]
