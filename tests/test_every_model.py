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
from regard.models import MODELS, STRUCTURES
from regard.parts.cache import Cache, select
from regard.parts.document_mask import DocumentMask
from regard.parts.heads import Body, Model

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


def kinds(name: str) -> Iterator[str]:
    """How the bodies of a family are called: structure and modality. Decoders read texts with and without padding."""
    for structure in MODELS[name].bodies:
        yield f"{structure} of {MODELS[name].inputs[0]}"
        if structure == "decoder":
            yield "decoder of padded text"


CASES = [
    pytest.param(name, kind, variant, id="-".join([name, kind, *(f"{k}={v}" for k, v in variant.items())]))
    for name, family in MODELS.items()
    for kind in kinds(name)
    for variant in variants(family.config)
]


def bodies_of(*names: str) -> pytest.MarkDecorator:
    """Parametrize over all variants of the bodies of these kinds."""
    cases = [case for case in CASES if not names or case.values[1] in names]
    return pytest.mark.parametrize(("name", "kind", "variant"), cases)


def body_class(name: str, kind: str) -> type[Any]:
    return MODELS[name].bodies[kind.split(" of ")[0]]


def config_of(name: str, variant: dict[str, Any]) -> Any:
    kind = MODELS[name].config
    return kind(**{f.name: SMALL[f.name] for f in fields(kind) if f.name in SMALL} | variant)


def make_body(name: str, kind: str, variant: dict[str, Any], seed: int = 1) -> Any:
    """A body with noise added to every weight, so that none stays at its initial zero or one."""
    torch.manual_seed(seed)
    body = body_class(name, kind)(config_of(name, variant))
    with torch.no_grad():
        for weight in body.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return body.double().eval()


def with_head(body: Any, seed: int = 2) -> Model:
    torch.manual_seed(seed)
    has_lm_head = type(body).lm_head is not Body.lm_head
    return Model(body, body.lm_head() if has_lm_head else nn.Linear(D, 4)).double()


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


def source(kind: str) -> Tensor:
    """A source of S tokens."""
    return ids(S, seed=1) if kind == "encoder-decoder of text" else frames(S)


def source_as(body: Any, kind: str) -> Tensor:
    """The source, in the precision of the body if it is audio."""
    tokens = source(kind)
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
    "pooled of text": lambda body: body(ids(), padding(LENGTHS, T)),
    "decoder of padded text": lambda body: body(ids(), padding(LENGTHS, T)),
    "encoder of text": lambda body: body(ids(), padding(LENGTHS, T)),
    "decoder of text": lambda body: body(ids()),
    "encoder-decoder of text": run_translator,
    "encoder of image": lambda body: body(pixels()),
    "encoder of protein": lambda body: body(ids(), padding(LENGTHS, T)),
    "encoder of molecule": lambda body: body(molecules()[0], padding(LENGTHS, T), molecules()[1]),
    "two-tower of image": run_matcher,
    "dynamics of trajectory": lambda body: body(*make_steps(), padding(LENGTHS, T)),
    "encoder of audio": lambda body: body(frames().to(dtype_of(body)), padding(LENGTHS, T)),
    "encoder-decoder of audio": run_transcriber,
}
RUN_SINGLE = RUN | {
    "dynamics of trajectory": lambda body: body(make_steps()[0].float(), make_steps()[1], padding(LENGTHS, T)),
    "encoder of image": lambda body: body(pixels().float()),
    "two-tower of image": lambda body: body(pixels()[:2].float(), ids(), padding(LENGTHS, T)),
}
SHAPES = {
    "pooled of text": (B, 1, D),
    "decoder of padded text": (B, T, D),
    "encoder of text": (B, T, D),
    "decoder of text": (B, T, D),
    "encoder of protein": (B, T, D),
    "encoder-decoder of text": (B, T, D),
    "encoder of molecule": (B, T, D),
    "two-tower of image": (2, B),
    "dynamics of trajectory": (B, T, 3, D),
    "encoder of audio": (B, T, D),
    "encoder-decoder of audio": (B, T, D),
}


