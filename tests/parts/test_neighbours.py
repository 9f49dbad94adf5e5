"""Neighbours are PyTorch's convolution, and who may not be seen is not."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from regard.parts.local_conv import LocalConv

B, T, D, WIDTH = 2, 11, 6, 5


def mixer() -> LocalConv:
    torch.manual_seed(1)
    return LocalConv(D, WIDTH).double()


def numbers() -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def test_it_is_a_convolution() -> None:
    one, x = mixer(), numbers()
    kernel = one.map.weight.view(D, WIDTH, D).mT  # (out,in,width)
    assert_close(one(x), F.conv1d(x.mT, kernel, one.map.bias, padding=WIDTH // 2).mT)


@pytest.mark.parametrize("changed", range(T))
def test_a_change_reaches_as_far_as_the_width_says(changed: int) -> None:
    one, x = mixer(), numbers()
    other = x.clone()
    other[:, changed] += 1
    reached = ((one(other) - one(x)).abs().amax((0, 2)) > 1e-9).nonzero().flatten().tolist()
    assert reached == [t for t in range(T) if abs(t - changed) <= WIDTH // 2]


def test_both_masks_of_padding_say_the_same() -> None:
    one, x = mixer(), numbers()
    mask = (torch.arange(T) < torch.tensor([[T], [4]]))[:, None, None]  # (B,1,1,T)
    alone = one(x[1:, :4])
    assert_close(one(x, mask)[1:, :4], alone)
    assert_close(one(x, mask.expand(B, 1, T, T))[1:, :4], alone)


def test_a_width_without_a_middle_is_refused() -> None:
    with pytest.raises(ValueError, match="odd, not 4"):
        LocalConv(D, 4)
