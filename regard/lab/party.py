"""party: who was it that I met first?

    sum  S' = S + k vᵀ        γ  S' = γ S + k vᵀ        both return q S'        attention keeps every k and v

Claim (deck M, "Review", the party): a sum has limited capacity, so recall degrades as it fills; a decay γ frees
capacity and forgets the first guests, with γ⁴ left of the first of five; attention does neither. Every guest has a
face, the key, and a name, the value. After each guest the memory is queried with a face and returns a name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from regard.lab.result import LabResult, Tracker, plot_curves, prefixed, subplots, table_rows
from regard.parts.attention import attend
from regard.parts.linear_attention import linear_attention_parallel
from regard.validate import check_fields, check_minimum

MIN_RECALLED, MAX_FORGOTTEN = 0.9, 0.1  # cosine of the returned and the right name: at least, and below
TOLERANCE = 0.1  # of the cosine that random faces predict
STYLES = {"sum": "C1--", "γ": "k:", "attention": "C0-"}


@dataclass(frozen=True)
class PartyOptions:
    people: int = 200  # number of guests
    dim: int = 64  # width of a face and of a name
    gamma: float = 0.9  # decay of the γ memory after each guest
    parties: int = 50  # number of parties in the mean
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_fields(self, gamma=(0 < self.gamma < 1, "between 0 and 1"))
        check_minimum(self, 1, "parties")
        check_minimum(self, 2, "dim")
        check_minimum(self, 4, "people")


QUICK = PartyOptions(people=80, parties=10)


def recall_states(q: Tensor, k: Tensor, v: Tensor, gamma: float) -> Tensor:
    """Outputs (B,1,T,E) of a memory that is queried after each guest; γ = 1 is the sum."""
    empty = k.new_zeros(len(k), 1, k.size(-1), v.size(-1))
    return linear_attention_parallel(q, k, v, k.new_tensor([gamma]), empty)[0]


def memories(gamma: float) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    return {
        "sum": partial(recall_states, gamma=1.0),
        "γ": partial(recall_states, gamma=gamma),
        "attention": partial(attend, causal=True),
    }


def cosine_by_step(answers: Tensor, names: Tensor) -> list[float]:
    """The cosine of each output and the right name after each guest, mean over parties."""
    return F.cosine_similarity(answers, names, -1).mean((0, 1)).tolist()


def run(options: PartyOptions, track: Tracker) -> LabResult:
    torch.manual_seed(options.seed)
    faces = torch.randn(options.parties, 1, options.people, options.dim)  # (B,1,T,E)
    names = torch.randn_like(faces)
    first: dict[str, list[float]] = {}
    latest: dict[str, list[float]] = {}
    for name, recall in track(list(memories(options.gamma).items())):
        first[name] = cosine_by_step(recall(faces[:, :, :1].expand_as(faces), faces, names), names[:, :, :1])
        latest[name] = cosine_by_step(recall(faces, faces, names), names)
    # Random faces have a cosine of about 1/√E, so every other guest adds its name with about that weight.
    prediction = [(1 + step / options.dim) ** -0.5 for step in range(options.people)]
    max_error = max(abs(measured - predicted) for measured, predicted in zip(first["sum"], prediction, strict=True))

    steps = (1, options.people // 4, options.people // 2, options.people)
    final = {name: (first[name][-1], latest[name][-1]) for name in first}
    return LabResult(
        plot(first, latest, options.gamma),
        table_rows(
            {"guests": steps},
            prefixed("first", {name: [cosines[step - 1] for step in steps] for name, cosines in first.items()}),
            prefixed("latest", {name: [cosines[step - 1] for step in steps] for name, cosines in latest.items()}),
        ),
        summary=f"After {options.people} guests the cosine of the sum's output with the first name is "
        f"{final['sum'][0]:.2f} (predicted: {prediction[-1]:.2f}), and with the latest {final['sum'][1]:.2f}: all "
        f"degrade alike. The γ memory has {final['γ'][1]:.2f} of the latest and {final['γ'][0]:.2f} of the first, "
        f"attention {final['attention'][1]:.2f} and {final['attention'][0]:.2f}.",
        expected=f"the sum falls as 1/√(1 + people / dim) for everyone, γ keeps the latest (above {MIN_RECALLED}) "
        f"and loses the first (below {MAX_FORGOTTEN}), attention keeps both (above {MIN_RECALLED}) at every step",
        holds=max_error < TOLERANCE
        and prediction[-1] < MIN_RECALLED
        and abs(final["sum"][1] - prediction[-1]) < TOLERANCE
        and min(latest["γ"]) > MIN_RECALLED
        and final["γ"][0] < MAX_FORGOTTEN
        and min(first["attention"] + latest["attention"]) > MIN_RECALLED,
    )


def plot(first: dict[str, list[float]], latest: dict[str, list[float]], gamma: float) -> Figure:
    figure, axes = subplots(2)
    for axis, cosines, guest in zip(axes, (first, latest), ("first", "latest"), strict=True):
        steps = range(1, len(cosines["sum"]) + 1)
        plot_curves(axis, steps, cosines, STYLES, xlabel="guests", title=f"query: the {guest} guest", ylim=(-0.1, 1.05))
    axes[0].set_ylabel("cosine with the right name")
    axes[1].legend([kind if kind != "γ" else f"γ = {gamma:g}" for kind in latest], frameon=False, loc="lower left")
    return figure