def test_every_structure_is_described_and_every_kind_tested() -> None:
    assert {structure for family in MODELS.values() for structure in family.bodies} == {*STRUCTURES}
    assert {kind for name in MODELS for kind in kinds(name)} == {*RUN}


@bodies_of()
def test_output_shape(name: str, kind: str, variant: dict[str, Any]) -> None:
    body = make_body(name, kind, variant)
    out = RUN[kind](body)
    if kind == "encoder of image":
        assert out.shape[::2] == (B, D)
        assert out.size(1) >= 1
    else:
        assert out.shape == SHAPES[kind]
    assert out.isfinite().all()
    assert type(body.config) is MODELS[name].config


@bodies_of()
def test_trace_changes_no_bit(name: str, kind: str, variant: dict[str, Any]) -> None:
    """Bit for bit in single precision; recorded attention weights sum to 1."""
    body = make_body(name, kind, variant).float()
    inputs = RUN_SINGLE[kind]
    with torch.inference_mode():
        plain_output = inputs(body)
        with look(body) as trace:
            traced_output = inputs(body)
    assert torch.equal(traced_output, plain_output)
    assert not any(module._forward_hooks for module in body.modules())
    for path, tensor in trace.items():
        if path.endswith("weights"):
            assert_close(tensor.sum(-1), torch.ones_like(tensor[..., 0]), rtol=0, atol=1e-6)


@bodies_of("two-tower of image")
def test_towers_give_unit_vectors(name: str, kind: str, variant: dict[str, Any]) -> None:
    body = make_body(name, kind, variant)
    for vectors in (body.image(pixels()), body.text(ids(), padding(LENGTHS, T))):
        assert vectors.shape == (B, E)
        assert_near(vectors.norm(dim=-1), torch.ones(B, dtype=torch.float64))


@bodies_of()
def test_every_weight_but_key_biases_has_a_gradient(name: str, kind: str, variant: dict[str, Any]) -> None:
    body = make_body(name, kind, variant).train()
    model = with_head(body)
    x = RUN[kind](body)
    y = x if kind == "two-tower of image" else model.head(x)
    torch.manual_seed(4)
    (y * torch.randn_like(y)).sum().backward()
    with_gradient = body if kind == "two-tower of image" else model
    for weight_name, weight in with_gradient.named_parameters():
        assert weight.grad is not None, weight_name
        assert weight.grad.isfinite().all(), weight_name
        assert weight.grad.abs().max() > 1e-9 or weight_name.endswith("key.bias"), weight_name


@bodies_of()
def test_batch_equals_single_examples(name: str, kind: str, variant: dict[str, Any]) -> None:
    body = make_body(name, kind, variant)
    together = RUN[kind](body)
    for b, (length, source_length) in enumerate(zip(LENGTHS, [S, 3, 5], strict=True)):
        text = ids()[b : b + 1, :length]
        if kind == "encoder of image":
            assert_near(body(pixels()[b : b + 1])[0], together[b])
        elif kind == "encoder of molecule":
            atoms, pairs = (part[b : b + 1, :length] for part in molecules())
            assert_near(body(atoms, pairs=pairs[..., :length])[0], together[b, :length])
        elif kind == "pooled of text":
            assert_near(body(text)[0], together[b])
        elif kind == "encoder-decoder of text":
            assert_near(body(ids(S, seed=1)[b : b + 1, :source_length], text)[0], together[b, :length])
        elif kind == "encoder-decoder of audio":
            assert_near(body(frames(S)[b : b + 1, : source_length * STRIDE], text)[0], together[b, :length])
        elif kind == "encoder of audio":
            assert_near(body(frames()[b : b + 1, : length * STRIDE])[0], together[b, :length])
        elif kind == "two-tower of image":
            assert_near(body(pixels()[:2], text)[:, 0], together[:, b])
        elif kind == "dynamics of trajectory":
            assert_near(body(*make_steps(text))[0], together[b, :length])
        else:
            assert_near(body(text)[0], together[b, :length])


