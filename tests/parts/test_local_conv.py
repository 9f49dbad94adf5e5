"""LocalConv equals PyTorch's convolution, and masked tokens count as zeros."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from regard.parts.local_conv import LocalConv

B, T, D, KERNEL = 2, 11, 6, 5


def mixer() -> LocalConv:
    torch.manual_seed(1)
    return LocalConv(D, KERNEL).double()


def numbers() -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def test_equals_conv1d() -> None:
    conv, x = mixer(), numbers()
    kernel = conv.map.weight.view(D, KERNEL, D).mT  # (out,in,kernel)
    assert_close(conv(x), F.conv1d(x.mT, kernel, conv.map.bias, padding=KERNEL // 2).mT)


@pytest.mark.parametrize("changed", range(T))
def test_receptive_field_is_the_kernel_size(changed: int) -> None:
    conv, x = mixer(), numbers()
    altered = x.clone()
    altered[:, changed] += 1
    reached_positions = ((conv(altered) - conv(x)).abs().amax((0, 2)) > 1e-9).nonzero().flatten().tolist()
    assert reached_positions == [t for t in range(T) if abs(t - changed) <= KERNEL // 2]


def test_both_forms_of_padding_mask_agree() -> None:
    conv, x = mixer(), numbers()
    mask = (torch.arange(T) < torch.tensor([[T], [4]]))[:, None, None]  # (B,1,1,T)
    alone = conv(x[1:, :4])
    assert_close(conv(x, mask)[1:, :4], alone)
    assert_close(conv(x, mask.expand(B, 1, T, T))[1:, :4], alone)


def test_even_kernel_size_is_refused() -> None:
    with pytest.raises(ValueError, match="odd, not 4"):
        LocalConv(D, 4)
