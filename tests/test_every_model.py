"""Contracts of every model in MODELS; a new entry is tested by being listed."""

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
P, KINDS = 4, 11  # features per atom, and pair kinds
IMAGE, CONTEXT, SEP = 8, 17, 4
MELS, STRIDE = 6, 2
LENGTHS = [T, 2, 5]
PACKED = [[4, 3, 2], [9], [1, 8]]  # lengths of the documents in each row
CHUNKS = {"single tokens": [1] * T, "a prompt in two chunks": [5, 3, 1], "one chunk": [T]}
SMALL: dict[str, Any] = {
    "vocab": V, "context": CONTEXT, "dim": D, "layers": 2, "encoder_layers": 2, "decoder_layers": 2, "stages": 2,
    "heads": 3, "kv_heads": 1, "hidden": 20, "dropout": 0.0, "sep": SEP,
    "atom_features": V, "pair_kinds": KINDS, "projection_dim": E,
    "image_size": IMAGE, "channels": C, "patch_size": 4, "image_dim": 16, "image_layers": 1, "image_heads": 2,
    "observation_dim": 6, "observation_tokens": 2, "num_actions": V,
    "mels": MELS, "stride": STRIDE,
}  # fmt: skip


def variants(config: type[Any]) -> Iterator[dict[str, Any]]:
    """The small config, then one for each flipped boolean and each other choice of a Literal."""
    yield {}
    for field, kind in get_type_hints(config).items():
        default = config.__dataclass_fields__[field].default
        if kind is bool:
            yield {field: not default}
        elif get_origin(kind) is Literal:
            yield from ({field: word} for word in get_args(kind) if word != default)


CASES = [
    pytest.param(name, ability, variant, id="-".join([name, ability, *(f"{k}={v}" for k, v in variant.items())]))
    for name, family in MODELS.items()
    for ability in family.bodies
    for variant in variants(family.config)
]


def bodies_with(*abilities: str) -> pytest.MarkDecorator:
    """Parametrize over all variants of the bodies with one of these abilities."""
    cases = [case for case in CASES if not abilities or case.values[1] in abilities]
    return pytest.mark.parametrize(("name", "ability", "variant"), cases)


def config_of(name: str, variant: dict[str, Any]) -> Any:
    kind = MODELS[name].config
    return kind(**{f.name: SMALL[f.name] for f in fields(kind) if f.name in SMALL} | variant)


def make_body(name: str, ability: str, variant: dict[str, Any], seed: int = 1) -> Any:
    """A body with noise added to every weight, so that none stays at its initial zero or one."""
    torch.manual_seed(seed)
    body = MODELS[name].bodies[ability](config_of(name, variant))
    with torch.no_grad():
        for weight in body.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return body.double().eval()


def with_head(body: Any, seed: int = 2) -> Model:
    torch.manual_seed(seed)
    return Model(body, body.lm_head() if hasattr(body, "lm_head") else nn.Linear(D, 4)).double()


def assert_near(actual: Tensor, expected: Tensor) -> None:
    """Rotary tables are in single precision; the rest is in double precision."""
    assert_close(actual, expected, rtol=1e-6, atol=1e-6)


