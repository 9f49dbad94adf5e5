"""Time: what comes later changes nothing before it, and token by token is the same as all at once.

causality   outputs before t stay the same, whatever token t is
cache       head(body(x_t, cache)) = head(body(x))_t, in steps of one token or of several, and when rows change places
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.check.check_result import Verdict, within
from regard.check.compare import CLOSE, apart, first_apart, outputs
from regard.check.probes import Given, Sample
from regard.load import Loaded
from regard.parts.cache import select
from regard.tasks.translate import Translate
from regard.tasks.write import Write

WRITES = (Write, Translate)
STEPS = 12  # tokens that are taken one by one


def causality(loaded: Loaded, sample: Sample) -> list[Verdict]:
    """All from some place on is changed, of two rows."""
    if not isinstance(loaded.task, WRITES):
        return []
    worst, guilty = 0.0, ""
    for row in (0, len(sample.ids) - 1):
        base = sample.given([row])
        ids, whole = written(base), outputs(loaded, base)
        T = ids.size(1)
        for t in sorted({1, 2, T // 2, T - 1} & {*range(1, T)}):
            changed = with_written(base, changed_at(ids, t, sample.plain))
            difference = apart(whole[0, :t], outputs(loaded, changed)[0, :t])
            if not difference <= worst:
                worst = difference
                guilty = "" if difference <= CLOSE else first_apart(loaded, base, changed, upto=t)
    says = f"tokens that follow move what stands before them by {worst:.1e}"
    advice = f"It sees what it has yet to write, first in {guilty}: without a causal mask its loss means nothing."
    return [within("causality", worst, CLOSE, says, advice)]


def written(given: Given) -> Tensor:
    """(B,T): the tokens of which each should be guessed from those before it."""
    return given.x if given.target is None else given.target


def with_written(given: Given, ids: Tensor) -> Given:
    return given._replace(x=ids) if given.target is None else given._replace(target=ids)


def changed_at(ids: Tensor, t: int, plain: list[int]) -> Tensor:
    """Another token at place t and at all that follow."""
    changed = ids.clone()
    others = [plain[(i + int(ids[0, i])) % len(plain)] for i in range(t, ids.size(1))]
    changed[0, t:] = torch.tensor(others)
    changed[0, t] = next(token for token in plain if token != ids[0, t])
    return changed


def cache(loaded: Loaded, sample: Sample) -> list[Verdict]:
    if not isinstance(loaded.task, WRITES):
        return []
    rows = range(len(sample.ids)) if sample.targets else range(2)
    texts = sample.targets or sample.ids
    length = min(STEPS, *(len(texts[i]) for i in rows))
    given = sample.given(rows) if sample.targets else sample.given(rows, length)
    given = with_written(given, written(given)[:, :length])
    whole = outputs(loaded, given)
    ways = {
        "token by token": [1] * length,
        "in chunks": [size for size in (length // 2, 1, length - length // 2 - 1) if size],
    }
    found = {way: apart(whole, stepped(loaded, given, sizes)) for way, sizes in ways.items()}
    found["rows that change places"] = apart(whole, stepped(loaded, given, [1] * length, swap=True))
    worst = max(found, key=lambda way: found[way] if found[way] == found[way] else float("inf"))
    says = f"{worst} differs from all at once by {found[worst]:.1e}"
    advice = "It does not write what it was trained to: look at where positions start, and at what the cache keeps."
    return [within("cache", found[worst], CLOSE, says, advice)]


@torch.inference_mode()
def stepped(loaded: Loaded, given: Given, sizes: Sequence[int], swap: bool = False) -> Tensor:
    """The outputs, some tokens at a time. If `swap`, the rows turn round halfway, as the beams of a search do."""
    model: Any = loaded.model
    device = next(model.parameters()).device
    ids = written(given).to(device)
    mask = None if given.mask is None else given.mask.to(device)
    translates = given.target is not None
    caches = model.body.read(given.x.to(device), mask) if translates else model.body.caches()
    body = model.body.decode if translates else model.body
    turned = torch.arange(len(ids), device=device).flip(0)
    found: list[Tensor] = []
    for number, part in enumerate(ids.split(list(sizes), 1)):
        if swap and number == len(sizes) // 2:
            select(caches, turned, turned)
        late = swap and number >= len(sizes) // 2
        out = model.head(body(part[turned] if late else part, cache=caches))
        found.append(out[turned] if late else out)
    return torch.cat(found, 1).cpu()
