"""What every member of the family must do, whatever it is made of. A new entry of MODELS is tested by being there."""

import ast
import difflib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from regard import models
from regard.hub.folder import read_config, read_weights, write_config, write_weights
from regard.look import look
from regard.models import ABILITIES, MODELS
from regard.parts.cache import Cache, select
from regard.parts.heads import Model

B, T, S, V, D, C, E = 3, 9, 7, 19, 24, 3, 5
P, KINDS = 4, 11  # properties of an atom, and kinds of pairs
IMAGE, CONTEXT, SEP = 8, 17, 4
MELS, STRIDE = 6, 2
LENGTHS = [T, 2, 5]
PACKED = [[4, 3, 2], [9], [1, 8]]  # lengths of the documents in each row
PIECES = {"one by one": [1] * T, "a prompt in two pieces": [5, 3, 1], "all at once": [T]}
SMALL: dict[str, Any] = {
    "vocab": V, "context": CONTEXT, "dim": D, "layers": 2, "encoder_layers": 2, "decoder_layers": 2, "stages": 2,
    "heads": 3, "kv_heads": 1, "hidden": 20, "dropout": 0.0, "sep": SEP,
    "atom_features": V, "pair_kinds": KINDS,
    "image_size": IMAGE, "channels": C, "patch_size": 4, "image_dim": 16, "image_layers": 1, "image_heads": 2, "projection_dim": E,
    "observation_dim": 6, "observation_tokens": 2, "num_actions": V,
    "mels": MELS, "stride": STRIDE,
}  # fmt: skip


def variants(config: type[Any]) -> Iterator[dict[str, Any]]:
    """The small one, then each switch of a family turned and each of its words chosen, one at a time."""
    yield {}
    for field, kind in get_type_hints(config).items():
        usual = config.__dataclass_fields__[field].default
        if kind is bool:
            yield {field: not usual}
        elif get_origin(kind) is Literal:
            yield from ({field: word} for word in get_args(kind) if word != usual)


CASES = [
    pytest.param(name, ability, variant, id="-".join([name, ability, *(f"{k}={v}" for k, v in variant.items())]))
    for name, family in MODELS.items()
    for ability in family.bodies
    for variant in variants(family.config)
]


def those_that(*abilities: str) -> pytest.MarkDecorator:
    """Every body with one of these abilities, in all its variants."""
    some = [case for case in CASES if not abilities or case.values[1] in abilities]
    return pytest.mark.parametrize(("name", "ability", "variant"), some)


def config_of(name: str, variant: dict[str, Any]) -> Any:
    kind = MODELS[name].config
    return kind(**{f.name: SMALL[f.name] for f in fields(kind) if f.name in SMALL} | variant)


def made(name: str, ability: str, variant: dict[str, Any], seed: int = 1) -> Any:
    """A body in which no weight stays the zero or the one that it began as."""
    torch.manual_seed(seed)
    body = MODELS[name].bodies[ability](config_of(name, variant))
    with torch.no_grad():
        for weight in body.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return body.double().eval()


def headed(body: Any, seed: int = 2) -> Model:
    torch.manual_seed(seed)
    return Model(body, body.lm_head() if hasattr(body, "lm_head") else nn.Linear(D, 4)).double()


def close(one: Tensor, other: Tensor) -> None:
    """Rotary tables are computed in single precision; all else is exact."""
    assert_close(one, other, rtol=1e-6, atol=1e-6)


