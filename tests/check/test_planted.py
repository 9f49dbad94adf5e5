"""Defects that are planted one at a time: the check that is there for it finds it, and the others stay silent."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import normalizers
from torch import nn

from regard.check.run_checks import examine, examine_loaded
from regard.load import load
from regard.parts.cache import Cache
from regard.tasks.task import Loss


def fails(verdicts):
    """What fails, by name; whatever is not ok comes with advice."""
    verdicts = list(verdicts)
    assert all(verdict.advice for verdict in verdicts if verdict.status != "ok")
    assert all(
        verdict.advice.endswith((".", "?")) or verdict.check == "transformers" for verdict in verdicts if verdict.advice
    )
    return {verdict.check: verdict for verdict in verdicts if verdict.status == "FAILS"}


# Planted in memory: what is done to a model, by a name.


def peeks(loaded):
    loaded.model.body.blocks[1].mixer.inner.causal = False


def decoder_peeks(loaded):
    loaded.model.body.decoder[0].mixer.inner.causal = False


def turns_too_far(loaded):
    turn = loaded.model.body.positions.forward
    loaded.model.body.positions.forward = lambda q, k, start: turn(q, k, start + (start > 0))


class Forgetful(Cache):
    """Loses the first token once there are more."""

    def extend(self, keys, values):
        keys, values = super().extend(keys, values)
        return (keys[:, :, 1:], values[:, :, 1:]) if keys.size(2) > 1 else (keys, values)


class Stuck(Cache):
    """A state that never goes on."""

    def advance(self, state, tokens):
        super().advance(state if self.state is None else self.state, tokens)


class Untouched(Cache):
    """Rows stay where they are, though the beams have moved."""

    def select(self, rows):
        pass


def with_caches(kind):
    def plant(loaded):
        blocks = loaded.model.body.blocks
        loaded.model.body.caches = lambda: [kind() for _ in blocks]

    return plant


def reads_padding_of_the_source(loaded):
    read = loaded.model.body.read
    loaded.model.body.read = lambda source, mask=None: read(source, None)


def pools_padding(loaded):
    pool = loaded.model.head.pooling.forward
    loaded.model.head.pooling.forward = lambda x, mask=None: pool(x)


def blind_to_the_mask(loaded):
    attend = loaded.model.body.blocks[1].mixer.inner.forward
    loaded.model.body.blocks[1].mixer.inner.forward = lambda x, mask=None, cache=None: attend(x)


def reads_padding_backwards(loaded):
    read = loaded.model.body.blocks[0].forward
    loaded.model.body.blocks[0].forward = lambda x, mask=None, cache=None: read(x)


def untied(loaded):
    loaded.model.head.weight = nn.Parameter(loaded.model.head.weight.detach() * 1.1)


def copied(loaded):
    loaded.model.head.weight = nn.Parameter(loaded.model.head.weight.detach().clone())


def fill(name, value):
    def plant(loaded):
        weight = loaded.model.get_parameter(name)
        with torch.no_grad():
            weight.view(-1)[: 1 if value != value else None] = value

    return plant


def dead_head(loaded):
    with torch.no_grad():
        loaded.model.body.blocks[1].mixer.inner.out.weight[:, 8:16] = 0


def uniform_head(loaded):
    with torch.no_grad():
        for part in loaded.model.body.blocks[0].mixer.inner.query.parameters():
            part[:8] = 0


def loses_letters(loaded):
    engine = loaded.tokenizer.engine
    engine.normalizer = normalizers.Sequence([one for one in (engine.normalizer, normalizers.Replace("e", "")) if one])


def loses_capitals(loaded):
    decode = loaded.tokenizer.decode
    loaded.tokenizer.decode = lambda rows: [text.lower() for text in decode(rows)]


def means(loaded):
    loss = loaded.task.loss

    def mean(model, batch):
        made = loss(model, batch)
        return Loss(made.total / made.count, made.count)

    loaded.task.loss = mean


def miscounts(loaded):
    loss = loaded.task.loss
    loaded.task.loss = lambda model, batch: Loss(loss(model, batch).total, 1)


def counts_padding(loaded):
    batch = loaded.task.batch

    def all_real(examples, rows, **how):
        made = batch(examples, rows, **how)
        return made._replace(real=torch.ones_like(made.real))

    loaded.task.batch = all_real


def norm_of_the_batch(loaded):
    for part in loaded.model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.train()


def of_the_batch(loaded):
    """A layer that subtracts the mean of its batch."""
    loaded.model.body.blocks[0].register_forward_hook(lambda part, given, out: out - out.mean(0, keepdim=True))


def cut_off(loaded):
    loaded.model.body.blocks[0].register_forward_hook(lambda part, given, out: out.detach())


def too_few_vectors(loaded):
    tokens = loaded.model.body.tokens
    tokens.weight = nn.Parameter(tokens.weight.detach()[:40])


def breaks_with_a_cache(loaded):
    """A body that cannot go on."""
    body = loaded.model.body.forward
    loaded.model.body.forward = lambda ids, mask=None: body(ids, mask)


UP = "body.blocks.1.feedforward.inner.up.weight"
IN_MEMORY = {
    "a layer that peeks": ("write", "gpt", peeks, "causality", {"cache"}),
    "a decoder that peeks": (
        "translate",
        "transformer",
        decoder_peeks,
        "causality",
        {"cache", "padding", "accumulation"},
    ),
    "a rotary start off by one": ("write", "llama", turns_too_far, "cache", set()),
    "a cache that forgets the first token": ("write", "gpt", with_caches(Forgetful), "cache", set()),
    "a recurrent state that stands still": ("write", "recurrent", with_caches(Stuck), "cache", set()),
    "a cache whose rows do not follow the beams": ("write", "nano", with_caches(Untouched), "cache", set()),
    "a source read with its padding": ("translate", "transformer", reads_padding_of_the_source, "cache", {"batch"}),
    "a pooling over padding": ("classify", "bert", pools_padding, "padding", {"accumulation", "batch"}),
    "a mask ignored in one layer": ("tag", "bert", blind_to_the_mask, "padding", {"accumulation", "batch"}),
    "a state that reads padding": ("tag", "recurrent", reads_padding_backwards, "padding", {"accumulation", "batch"}),
    "an untied head": ("write", "gpt", untied, "tied", set()),
    "a head that is only a copy": ("fill", "bert", copied, "tied", set()),
    "a NaN": ("fill", "modernbert", fill("body.blocks.0.mixer.inner.key.weight", float("nan")), "finite", set()),
    "an infinity": ("classify", "vit", fill("head.out.weight", float("inf")), "finite", set()),
    "an empty matrix": ("write", "gpt", fill(UP, 0.0), "zeros", set()),
    "an empty norm": ("tag", "bert", fill("body.embed_norm.weight", 0.0), "zeros", {"gradients", "heads", "attention"}),
    "a dead head": ("classify", "bert", dead_head, "heads", set()),
    "a head that looks everywhere alike": ("tag", "gpt", uniform_head, "attention", set()),
    "a tokenizer that loses letters": ("fill", "bert", loses_letters, "round trip", set()),
    "a tokenizer that loses capitals": ("embed", "bert", loses_capitals, "round trip", set()),
    "a loss that is a mean": ("regress", "pooled", means, "accumulation", set()),
    "a loss that counts wrong": ("tag", "llama", miscounts, "accumulation", set()),
    "a loss that counts padding": ("translate", "recurrent", counts_padding, "accumulation", set()),
    "a norm over the batch": ("classify", "convolution", norm_of_the_batch, "batch", {"accumulation"}),
    "a layer that knows its batch": ("answer", "bert", of_the_batch, "batch", {"accumulation", "padding", "heads"}),
    "more tokens than vectors": (
        "classify",
        "pooled",
        too_few_vectors,
        "ids",
        {"padding", "batch", "accumulation", "gradients", "heads"},
    ),
    "a body that takes no cache": ("write", "gpt", breaks_with_a_cache, "cache", {"batch"}),
    "a gradient that is cut off": ("write", "llama", cut_off, "gradients", set()),
}


@pytest.mark.parametrize("name", IN_MEMORY)
def test_a_defect_in_memory_is_found(name, made):
    kind, family, plant, check, also = IN_MEMORY[name]
    loaded = made(kind, family)
    plant(loaded)
    found = fails(examine_loaded(loaded))
    assert check in found
    assert {*found} <= {check} | also


def test_the_guilty_layer_is_named(made):
    for kind, plant, check in (("write", peeks, "causality"), ("tag", blind_to_the_mask, "padding")):
        loaded = made(kind, "gpt" if kind == "write" else "bert")
        plant(loaded)
        assert "body.blocks.1.mixer" in fails(examine_loaded(loaded))[check].advice


# Planted in the files of a folder.


def said(file, **keys):
    def plant(folder):
        told = json.loads((folder / file).read_text())
        told |= keys
        told = {key: value for key, value in told.items() if value is not ...}
        (folder / file).write_text(json.dumps(told))

    return plant


def both(*plants):
    def plant(folder):
        for one in plants:
            one(folder)

    return plant


def larger_vocabulary(folder):
    told = json.loads((folder / "tokenizer.json").read_text())
    last = max(token["id"] for token in told["added_tokens"])
    size = max([last, *told["model"]["vocab"].values()])
    told["added_tokens"].append(told["added_tokens"][-1] | {"id": size + 1, "content": "<more>"})
    (folder / "tokenizer.json").write_text(json.dumps(told))


def two_embeddings(folder):
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if name.endswith("wte.weight"))
    save_file(tensors | {"lm_head.weight": tensors[name] * 2}, folder / "model.safetensors", {"format": "pt"})


GENERATION, CONFIG = "generation_config.json", "config.json"
IN_FILES = {
    "more tokens than vectors": ("write", "gpt", larger_vocabulary, "opens", set()),
    "an output layer that is stored twice, differently": ("write", "gpt", two_embeddings, "opens", set()),
    "a token outside of the vocabulary": (
        "write", "gpt", said(GENERATION, bad_words_ids=[[10**6]]), "settings", set(),
    ),
    "no end": (
        "write", "gpt", both(said(GENERATION, eos_token_id=...), said(CONFIG, eos_token_id=...)), "settings", set(),
    ),
    "two ends": ("write", "llama", said(GENERATION, eos_token_id=7), "settings", set()),
    "answers of no length": ("translate", "transformer", said(GENERATION, max_length=0), "settings", set()),
    "least above most": ("write", "gpt", said(GENERATION, min_length=9, max_length=5), "settings", set()),
    "a temperature for nothing": ("write", "gpt", said(GENERATION, temperature=0.7), "settings", set()),
    "more answers than beams": (
        "translate", "transformer", said(GENERATION, num_return_sequences=9), "settings", set(),
    ),
    "no start": (
        "translate", "transformer",
        both(said(GENERATION, decoder_start_token_id=...), said(CONFIG, decoder_start_token_id=...)), "settings", set(),
    ),
    "another start": (
        "translate", "transformer",
        both(said(GENERATION, decoder_start_token_id=3), said(CONFIG, decoder_start_token_id=3)), "settings", set(),
    ),
    "an end that the tokenizer does not know": (
        "write", "gpt", both(said(GENERATION, eos_token_id=7), said(CONFIG, eos_token_id=7)), "special tokens", set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_FILES)
def test_a_defect_in_a_folder_is_found(name, folder_of, tmp_path):
    kind, family, plant, check, also = IN_FILES[name]
    folder = shutil.copytree(folder_of(kind, family), tmp_path / "copy")
    plant(folder)
    found = fails(examine(folder, alone=True))
    assert check in found
    assert {*found} <= {check} | also


def test_two_tensors_that_changed_places_are_found_beside_transformers(folder_of):
    """Only where the mistake is ours, in reading: a file in which they were swapped is the same to all who read it."""
    pytest.importorskip("transformers", reason="a peer to compare with")
    folder = folder_of("write", "llama")
    assert not fails(examine(folder))
    loaded = load(folder, "cpu")
    mixer = loaded.model.body.blocks[0].mixer.inner
    mixer.query.weight, mixer.out.weight = mixer.out.weight, mixer.query.weight
    assert {*fails(examine_loaded(loaded, folder=folder))} == {"transformers"}


def test_two_tensors_that_changed_places_in_a_file_are_found_by_what_the_run_has_noted(small_run, pairs_file, tmp_path):
    folder = shutil.copytree(small_run, tmp_path / "copy")
    texts = pairs_file.read_text().splitlines()
    assert "memory" in {verdict.check for verdict in examine(folder, texts, alone=True) if verdict.status == "ok"}
    tensors = load_file(folder / "model.safetensors")
    one, other = (f"model.decoder.layers.0.self_attn.{part}_proj.weight" for part in ("v", "q"))
    tensors[one], tensors[other] = tensors[other], tensors[one]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert {*fails(examine(folder, texts, alone=True))} == {"memory"}


def test_a_pickle_beside_the_weights_is_worth_a_note(folder_of, tmp_path):
    folder = shutil.copytree(folder_of("write", "gpt"), tmp_path / "copy")
    (folder / "innocent.txt").write_bytes(b"\x80\x04K\x01.")
    [found] = [verdict for verdict in examine(folder, alone=True) if verdict.check == "pickles"]
    assert (found.status, "innocent.txt" in found.advice) == ("note", True)


def test_a_layer_that_ran_away_is_worth_a_note(made):
    loaded = made("write", "gpt", layers=4)
    with torch.no_grad():
        loaded.model.body.blocks[2].feedforward.inner.up.weight.mul_(50)
    [found] = [verdict for verdict in examine_loaded(loaded) if verdict.check == "norms"]
    assert (found.status, "body.blocks.2.feedforward" in found.advice) == ("note", True)