@bodies_of("decoder of text", "encoder-decoder of text", "encoder-decoder of audio", "dynamics of trajectory")
def test_causal_bodies_ignore_later_tokens(name: str, kind: str, variant: dict[str, Any]) -> None:
    body = make_body(name, kind, variant)
    tokens = ids()
    runs = {"decoder of text": body, "dynamics of trajectory": lambda actions: body(*make_steps(actions))}
    run = runs.get(kind, lambda target: body(source(kind), target))
    original = run(tokens)
    for changed in range(T):
        altered = tokens.clone()
        altered[:, changed:] = (tokens[:, changed:] + 1) % (V - 1)
        seq2seq = run(altered)
        assert_near(seq2seq[:, :changed], original[:, :changed])
        assert ((seq2seq - original)[:, changed:].abs().amax(-1) > 1e-6).all()


@bodies_of("encoder of text", "encoder of protein")
def test_masked_lm_bodies_see_both_sides(name: str, kind: str, variant: dict[str, Any]) -> None:
    body = make_body(name, kind, variant | {switch: False for switch in variant if switch == "unidirectional"})
    original = body(ids())
    for changed in range(T):
        altered = ids()
        altered[:, changed] = (altered[:, changed] + 1) % (V - 1)
        assert ((body(altered) - original).abs().amax(-1) > 1e-9).all()


@bodies_of("decoder of text", "encoder-decoder of text", "encoder-decoder of audio", "dynamics of trajectory")
@pytest.mark.parametrize("chunks", CHUNKS)
def test_chunks_with_a_cache_equal_the_full_forward(name: str, kind: str, variant: dict[str, Any], chunks: str) -> None:
    body, tokens = make_body(name, kind, variant), ids()
    caches, step, whole = with_cache(body, kind)
    with torch.inference_mode():
        parts = [step(part, caches) for part in tokens.split(CHUNKS[chunks], 1)]
    assert {cache.length for cache in caches} == {T * (3 if kind == "dynamics of trajectory" else 1)}
    assert_near(torch.cat(parts, 1), whole(tokens))


@bodies_of("decoder of text", "encoder-decoder of text", "encoder-decoder of audio", "dynamics of trajectory")
@pytest.mark.parametrize("rows", [[2, 0], [1, 1, 0, 2], [0]])
def test_cache_continues_with_selected_rows(name: str, kind: str, variant: dict[str, Any], rows: list[int]) -> None:
    body, tokens, chosen = make_body(name, kind, variant), ids(), torch.tensor(rows)
    caches, step, whole = with_cache(body, kind)
    with torch.inference_mode():
        step(tokens[:, :5], caches)
        select(caches, chosen, chosen)
        parts = [step(tokens[chosen, t : t + 1], caches) for t in range(5, T)]
    assert_near(torch.cat(parts, 1), whole(tokens)[chosen, 5:])


@bodies_of("encoder-decoder of text", "encoder-decoder of audio")
def test_beams_share_their_source(name: str, kind: str, variant: dict[str, Any]) -> None:
    body, tokens, beams = make_body(name, kind, variant), ids(), torch.arange(B).repeat_interleave(2)
    caches, step, whole = with_cache(body, kind)
    altered = (tokens + torch.arange(T)) % (V - 1)
    both = torch.stack((tokens, altered), 1).flatten(0, 1)
    with torch.inference_mode():
        select(caches, beams)
        parts = [step(both[:, t : t + 1], caches) for t in range(T)]
    assert_near(torch.cat(parts, 1)[::2], whole(tokens))
    assert_near(torch.cat(parts, 1)[1::2], whole(altered))