def ids(length: int = T, seed: int = 0) -> Tensor:
    """The rows begin with different tokens, and hold a separator."""
    given = torch.randint(V - 1, (B, length), generator=torch.Generator().manual_seed(10 * seed + length))
    given[:, 0] = torch.arange(B)
    given[:, length // 2] = SEP
    return given


def pixels() -> Tensor:
    return torch.randn(B, C, IMAGE, IMAGE, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def molecules(longest: int = T) -> Tensor:
    """Properties of atoms, and pairs that are the same from both sides."""
    luck = torch.Generator().manual_seed(5)
    atoms = torch.randint(V, (B, longest, P), generator=luck)
    pairs = torch.randint(KINDS, (B, longest, longest), generator=luck)
    return torch.cat((atoms, torch.maximum(pairs, pairs.mT)), -1)


def frames(length: int = T, seed: int = 0) -> Tensor:
    """As many as make `length` tokens."""
    luck = torch.Generator().manual_seed(seed + 100 * length)
    return torch.randn(B, length * STRIDE, MELS, dtype=torch.float64, generator=luck)


def source(ability: str) -> Tensor:
    """Of S tokens."""
    return ids(S, seed=1) if ability == "translates" else frames(S)


def source_as(body: Any, ability: str) -> Tensor:
    """In the precision of a body, if it is no text."""
    given = source(ability)
    return given.to(dtype_of(body)) if given.is_floating_point() else given


def padding(lengths: list[int], longest: int) -> Tensor:
    return (torch.arange(longest) < torch.tensor(lengths)[:, None])[:, None, None]


def translated(body: Any) -> Tensor:
    return body(ids(S, seed=1), ids(), padding([S, 3, 5], S))


def transcribed(body: Any) -> Tensor:
    return body(frames(S).to(dtype_of(body)), ids(), padding([S, 3, 5], S))


def dtype_of(body: Any) -> torch.dtype:
    return next(body.parameters()).dtype


def matched(body: Any) -> Tensor:
    return body(pixels()[:2], ids(), padding(LENGTHS, T))


def world(given: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """What is done at each step, and what is observed, which follows from it."""
    done = ids() if given is None else given
    return torch.stack([(done * k + k).double().cos() for k in range(1, 13)], -1).unflatten(-1, (2, 6)), done


RUN: dict[str, Callable[[Any], Tensor]] = {
    "gathers": lambda body: body(ids(), padding(LENGTHS, T)),
    "reads": lambda body: body(ids(), padding(LENGTHS, T)),
    "fills": lambda body: body(ids(), padding(LENGTHS, T)),
    "writes": lambda body: body(ids()),
    "translates": translated,
    "sees": lambda body: body(pixels()),
    "spells": lambda body: body(ids(), padding(LENGTHS, T)),
    "bonds": lambda body: body(molecules(), padding(LENGTHS, T)),
    "matches": matched,
    "foresees": lambda body: body(*world(), padding(LENGTHS, T)),
    "hears": lambda body: body(frames().to(dtype_of(body)), padding(LENGTHS, T)),
    "transcribes": transcribed,
}
RUN_SINGLE = RUN | {
    "foresees": lambda body: body(world()[0].float(), world()[1], padding(LENGTHS, T)),
    "sees": lambda body: body(pixels().float()),
    "matches": lambda body: body(pixels()[:2].float(), ids(), padding(LENGTHS, T)),
}
SHAPES = {
    "gathers": (B, 1, D),
    "reads": (B, T, D),
    "fills": (B, T, D),
    "writes": (B, T, D),
    "spells": (B, T, D),
    "translates": (B, T, D),
    "bonds": (B, T, D),
    "matches": (2, B),
    "foresees": (B, T, 3, D),
    "hears": (B, T, D),
    "transcribes": (B, T, D),
}


def test_every_ability_is_told_and_tested() -> None:
    found = {ability for family in MODELS.values() for ability in family.bodies}
    assert found == {*ABILITIES} == {*RUN}


@those_that()
def test_a_body_maps_its_input_to_vectors_of_its_width(name: str, ability: str, variant: dict[str, Any]) -> None:
    body = made(name, ability, variant)
    out = RUN[ability](body)
    if ability == "sees":
        assert out.shape[::2] == (B, D)
        assert out.size(1) >= 1
    else:
        assert out.shape == SHAPES[ability]
    assert out.isfinite().all()
    assert type(body.config) is MODELS[name].config


@those_that()
def test_who_is_looked_at_says_the_same(name: str, ability: str, variant: dict[str, Any]) -> None:
    """To the last bit, in the precision that users have; and what is seen of attention adds up to 1."""
    body = made(name, ability, variant).float()
    inputs = RUN_SINGLE[ability]
    with torch.inference_mode():
        alone = inputs(body)
        with look(body) as seen:
            looked_at = inputs(body)
    assert torch.equal(looked_at, alone)
    assert not any(module._forward_hooks for module in body.modules())
    for path, tensor in seen.items():
        if path.endswith("weights"):
            assert_close(tensor.sum(-1), torch.ones_like(tensor[..., 0]), rtol=0, atol=1e-6)


@those_that("matches")
def test_both_towers_meet_at_vectors_of_length_one(name: str, ability: str, variant: dict[str, Any]) -> None:
    body = made(name, ability, variant)
    for vectors in (body.image(pixels()), body.text(ids(), padding(LENGTHS, T))):
        assert vectors.shape == (B, E)
        close(vectors.norm(dim=-1), torch.ones(B, dtype=torch.float64))


@those_that()
def test_every_weight_learns_but_the_bias_of_keys_which_no_softmax_can_see(
    name: str, ability: str, variant: dict[str, Any]
) -> None:
    body = made(name, ability, variant).train()
    model = headed(body)
    x = RUN[ability](body)
    y = x if ability == "matches" else model.head(x)
    torch.manual_seed(4)
    (y * torch.randn_like(y)).sum().backward()
    trained = body if ability == "matches" else model
    for weight_name, weight in trained.named_parameters():
        assert weight.grad is not None, weight_name
        assert weight.grad.isfinite().all(), weight_name
        assert weight.grad.abs().max() > 1e-9 or weight_name.endswith("key.bias"), weight_name


@those_that()
def test_an_example_is_answered_as_if_it_were_alone(name: str, ability: str, variant: dict[str, Any]) -> None:
    body = made(name, ability, variant)
    together = RUN[ability](body)
    for b, (length, heard) in enumerate(zip(LENGTHS, [S, 3, 5], strict=True)):
        text = ids()[b : b + 1, :length]
        if ability == "sees":
            close(body(pixels()[b : b + 1])[0], together[b])
        elif ability == "bonds":
            close(body(molecules()[b : b + 1, :length, : P + length])[0], together[b, :length])
        elif ability == "gathers":
            close(body(text)[0], together[b])
        elif ability == "translates":
            close(body(ids(S, seed=1)[b : b + 1, :heard], text)[0], together[b, :length])
        elif ability == "transcribes":
            close(body(frames(S)[b : b + 1, : heard * STRIDE], text)[0], together[b, :length])
        elif ability == "hears":
            close(body(frames()[b : b + 1, : length * STRIDE])[0], together[b, :length])
        elif ability == "matches":
            close(body(pixels()[:2], text)[:, 0], together[:, b])
        elif ability == "foresees":
            close(body(*world(text))[0], together[b, :length])
        else:
            close(body(text)[0], together[b, :length])


@those_that("writes", "translates", "transcribes", "foresees")
def test_what_comes_later_cannot_change_what_came_before(name: str, ability: str, variant: dict[str, Any]) -> None:
    body = made(name, ability, variant)
    given = ids()
    runs = {"writes": body, "foresees": lambda done: body(*world(done))}
    run = runs.get(ability, lambda target: body(source(ability), target))
    before = run(given)
    for changed in range(T):
        other = given.clone()
        other[:, changed:] = (given[:, changed:] + 1) % (V - 1)
        after = run(other)
        close(after[:, :changed], before[:, :changed])
        assert ((after - before)[:, changed:].abs().amax(-1) > 1e-6).all()


@those_that("fills", "spells")
def test_both_sides_are_seen_where_a_hidden_word_is_guessed(name: str, ability: str, variant: dict[str, Any]) -> None:
    body = made(name, ability, variant | {switch: False for switch in variant if switch == "unidirectional"})
    before = body(ids())
    for changed in range(T):
        other = ids()
        other[:, changed] = (other[:, changed] + 1) % (V - 1)
        assert ((body(other) - before).abs().amax(-1) > 1e-9).all()


@those_that("writes", "translates", "transcribes", "foresees")
@pytest.mark.parametrize("pieces", PIECES)
def test_through_the_cache_equals_without(name: str, ability: str, variant: dict[str, Any], pieces: str) -> None:
    body, given = made(name, ability, variant), ids()
    caches, step, whole = with_cache(body, ability)
    with torch.inference_mode():
        parts = [step(part, caches) for part in given.split(PIECES[pieces], 1)]
    assert {cache.length for cache in caches} == {T * (3 if ability == "foresees" else 1)}
    close(torch.cat(parts, 1), whole(given))


@those_that("writes", "translates", "transcribes", "foresees")
@pytest.mark.parametrize("rows", [[2, 0], [1, 1, 0, 2], [0]])
def test_a_cache_goes_on_with_any_rows(name: str, ability: str, variant: dict[str, Any], rows: list[int]) -> None:
    body, given, chosen = made(name, ability, variant), ids(), torch.tensor(rows)
    caches, step, whole = with_cache(body, ability)
    with torch.inference_mode():
        step(given[:, :5], caches)
        select(caches, chosen, chosen)
        parts = [step(given[chosen, t : t + 1], caches) for t in range(5, T)]
    close(torch.cat(parts, 1), whole(given)[chosen, 5:])


@those_that("translates", "transcribes")
def test_beams_share_the_source_of_their_sentence(name: str, ability: str, variant: dict[str, Any]) -> None:
    body, given, beams = made(name, ability, variant), ids(), torch.arange(B).repeat_interleave(2)
    caches, step, whole = with_cache(body, ability)
    other = (given + torch.arange(T)) % (V - 1)
    both = torch.stack((given, other), 1).flatten(0, 1)
    with torch.inference_mode():
        select(caches, beams)
        parts = [step(both[:, t : t + 1], caches) for t in range(T)]
    close(torch.cat(parts, 1)[::2], whole(given))
    close(torch.cat(parts, 1)[1::2], whole(other))


def with_cache(body: Any, ability: str) -> tuple[list[Cache], Callable[..., Tensor], Callable[[Tensor], Tensor]]:
    """Caches that are ready, a step through them, and the same without."""
    if ability == "writes":
        return body.caches(), lambda new, caches: body(new, cache=caches), body
    if ability == "foresees":
        return body.caches(), lambda new, caches: body(*world(new), cache=caches), lambda done: body(*world(done))
    read, mask = source(ability), padding([S, 3, 5], S)
    with torch.inference_mode():
        caches = body.decoder_caches(read, mask)
    return caches, lambda new, caches: body.decode(new, cache=caches), lambda target: body(read, target, mask)


@those_that("gathers", "reads", "fills", "writes", "spells", "translates", "matches", "foresees")
@pytest.mark.parametrize("more", [0, 1, 8])
def test_padding_is_invisible_whatever_stands_there(
    name: str, ability: str, variant: dict[str, Any], more: int
) -> None:
    body, given = made(name, ability, variant), ids()
    mask, longer = padding(LENGTHS, T), padding(LENGTHS, T + more)
    wider = torch.cat((given, ids(8)[:, :more]), 1)
    garbage = torch.where(longer[:, 0, 0], wider, (wider * 7 + 3) % V)
    if ability == "translates":
        close(body(garbage, given, longer), body(given, given, mask))
    elif ability == "matches":
        close(body.text(garbage, longer), body.text(given, mask))
    elif ability == "gathers":
        close(body(garbage, longer), body(given, mask))
    elif ability == "foresees":
        close(body(*world(garbage), longer)[:, :T][mask[:, 0, 0]], body(*world(given), mask)[mask[:, 0, 0]])
    else:
        real = mask[:, 0, 0]
        close(body(garbage, longer)[:, :T][real], body(given, mask)[real])


@those_that("bonds")
@pytest.mark.parametrize("more", [0, 1, 8])
def test_padding_of_a_molecule_is_invisible_whatever_stands_there(
    name: str, ability: str, variant: dict[str, Any], more: int
) -> None:
    body, mask, longer = made(name, ability, variant), padding(LENGTHS, T), padding(LENGTHS, T + more)
    given, garbage = molecules(), molecules(T + more)
    garbage[:, :T, : P + T] = torch.where(mask[:, 0, 0, :, None], given, garbage[:, :T, : P + T])
    for b, length in enumerate(LENGTHS):  # what stands at pairs with the padding
        garbage[b, :length, P + length :] = (garbage[b, :length, P + length :] + 3) % KINDS
    real = mask[:, 0, 0]
    close(body(garbage, longer)[:, :T][real], body(given, mask)[real])


@those_that("hears", "transcribes")
@pytest.mark.parametrize("more", [0, 1, 8])
def test_so_is_what_stands_behind_the_end_of_a_sound(
    name: str, ability: str, variant: dict[str, Any], more: int
) -> None:
    body, mask, longer = made(name, ability, variant), padding(LENGTHS, T), padding(LENGTHS, T + more)
    real = longer[:, 0, 0].repeat_interleave(STRIDE, 1)[..., None]
    wider = torch.cat((frames(), frames(8)[:, : more * STRIDE]), 1)
    garbage = wider.where(real, wider * 7 + 3)
    if ability == "transcribes":
        close(body(garbage, ids(), longer), body(frames(), ids(), mask))
    else:
        close(body(garbage, longer)[:, :T][mask[:, 0, 0]], body(frames(), mask)[mask[:, 0, 0]])


@those_that("reads", "fills", "writes", "spells", "foresees")
def test_documents_packed_into_a_row_equal_each_alone(name: str, ability: str, variant: dict[str, Any]) -> None:
    body, given = made(name, ability, variant), ids()
    number = torch.stack([torch.tensor([i for i, n in enumerate(row) for _ in range(n)]) for row in PACKED])
    run = (lambda done, mask=None: body(*world(done), mask)) if ability == "foresees" else body
    together = run(given, (number[:, :, None] == number[:, None])[:, None])
    for b, row in enumerate(PACKED):
        for end, length in zip(torch.tensor(row).cumsum(0).tolist(), row, strict=True):
            close(together[b, end - length : end], run(given[b : b + 1, end - length : end])[0])


@those_that("fills", "writes", "spells", "translates", "transcribes")
def test_the_loss_of_a_vocabulary_is_the_cross_entropy_of_its_logits(
    name: str, ability: str, variant: dict[str, Any]
) -> None:
    body = made(name, ability, variant)
    model, wanted = headed(body), ids(seed=2)
    x = RUN[ability](body).detach()
    mine, theirs = (x.flatten(0, 1).requires_grad_() for _ in range(2))
    loss = model.head.loss(mine, wanted.flatten())
    true = F.cross_entropy(model.head(theirs), wanted.flatten(), reduction="sum")
    close(loss, true)
    close(*(torch.autograd.grad(total, x)[0] for total, x in ((loss, mine), (true, theirs))))


@pytest.mark.parametrize(
    ("name", "ability"), [(n, ability) for n, family in MODELS.items() for ability in family.bodies]
)
def test_one_batch_is_learnt_by_heart(name: str, ability: str) -> None:
    torch.manual_seed(1)
    body = MODELS[name].bodies[ability](config_of(name, {})).train()
    model = headed(body)
    optimizer = torch.optim.AdamW(model.parameters(), 0.005)
    losses = []
    for _ in range(100 if ability == "matches" else 40):  # towers that start small find everything alike for a while
        loss = guesses(model, ability)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.2 * losses[0], losses


def guesses(model: Model, ability: str) -> Tensor:
    """How far off: the next word, the word itself, one label for each, or which text belongs to which picture."""
    body, given = model.body, ids()
    if ability == "matches":
        scores, own = body(pixels(), given, padding(LENGTHS, T)), torch.arange(B)
        return F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)
    if ability == "foresees":
        seen, done = world(given[:, :-1])
        return F.cross_entropy(model.head(body(seen, done)[:, :, -1]).flatten(0, 1), given[:, 1:].flatten() % 4)
    if ability in ("gathers", "sees", "hears", "bonds"):
        return F.cross_entropy(model.head(RUN[ability](body).mean(1)), torch.arange(B))
    after = ("translates", "transcribes")
    x = body(source_as(body, ability), given[:, :-1]) if ability in after else body(given[:, :-1])
    wanted = given[:, 1:] if ability in ("writes", *after) else given[:, :-1]
    return F.cross_entropy(model.head(x).flatten(0, 1), wanted.flatten())


@those_that()
def test_a_folder_holds_all_of_a_model(name: str, ability: str, variant: dict[str, Any], tmp_path: Path) -> None:
    body = made(name, ability, variant).float()
    RUN[ability](body.train().double())  # batch norms have counted something
    model = headed(body).float().eval()
    first, second = tmp_path / "model.safetensors", tmp_path / "again.safetensors"
    write_config(tmp_path, model)
    write_weights(first, model)
    names, config = read_config(tmp_path)
    assert config == body.config
    fresh = headed(MODELS[names.model].bodies[ability](config), seed=9).float().eval()
    read_weights(tmp_path, names, fresh)
    assert all(torch.equal(tensor, fresh.state_dict()[key]) for key, tensor in model.state_dict().items())
    write_weights(second, fresh)
    assert first.read_bytes() == second.read_bytes()
    close(RUN[ability](fresh.double().body), RUN[ability](model.double().body))


@pytest.mark.parametrize("name", MODELS)
def test_every_named_size_is_one_that_can_be(name: str) -> None:
    family = MODELS[name]
    needed = {f.name: SMALL[f.name] for f in fields(family.config) if f.default is MISSING}
    assert family.sizes
    for size in family.sizes.values():
        config = family.config(**needed | size)
        assert all(getattr(config, field) == value for field, value in size.items())


@pytest.mark.parametrize("file", sorted(Path(models.__file__).parent.glob("*.py")), ids=lambda file: file.stem)
def test_a_model_is_read_on_two_pages(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 150


def test_two_models_that_differ_in_five_ways_differ_in_few_lines() -> None:
    """diff gpt.py llama.py is the lecture."""

    def lines(module: Any) -> list[str]:
        text = inspect.getsource(module)
        [sizes] = [node for node in ast.parse(text).body if isinstance(node, ast.AnnAssign)]
        assert sizes.end_lineno
        return text.splitlines()[: sizes.lineno - 1] + text.splitlines()[sizes.end_lineno :]

    differs = [line for line in difflib.ndiff(lines(models.gpt), lines(models.llama)) if line[0] in "+-"]
    assert len(differs) < 60, "\n".join(differs)