def ids(length: int = T, seed: int = 0) -> Tensor:
    """Rows start with different tokens and contain a separator."""
    tokens = torch.randint(V - 1, (B, length), generator=torch.Generator().manual_seed(10 * seed + length))
    tokens[:, 0] = torch.arange(B)
    tokens[:, length // 2] = SEP
    return tokens


def pixels() -> Tensor:
    return torch.randn(B, C, IMAGE, IMAGE, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def molecules(longest: int = T) -> tuple[Tensor, Tensor]:
    """Atom features, and symmetric pair kinds."""
    generator = torch.Generator().manual_seed(5)
    atoms = torch.randint(V, (B, longest, P), generator=generator)
    pairs = torch.randint(KINDS, (B, longest, longest), generator=generator)
    return atoms, torch.maximum(pairs, pairs.mT)


def frames(length: int = T, seed: int = 0) -> Tensor:
    """Frames for `length` tokens."""
    generator = torch.Generator().manual_seed(seed + 100 * length)
    return torch.randn(B, length * STRIDE, MELS, dtype=torch.float64, generator=generator)


def source(ability: str) -> Tensor:
    """A source of S tokens."""
    return ids(S, seed=1) if ability == "translates" else frames(S)


def source_as(body: Any, ability: str) -> Tensor:
    """The source, in the precision of the body if it is audio."""
    tokens = source(ability)
    return tokens.to(dtype_of(body)) if tokens.is_floating_point() else tokens


def padding(lengths: list[int], longest: int) -> Tensor:
    return (torch.arange(longest) < torch.tensor(lengths)[:, None])[:, None, None]


def run_translator(body: Any) -> Tensor:
    return body(ids(S, seed=1), ids(), padding([S, 3, 5], S))


def run_transcriber(body: Any) -> Tensor:
    return body(frames(S).to(dtype_of(body)), ids(), padding([S, 3, 5], S))


def dtype_of(body: Any) -> torch.dtype:
    return next(body.parameters()).dtype


def run_matcher(body: Any) -> Tensor:
    return body(pixels()[:2], ids(), padding(LENGTHS, T))


def make_steps(tokens: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Observations, computed from the actions, and the actions."""
    actions = ids() if tokens is None else tokens
    return torch.stack([(actions * k + k).double().cos() for k in range(1, 13)], -1).unflatten(-1, (2, 6)), actions


RUN: dict[str, Callable[[Any], Tensor]] = {
    "gathers": lambda body: body(ids(), padding(LENGTHS, T)),
    "reads": lambda body: body(ids(), padding(LENGTHS, T)),
    "fills": lambda body: body(ids(), padding(LENGTHS, T)),
    "writes": lambda body: body(ids()),
    "translates": run_translator,
    "sees": lambda body: body(pixels()),
    "spells": lambda body: body(ids(), padding(LENGTHS, T)),
    "bonds": lambda body: body(molecules()[0], padding(LENGTHS, T), molecules()[1]),
    "matches": run_matcher,
    "foresees": lambda body: body(*make_steps(), padding(LENGTHS, T)),
    "hears": lambda body: body(frames().to(dtype_of(body)), padding(LENGTHS, T)),
    "transcribes": run_transcriber,
}
RUN_SINGLE = RUN | {
    "foresees": lambda body: body(make_steps()[0].float(), make_steps()[1], padding(LENGTHS, T)),
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


def test_every_ability_is_described_and_tested() -> None:
    abilities = {ability for family in MODELS.values() for ability in family.bodies}
    assert abilities == {*ABILITIES} == {*RUN}


@bodies_with()
def test_output_shape(name: str, ability: str, variant: dict[str, Any]) -> None:
    body = make_body(name, ability, variant)
    out = RUN[ability](body)
    if ability == "sees":
        assert out.shape[::2] == (B, D)
        assert out.size(1) >= 1
    else:
        assert out.shape == SHAPES[ability]
    assert out.isfinite().all()
    assert type(body.config) is MODELS[name].config


@bodies_with()
def test_trace_changes_no_bit(name: str, ability: str, variant: dict[str, Any]) -> None:
    """Bit for bit in single precision; recorded attention weights sum to 1."""
    body = make_body(name, ability, variant).float()
    inputs = RUN_SINGLE[ability]
    with torch.inference_mode():
        plain_output = inputs(body)
        with look(body) as trace:
            traced_output = inputs(body)
    assert torch.equal(traced_output, plain_output)
    assert not any(module._forward_hooks for module in body.modules())
    for path, tensor in trace.items():
        if path.endswith("weights"):
            assert_close(tensor.sum(-1), torch.ones_like(tensor[..., 0]), rtol=0, atol=1e-6)


@bodies_with("matches")
def test_towers_give_unit_vectors(name: str, ability: str, variant: dict[str, Any]) -> None:
    body = make_body(name, ability, variant)
    for vectors in (body.image(pixels()), body.text(ids(), padding(LENGTHS, T))):
        assert vectors.shape == (B, E)
        assert_near(vectors.norm(dim=-1), torch.ones(B, dtype=torch.float64))


@bodies_with()
def test_every_weight_but_key_biases_has_a_gradient(name: str, ability: str, variant: dict[str, Any]) -> None:
    body = make_body(name, ability, variant).train()
    model = with_head(body)
    x = RUN[ability](body)
    y = x if ability == "matches" else model.head(x)
    torch.manual_seed(4)
    (y * torch.randn_like(y)).sum().backward()
    with_gradient = body if ability == "matches" else model
    for weight_name, weight in with_gradient.named_parameters():
        assert weight.grad is not None, weight_name
        assert weight.grad.isfinite().all(), weight_name
        assert weight.grad.abs().max() > 1e-9 or weight_name.endswith("key.bias"), weight_name


@bodies_with()
def test_batch_equals_single_examples(name: str, ability: str, variant: dict[str, Any]) -> None:
    body = make_body(name, ability, variant)
    together = RUN[ability](body)
    for b, (length, source_length) in enumerate(zip(LENGTHS, [S, 3, 5], strict=True)):
        text = ids()[b : b + 1, :length]
        if ability == "sees":
            assert_near(body(pixels()[b : b + 1])[0], together[b])
        elif ability == "bonds":
            atoms, pairs = (part[b : b + 1, :length] for part in molecules())
            assert_near(body(atoms, pairs=pairs[..., :length])[0], together[b, :length])
        elif ability == "gathers":
            assert_near(body(text)[0], together[b])
        elif ability == "translates":
            assert_near(body(ids(S, seed=1)[b : b + 1, :source_length], text)[0], together[b, :length])
        elif ability == "transcribes":
            assert_near(body(frames(S)[b : b + 1, : source_length * STRIDE], text)[0], together[b, :length])
        elif ability == "hears":
            assert_near(body(frames()[b : b + 1, : length * STRIDE])[0], together[b, :length])
        elif ability == "matches":
            assert_near(body(pixels()[:2], text)[:, 0], together[:, b])
        elif ability == "foresees":
            assert_near(body(*make_steps(text))[0], together[b, :length])
        else:
            assert_near(body(text)[0], together[b, :length])


@bodies_with("writes", "translates", "transcribes", "foresees")
def test_causal_bodies_ignore_later_tokens(name: str, ability: str, variant: dict[str, Any]) -> None:
    body = make_body(name, ability, variant)
    tokens = ids()
    runs = {"writes": body, "foresees": lambda actions: body(*make_steps(actions))}
    run = runs.get(ability, lambda target: body(source(ability), target))
    original = run(tokens)
    for changed in range(T):
        altered = tokens.clone()
        altered[:, changed:] = (tokens[:, changed:] + 1) % (V - 1)
        seq2seq = run(altered)
        assert_near(seq2seq[:, :changed], original[:, :changed])
        assert ((seq2seq - original)[:, changed:].abs().amax(-1) > 1e-6).all()


@bodies_with("fills", "spells")
def test_masked_lm_bodies_see_both_sides(name: str, ability: str, variant: dict[str, Any]) -> None:
    body = make_body(name, ability, variant | {switch: False for switch in variant if switch == "unidirectional"})
    original = body(ids())
    for changed in range(T):
        altered = ids()
        altered[:, changed] = (altered[:, changed] + 1) % (V - 1)
        assert ((body(altered) - original).abs().amax(-1) > 1e-9).all()


@bodies_with("writes", "translates", "transcribes", "foresees")
@pytest.mark.parametrize("chunks", CHUNKS)
def test_chunks_with_a_cache_equal_the_full_forward(
    name: str, ability: str, variant: dict[str, Any], chunks: str
) -> None:
    body, tokens = make_body(name, ability, variant), ids()
    caches, step, whole = with_cache(body, ability)
    with torch.inference_mode():
        parts = [step(part, caches) for part in tokens.split(CHUNKS[chunks], 1)]
    assert {cache.length for cache in caches} == {T * (3 if ability == "foresees" else 1)}
    assert_near(torch.cat(parts, 1), whole(tokens))


@bodies_with("writes", "translates", "transcribes", "foresees")
@pytest.mark.parametrize("rows", [[2, 0], [1, 1, 0, 2], [0]])
def test_cache_continues_with_selected_rows(name: str, ability: str, variant: dict[str, Any], rows: list[int]) -> None:
    body, tokens, chosen = make_body(name, ability, variant), ids(), torch.tensor(rows)
    caches, step, whole = with_cache(body, ability)
    with torch.inference_mode():
        step(tokens[:, :5], caches)
        select(caches, chosen, chosen)
        parts = [step(tokens[chosen, t : t + 1], caches) for t in range(5, T)]
    assert_near(torch.cat(parts, 1), whole(tokens)[chosen, 5:])


@bodies_with("translates", "transcribes")
def test_beams_share_their_source(name: str, ability: str, variant: dict[str, Any]) -> None:
    body, tokens, beams = make_body(name, ability, variant), ids(), torch.arange(B).repeat_interleave(2)
    caches, step, whole = with_cache(body, ability)
    altered = (tokens + torch.arange(T)) % (V - 1)
    both = torch.stack((tokens, altered), 1).flatten(0, 1)
    with torch.inference_mode():
        select(caches, beams)
        parts = [step(both[:, t : t + 1], caches) for t in range(T)]
    assert_near(torch.cat(parts, 1)[::2], whole(tokens))
    assert_near(torch.cat(parts, 1)[1::2], whole(altered))


def with_cache(body: Any, ability: str) -> tuple[list[Cache], Callable[..., Tensor], Callable[[Tensor], Tensor]]:
    """Initial caches, a step with caches, and the full forward without."""
    if ability == "writes":
        return body.caches(), lambda new, caches: body(new, cache=caches), body
    if ability == "foresees":
        return (
            body.caches(),
            lambda new, caches: body(*make_steps(new), cache=caches),
            lambda actions: body(*make_steps(actions)),
        )
    source_input, mask = source(ability), padding([S, 3, 5], S)
    with torch.inference_mode():
        caches = body.decoder_caches(source_input, mask)
    return caches, lambda new, caches: body.decode(new, cache=caches), lambda target: body(source_input, target, mask)


@bodies_with("gathers", "reads", "fills", "writes", "spells", "translates", "matches", "foresees")
@pytest.mark.parametrize("extra", [0, 1, 8])
def test_padding_is_invisible(name: str, ability: str, variant: dict[str, Any], extra: int) -> None:
    body, tokens = make_body(name, ability, variant), ids()
    mask, longer = padding(LENGTHS, T), padding(LENGTHS, T + extra)
    longer_tokens = torch.cat((tokens, ids(8)[:, :extra]), 1)
    garbage = torch.where(longer[:, 0, 0], longer_tokens, (longer_tokens * 7 + 3) % V)
    if ability == "translates":
        assert_near(body(garbage, tokens, longer), body(tokens, tokens, mask))
    elif ability == "matches":
        assert_near(body.text(garbage, longer), body.text(tokens, mask))
    elif ability == "gathers":
        assert_near(body(garbage, longer), body(tokens, mask))
    elif ability == "foresees":
        assert_near(
            body(*make_steps(garbage), longer)[:, :T][mask[:, 0, 0]], body(*make_steps(tokens), mask)[mask[:, 0, 0]]
        )
    else:
        real = mask[:, 0, 0]
        assert_near(body(garbage, longer)[:, :T][real], body(tokens, mask)[real])


@bodies_with("bonds")
@pytest.mark.parametrize("extra", [0, 1, 8])
def test_padding_of_a_molecule_is_invisible(name: str, ability: str, variant: dict[str, Any], extra: int) -> None:
    body, mask, longer = make_body(name, ability, variant), padding(LENGTHS, T), padding(LENGTHS, T + extra)
    (atoms, pairs), (garbage, other_pairs) = molecules(), molecules(T + extra)
    real = mask[:, 0, 0]
    garbage[:, :T] = torch.where(real[..., None], atoms, garbage[:, :T])
    for b, length in enumerate(LENGTHS):  # pairs with padding atoms keep other kinds
        other_pairs[b, :length, :length] = pairs[b, :length, :length]
    assert_near(body(garbage, longer, other_pairs)[:, :T][real], body(atoms, mask, pairs)[real])


@bodies_with("hears", "transcribes")
@pytest.mark.parametrize("extra", [0, 1, 8])
def test_padding_of_a_clip_is_invisible(name: str, ability: str, variant: dict[str, Any], extra: int) -> None:
    body, mask, longer = make_body(name, ability, variant), padding(LENGTHS, T), padding(LENGTHS, T + extra)
    real = longer[:, 0, 0].repeat_interleave(STRIDE, 1)[..., None]
    longer_tokens = torch.cat((frames(), frames(8)[:, : extra * STRIDE]), 1)
    garbage = longer_tokens.where(real, longer_tokens * 7 + 3)
    if ability == "transcribes":
        assert_near(body(garbage, ids(), longer), body(frames(), ids(), mask))
    else:
        assert_near(body(garbage, longer)[:, :T][mask[:, 0, 0]], body(frames(), mask)[mask[:, 0, 0]])


@bodies_with("reads", "fills", "writes", "spells", "foresees")
def test_packed_documents_are_independent(name: str, ability: str, variant: dict[str, Any]) -> None:
    body, tokens = make_body(name, ability, variant), ids()
    number = torch.stack([torch.tensor([i for i, n in enumerate(row) for _ in range(n)]) for row in PACKED])
    run = (lambda actions, mask=None: body(*make_steps(actions), mask)) if ability == "foresees" else body
    together = run(tokens, (number[:, :, None] == number[:, None])[:, None])
    for b, row in enumerate(PACKED):
        for end, length in zip(torch.tensor(row).cumsum(0).tolist(), row, strict=True):
            assert_near(together[b, end - length : end], run(tokens[b : b + 1, end - length : end])[0])


@bodies_with("fills", "writes", "spells", "translates", "transcribes")
def test_lm_head_loss_equals_the_cross_entropy_of_its_logits(name: str, ability: str, variant: dict[str, Any]) -> None:
    body = make_body(name, ability, variant)
    model, targets = with_head(body), ids(seed=2)
    x = RUN[ability](body).detach()
    mine, theirs = (x.flatten(0, 1).requires_grad_() for _ in range(2))
    loss = model.head.loss(mine, targets.flatten())
    reference = F.cross_entropy(model.head(theirs), targets.flatten(), reduction="sum")
    assert_near(loss, reference)
    assert_near(*(torch.autograd.grad(total, x)[0] for total, x in ((loss, mine), (reference, theirs))))


@pytest.mark.parametrize(
    ("name", "ability"), [(n, ability) for n, family in MODELS.items() for ability in family.bodies]
)
def test_one_batch_can_be_memorised(name: str, ability: str) -> None:
    torch.manual_seed(1)
    body = MODELS[name].bodies[ability](config_of(name, {})).train()
    model = with_head(body)
    optimizer = torch.optim.AdamW(model.parameters(), 0.005)
    losses = []
    for _ in range(100 if ability == "matches" else 40):  # the towers' outputs are alike at first
        loss = training_loss(model, ability)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.2 * losses[0], losses


def training_loss(model: Model, ability: str) -> Tensor:
    """Cross-entropy of the next token, the token itself, one label per example, or matching texts and images."""
    body, tokens = model.body, ids()
    if ability == "matches":
        scores, labels = body(pixels(), tokens, padding(LENGTHS, T)), torch.arange(B)
        return F.cross_entropy(scores, labels) + F.cross_entropy(scores.T, labels)
    if ability == "foresees":
        trace, actions = make_steps(tokens[:, :-1])
        return F.cross_entropy(model.head(body(trace, actions)[:, :, -1]).flatten(0, 1), tokens[:, 1:].flatten() % 4)
    if ability in ("gathers", "sees", "hears", "bonds"):
        return F.cross_entropy(model.head(RUN[ability](body).mean(1)), torch.arange(B))
    seq2seq = ("translates", "transcribes")
    x = body(source_as(body, ability), tokens[:, :-1]) if ability in seq2seq else body(tokens[:, :-1])
    targets = tokens[:, 1:] if ability in ("writes", *seq2seq) else tokens[:, :-1]
    return F.cross_entropy(model.head(x).flatten(0, 1), targets.flatten())


@bodies_with()
def test_folder_round_trip(name: str, ability: str, variant: dict[str, Any], tmp_path: Path) -> None:
    body = make_body(name, ability, variant).float()
    RUN[ability](body.train().double())  # fills the statistics of batch norms
    model = with_head(body).float().eval()
    first, second = tmp_path / "model.safetensors", tmp_path / "second.safetensors"
    write_config(tmp_path, model)
    write_weights(first, model)
    names, config = read_config(tmp_path)
    assert config == body.config
    reloaded = with_head(MODELS[names.model].bodies[ability](config), seed=9).float().eval()
    read_weights(tmp_path, names, reloaded)
    assert all(torch.equal(tensor, reloaded.state_dict()[key]) for key, tensor in model.state_dict().items())
    write_weights(second, reloaded)
    assert first.read_bytes() == second.read_bytes()
    assert_near(RUN[ability](reloaded.double().body), RUN[ability](model.double().body))


@pytest.mark.parametrize("name", MODELS)
def test_every_named_size_is_valid(name: str) -> None:
    family = MODELS[name]
    required = {f.name: SMALL[f.name] for f in fields(family.config) if f.default is MISSING}
    assert family.sizes
    for size in family.sizes.values():
        config = family.config(**required | size)
        assert all(getattr(config, field) == value for field, value in size.items())


@pytest.mark.parametrize("file", sorted(Path(models.__file__).parent.glob("*.py")), ids=lambda file: file.stem)
def test_model_files_are_short(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 150


def test_gpt_and_llama_differ_in_few_lines() -> None:

    def lines(module: Any) -> list[str]:
        text = inspect.getsource(module)
        [sizes] = [node for node in ast.parse(text).body if isinstance(node, ast.AnnAssign)]
        assert sizes.end_lineno
        return text.splitlines()[: sizes.lineno - 1] + text.splitlines()[sizes.end_lineno :]

    different_lines = [line for line in difflib.ndiff(lines(models.gpt), lines(models.llama)) if line[0] in "+-"]
    assert len(different_lines) < 60, "\n".join(different_lines)
