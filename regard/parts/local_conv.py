"""A 1-D convolution over neighbouring tokens, with the call signature of attention.

    y_t = W · [x_{t-r} ; ... ; x_{t+r}] + b          LeCun et al. 1989; r tokens to each side, zeros beyond the ends

Masked tokens (padding, another document) count as zeros.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.parts.cache import Cache
from regard.parts.document_mask import DocumentMask, Mask


class LocalConv(nn.Module):
    """`kernel_size` = 2r + 1 tokens enter each output."""

    def __init__(self, dim: int, kernel_size: int):
        super().__init__()
        if kernel_size % 2 == 0:
            raise ValueError(f"the kernel is centred on a token: kernel_size must be odd, not {kernel_size}")
        self.kernel_size = kernel_size
        self.map = nn.Linear(kernel_size * dim, dim)

    def forward(
        self, x: Tensor, mask: Mask | None = None, cache: Cache | None = None, bias: Tensor | None = None
    ) -> Tensor:
        assert bias is None, "a convolution has no attention scores to add a bias to"
        assert cache is None, "a convolution over both sides has no cache: later tokens are not known yet"
        if isinstance(mask, Tensor) and mask.size(-2) == 1:  # padding, the same for every query: zeroed once
            x, mask = x * mask[:, 0, 0, :, None], None
        T, radius = x.size(1), self.kernel_size // 2
        padded = F.pad(x, (0, 0, radius, radius))  # (B,T+2r,D)
        shifted = [padded[:, i : i + T] for i in range(self.kernel_size)]
        if isinstance(mask, DocumentMask):
            document = F.pad(mask.document, (radius, radius), value=-1)
            same = document.unfold(1, T, 1) == mask.document[:, None]  # (B,kernel_size,T)
            shifted = [part * same[:, i, :, None] for i, part in enumerate(shifted)]
        elif mask is not None:
            visible = F.pad(mask[:, 0].expand(-1, T, -1), (radius, radius))  # (B,T,T+2r)
            shifted = [part * visible.diagonal(i, 1, 2)[..., None] for i, part in enumerate(shifted)]
        return self.map(torch.cat(shifted, -1))  # (B,T,kernel_size·D) -> (B,T,D)