def with_cache(body: Any, kind: str) -> tuple[list[Cache], Callable[..., Tensor], Callable[[Tensor], Tensor]]:
    """Initial caches, a step with caches, and the full forward without."""
    if kind == "decoder of text":
        return body.caches(), lambda new, caches: body(new, cache=caches), body
    if kind == "dynamics of trajectory":
        return (
            body.caches(),
            lambda new, caches: body(*make_steps(new), cache=caches),
            lambda actions: body(*make_steps(actions)),
        )
    source_input, mask = source(kind), padding([S, 3, 5], S)
    with torch.inference_mode():
        caches = body.decoder_caches(source_input, mask)
    return caches, lambda new, caches: body.decode(new, cache=caches), lambda target: body(source_input, target, mask)


@bodies_of(
    "pooled of text",
    "encoder of text",
    "decoder of text",
    "encoder of protein",
    "encoder-decoder of text",
    "two-tower of image",
    "dynamics of trajectory",
)
@pytest.mark.parametrize("extra", [0, 1, 8])
def test_padding_is_invisible(name: str, kind: str, variant: dict[str, Any], extra: int) -> None:
    body, tokens = make_body(name, kind, variant), ids()
    mask, longer = padding(LENGTHS, T), padding(LENGTHS, T + extra)
    longer_tokens = torch.cat((tokens, ids(8)[:, :extra]), 1)
    garbage = torch.where(longer[:, 0, 0], longer_tokens, (longer_tokens * 7 + 3) % V)
    if kind == "encoder-decoder of text":
        assert_near(body(garbage, tokens, longer), body(tokens, tokens, mask))
    elif kind == "two-tower of image":
        assert_near(body.text(garbage, longer), body.text(tokens, mask))
    elif kind == "pooled of text":
        assert_near(body(garbage, longer), body(tokens, mask))
    elif kind == "dynamics of trajectory":
        assert_near(
            body(*make_steps(garbage), longer)[:, :T][mask[:, 0, 0]], body(*make_steps(tokens), mask)[mask[:, 0, 0]]
        )
    else:
        real = mask[:, 0, 0]
        assert_near(body(garbage, longer)[:, :T][real], body(tokens, mask)[real])


@bodies_of("encoder of molecule")
@pytest.mark.parametrize("extra", [0, 1, 8])
def test_padding_of_a_molecule_is_invisible(name: str, kind: str, variant: dict[str, Any], extra: int) -> None:
    body, mask, longer = make_body(name, kind, variant), padding(LENGTHS, T), padding(LENGTHS, T + extra)
    (atoms, pairs), (garbage, other_pairs) = molecules(), molecules(T + extra)
    real = mask[:, 0, 0]
    garbage[:, :T] = torch.where(real[..., None], atoms, garbage[:, :T])
    for b, length in enumerate(LENGTHS):  # pairs with padding atoms keep other kinds
        other_pairs[b, :length, :length] = pairs[b, :length, :length]
    assert_near(body(garbage, longer, other_pairs)[:, :T][real], body(atoms, mask, pairs)[real])


@bodies_of("encoder of audio", "encoder-decoder of audio")
@pytest.mark.parametrize("extra", [0, 1, 8])
def test_padding_of_a_clip_is_invisible(name: str, kind: str, variant: dict[str, Any], extra: int) -> None:
    body, mask, longer = make_body(name, kind, variant), padding(LENGTHS, T), padding(LENGTHS, T + extra)
    real = longer[:, 0, 0].repeat_interleave(STRIDE, 1)[..., None]
    longer_tokens = torch.cat((frames(), frames(8)[:, : extra * STRIDE]), 1)
    garbage = longer_tokens.where(real, longer_tokens * 7 + 3)
    if kind == "encoder-decoder of audio":
        assert_near(body(garbage, ids(), longer), body(frames(), ids(), mask))
    else:
        assert_near(body(garbage, longer)[:, :T][mask[:, 0, 0]], body(frames(), mask)[mask[:, 0, 0]])


