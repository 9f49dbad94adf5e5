"""The residual stream: what every block leaves of each token, and what the model would say if it stopped there.

    guess_l = softmax(head(norm(x_l)))          the logit lens, nostalgebraist 2020

Where the norm comes after each part, x_l is normed already. The last guess is the model's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.tasks.fill import Fill
from regard.tasks.tag import Tag
from regard.tasks.translate import Translate
from regard.tasks.write import Write
from regard.view.trace import Inside
from regard.view.word_pieces import mark_of, shown

BEST = 5  # guesses for each token
SAYS = {  # what the head makes of a token
    Translate: "which token it would write next",
    Write: "which token it would write next",
    Fill: "which token it would put in this place",
    Tag: "which tag it would give this word",
}

Guess = tuple[str, float]


@dataclass(frozen=True)
class Stream:
    tokens: list[str]
    layers: list[str]
    states: Tensor  # (layers,T,D)
    lens: list[list[list[Guess]]] | None  # of each layer and token, the best guesses
    wanted: list[str] | None
    says: str


def stream(inside: Inside) -> Stream | None:
    """Of a stack of blocks: of two, the one that writes."""
    stack = "blocks" if inside.source is None else "decoder"
    if f"body.{stack}.0.mixer" not in inside.seen:
        return None
    count = len(getattr(inside.model.body, stack))
    states = torch.cat([inside.seen[f"body.{part}"] for part in ("drop", *(f"{stack}.{i}" for i in range(count)))])
    tokens = inside.given.pieces
    if isinstance(inside.task, Tag):  # a word has the tag of its first piece
        first = [inside.given.places.index(word) for word in range(len(inside.given.words))]
        states, tokens = states[:, first], inside.given.words
    guess = SAYS.get(type(inside.task))
    says = (
        f"Had the model stopped after a block: {guess}, and how sure it is."
        if guess
        else "No token has its own answer."
    )
    return Stream(
        tokens,
        ["embedding", *(f"block {i + 1}" for i in range(count))],
        states,
        lens(inside, states) if guess else None,
        inside.wanted.pieces if inside.wanted else None,
        f"{says} The chart has the length of each token's vector: it grows as blocks add to it, unless each norms it.",
    )


@torch.inference_mode()
def guessed(inside: Inside, state: Tensor) -> Tensor:
    """What the head makes of the stream after a block, (1,T,D) -> (1,T,V)."""
    body = inside.model.body
    norm = body.norm if inside.source is None else body.decoder_norm
    return inside.model.head(norm(state))


def lens(inside: Inside, states: Tensor) -> list[list[list[Guess]]]:
    task, name, found = inside.task, naming(inside.task), []
    answers = len(task.tags if isinstance(task, Tag) else task.tokenizer)
    for state in states:
        chances = guessed(inside, state[None])[0].float().softmax(-1).cpu()  # (T,V)
        best = chances[:, :answers].topk(min(BEST, answers))
        rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        found.append([[(name(i), round(p, 5)) for i, p in zip(*row, strict=True)] for row in rows])
    return found


def naming(task: Any) -> Callable[[int], str]:
    """What an answer is called: a tag, or a piece."""
    if isinstance(task, Tag):
        return lambda answer: task.tags[answer]
    mark = mark_of(task.tokenizer)
    return lambda answer: shown(task.tokenizer.pieces([answer])[0], mark)


def stream_tab(found: Stream) -> dict[str, Any]:
    return {
        "kind": "stream",
        "title": "The stream",
        "says": found.says,
        "tokens": found.tokens,
        "layers": found.layers,
        "norms": [[round(x, 4) for x in row] for row in found.states.float().norm(dim=-1).tolist()],
        "lens": found.lens,
        "wanted": found.wanted,
    }