@bodies_of("encoder of text", "decoder of text", "encoder of protein", "dynamics of trajectory")
def test_packed_documents_are_independent(name: str, kind: str, variant: dict[str, Any]) -> None:
    body, tokens = make_body(name, kind, variant), ids()
    mask = DocumentMask(torch.stack([torch.arange(len(row)).repeat_interleave(torch.tensor(row)) for row in PACKED]))
    run = (lambda actions, mask=None: body(*make_steps(actions), mask)) if kind == "dynamics of trajectory" else body
    together = run(tokens, mask.dense())
    if kind != "dynamics of trajectory":
        assert_near(body(tokens, mask), together)
    for b, row in enumerate(PACKED):
        for end, length in zip(torch.tensor(row).cumsum(0).tolist(), row, strict=True):
            assert_near(together[b, end - length : end], run(tokens[b : b + 1, end - length : end])[0])


@bodies_of(
    "encoder of text", "decoder of text", "encoder of protein", "encoder-decoder of text", "encoder-decoder of audio"
)
def test_lm_head_loss_equals_the_cross_entropy_of_its_logits(name: str, kind: str, variant: dict[str, Any]) -> None:
    body = make_body(name, kind, variant)
    model, targets = with_head(body), ids(seed=2)
    x = RUN[kind](body).detach()
    mine, theirs = (x.flatten(0, 1).requires_grad_() for _ in range(2))
    loss = model.head.loss(mine, targets.flatten())
    reference = F.cross_entropy(model.head(theirs), targets.flatten(), reduction="sum")
    assert_near(loss, reference)
    assert_near(*(torch.autograd.grad(total, x)[0] for total, x in ((loss, mine), (reference, theirs))))


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name in MODELS for kind in kinds(name)])
def test_one_batch_can_be_memorised(name: str, kind: str) -> None:
    torch.manual_seed(1)
    body = body_class(name, kind)(config_of(name, {})).train()
    model = with_head(body)
    optimizer = torch.optim.AdamW(model.parameters(), 0.005)
    losses = []
    for _ in range(100 if kind == "two-tower of image" else 40):  # the towers' outputs are alike at first
        loss = training_loss(model, kind)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.2 * losses[0], losses


def training_loss(model: Model, kind: str) -> Tensor:
    """Cross-entropy of the next token, the token itself, one label per example, or matching texts and images."""
    body, tokens = model.body, ids()
    if kind == "two-tower of image":
        scores, labels = body(pixels(), tokens, padding(LENGTHS, T)), torch.arange(B)
        return F.cross_entropy(scores, labels) + F.cross_entropy(scores.T, labels)
    if kind == "dynamics of trajectory":
        trace, actions = make_steps(tokens[:, :-1])
        return F.cross_entropy(model.head(body(trace, actions)[:, :, -1]).flatten(0, 1), tokens[:, 1:].flatten() % 4)
    if kind in ("pooled of text", "encoder of image", "encoder of audio", "encoder of molecule"):
        return F.cross_entropy(model.head(RUN[kind](body).mean(1)), torch.arange(B))
    seq2seq = ("encoder-decoder of text", "encoder-decoder of audio")
    x = body(source_as(body, kind), tokens[:, :-1]) if kind in seq2seq else body(tokens[:, :-1])
    targets = tokens[:, 1:] if kind in ("decoder of text", *seq2seq) else tokens[:, :-1]
    return F.cross_entropy(model.head(x).flatten(0, 1), targets.flatten())


@bodies_of()
def test_folder_round_trip(name: str, kind: str, variant: dict[str, Any], tmp_path: Path) -> None:
    body = make_body(name, kind, variant).float()
    RUN[kind](body.train().double())  # fills the statistics of batch norms
    model = with_head(body).float().eval()
    first, second = tmp_path / "model.safetensors", tmp_path / "second.safetensors"
    write_config(tmp_path, model)
    write_weights(first, model)
    names, config = read_config(tmp_path)
    assert config == body.config
    reloaded = with_head(body_class(names.model, kind)(config), seed=9).float().eval()
    read_weights(tmp_path, names, reloaded)
    assert all(torch.equal(tensor, reloaded.state_dict()[key]) for key, tensor in model.state_dict().items())
    write_weights(second, reloaded)
    assert first.read_bytes() == second.read_bytes()
    assert_near(RUN[kind](reloaded.double().body), RUN[kind](model.double().body))


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
