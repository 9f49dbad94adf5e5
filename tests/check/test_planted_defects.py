"""Each planted defect fails the check for it, and no other check without a cause."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import normalizers
from torch import nn

from regard.check.run_checks import check_folder, check_model
from regard.load import load
from regard.parts.cache import Cache
from regard.tasks.task import Loss


def failures(results):
    """Failed results by check. Every result that is not ok has advice."""
    results = list(results)
    assert all(result.advice for result in results if result.status != "ok")
    assert all(
        result.advice.endswith((".", "?")) or result.check == "transformers parity"
        for result in results
        if result.advice
    )
    return {result.check: result for result in results if result.status == "FAILS"}


# Planted in a model in memory.


def remove_causal_mask(loaded):
    loaded.model.body.blocks[1].mixer.inner.causal = False


def remove_decoder_causal_mask(loaded):
    loaded.model.body.decoder[0].mixer.inner.causal = False


def shift_rotary_start(loaded):
    rotate = loaded.model.body.positions.forward
    loaded.model.body.positions.forward = lambda q, k, start: rotate(q, k, start + (start > 0))


class CacheWithoutFirstToken(Cache):
    """Drops the first token as soon as there are more."""

    def extend(self, keys, values):
        keys, values = super().extend(keys, values)
        return (keys[:, :, 1:], values[:, :, 1:]) if keys.size(2) > 1 else (keys, values)


class CacheWithConstantState(Cache):
    """Keeps the first state."""

    def advance(self, state, tokens):
        super().advance(state if self.state is None else self.state, tokens)


class CacheWithoutReordering(Cache):
    """Does not reorder rows with the beams."""

    def select(self, rows):
        pass


def use_cache(kind):
    def plant(loaded):
        blocks = loaded.model.body.blocks
        loaded.model.body.caches = lambda: [kind() for _ in blocks]

    return plant


def drop_source_mask(loaded):
    read = loaded.model.body.decoder_caches
    loaded.model.body.decoder_caches = lambda source, mask=None: read(source, None)


def pool_over_padding(loaded):
    pool = loaded.model.head.pooling.forward
    loaded.model.head.pooling.forward = lambda x, mask=None: pool(x)


def drop_mask_in_attention(loaded):
    attend = loaded.model.body.blocks[1].mixer.inner.forward
    loaded.model.body.blocks[1].mixer.inner.forward = lambda x, mask=None, cache=None, bias=None: attend(x)


def drop_mask_in_recurrence(loaded):
    read = loaded.model.body.blocks[0].forward
    loaded.model.body.blocks[0].forward = lambda x, mask=None, cache=None: read(x)


def untie_head(loaded):
    loaded.model.head.weight = nn.Parameter(loaded.model.head.weight.detach() * 1.1)


def copy_head(loaded):
    loaded.model.head.weight = nn.Parameter(loaded.model.head.weight.detach().clone())


def fill_weight(name, value):
    def plant(loaded):
        weight = loaded.model.get_parameter(name)
        with torch.no_grad():
            weight.view(-1)[: 1 if value != value else None] = value

    return plant


def zero_head_output(loaded):
    with torch.no_grad():
        loaded.model.body.blocks[1].mixer.inner.out.weight[:, 8:16] = 0


def zero_head_queries(loaded):
    with torch.no_grad():
        for part in loaded.model.body.blocks[0].mixer.inner.query.parameters():
            part[:8] = 0


def drop_letter_e(loaded):
    engine = loaded.tokenizer.backend_tokenizer
    engine.normalizer = normalizers.Sequence(
        [step for step in (engine.normalizer, normalizers.Replace("e", "")) if step]
    )


def lowercase_decoding(loaded):
    decode = loaded.tokenizer.decode
    loaded.tokenizer.decode = lambda rows: [text.lower() for text in decode(rows)]


def average_loss(loaded):
    loss = loaded.task.loss

    def mean(model, batch):
        value = loss(model, batch)
        return Loss(value.total / value.count, value.count)

    loaded.task.loss = mean


def miscount_loss(loaded):
    loss = loaded.task.loss
    loaded.task.loss = lambda model, batch: Loss(loss(model, batch).total, 1)


def count_padding(loaded):
    collate = loaded.task.collate

    def all_real(examples, rows, **options):
        collated = collate(examples, rows, **options)
        return collated._replace(real=torch.ones_like(collated.real))

    loaded.task.collate = all_real


def batch_norm_in_training_mode(loaded):
    for part in loaded.model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.train()


def subtract_batch_mean(loaded):
    loaded.model.body.blocks[0].register_forward_hook(lambda module, args, out: out - out.mean(0, keepdim=True))


def detach_block(loaded):
    loaded.model.body.blocks[0].register_forward_hook(lambda module, args, out: out.detach())


def truncate_embedding(loaded):
    tokens = loaded.model.body.tokens
    tokens.weight = nn.Parameter(tokens.weight.detach()[:40])


def refuse_cache(loaded):
    body = loaded.model.body.forward
    loaded.model.body.forward = lambda ids, mask=None: body(ids, mask)


UP = "body.blocks.1.feedforward.inner.up.weight"
IN_MEMORY = {
    "attention without causal mask": ("write", "gpt", remove_causal_mask, "causality", {"cache"}),
    "decoder attention without causal mask": (
        "translate",
        "transformer",
        remove_decoder_causal_mask,
        "causality",
        {"cache", "padding", "gradient accumulation"},
    ),
    "rotary start off by one": ("write", "llama", shift_rotary_start, "cache", set()),
    "cache without the first token": ("write", "gpt", use_cache(CacheWithoutFirstToken), "cache", set()),
    "recurrent state that stays constant": ("write", "recurrent", use_cache(CacheWithConstantState), "cache", set()),
    "cache that is not reordered with the beams": (
        "write",
        "nanochat",
        use_cache(CacheWithoutReordering),
        "cache",
        set(),
    ),
    "encoder without mask": ("translate", "transformer", drop_source_mask, "cache", {"batch independence"}),
    "pooling over padding": (
        "classify",
        "bert",
        pool_over_padding,
        "padding",
        {"gradient accumulation", "batch independence"},
    ),
    "one attention layer without mask": (
        "tag",
        "bert",
        drop_mask_in_attention,
        "padding",
        {"gradient accumulation", "batch independence"},
    ),
    "recurrence without mask": (
        "tag",
        "recurrent",
        drop_mask_in_recurrence,
        "padding",
        {"gradient accumulation", "batch independence"},
    ),
    "untied head": ("write", "gpt", untie_head, "tied weights", set()),
    "head that is a copy of the embedding": ("fill", "bert", copy_head, "tied weights", set()),
    "NaN": (
        "fill",
        "modernbert",
        fill_weight("body.blocks.0.mixer.inner.key.weight", float("nan")),
        "finite weights",
        set(),
    ),
    "infinity": ("classify", "vit", fill_weight("head.out.weight", float("inf")), "finite weights", set()),
    "matrix of zeros": ("write", "gpt", fill_weight(UP, 0.0), "zero weights", set()),
    "norm of zeros": (
        "tag",
        "bert",
        fill_weight("body.embed_norm.weight", 0.0),
        "zero weights",
        {"gradient flow", "attention heads", "attention entropy"},
    ),
    "dead head": ("classify", "bert", zero_head_output, "attention heads", set()),
    "uniform attention": ("tag", "gpt", zero_head_queries, "attention entropy", set()),
    "tokenizer that loses letters": ("fill", "bert", drop_letter_e, "tokenizer round trip", set()),
    "tokenizer that lowercases undeclared": ("embed", "bert", lowercase_decoding, "tokenizer round trip", set()),
    "loss that is a mean": ("regress", "pooled", average_loss, "gradient accumulation", set()),
    "loss with a wrong count": ("tag", "llama", miscount_loss, "gradient accumulation", set()),
    "loss that counts padding": ("translate", "recurrent", count_padding, "gradient accumulation", set()),
    "batch norm in training mode": (
        "classify",
        "resnet",
        batch_norm_in_training_mode,
        "batch independence",
        {"gradient accumulation"},
    ),
    "layer that depends on its batch": (
        "answer",
        "bert",
        subtract_batch_mean,
        "batch independence",
        {"gradient accumulation", "padding", "attention heads"},
    ),
    "more tokens than embeddings": (
        "classify",
        "pooled",
        truncate_embedding,
        "vocabulary size",
        {"padding", "batch independence", "gradient accumulation", "gradient flow", "attention heads"},
    ),
    "body without cache argument": ("write", "gpt", refuse_cache, "cache", {"batch independence"}),
    "detached gradient": ("write", "llama", detach_block, "gradient flow", set()),
}


@pytest.mark.parametrize("name", IN_MEMORY)
def test_defect_in_memory_fails_its_check(name, make_model):
    kind, family, plant, check, side_effects = IN_MEMORY[name]
    loaded = make_model(kind, family)
    plant(loaded)
    failed = failures(check_model(loaded))
    assert check in failed
    assert {*failed} <= {check} | side_effects


def test_advice_names_the_divergent_module(make_model):
    for kind, plant, check in (("write", remove_causal_mask, "causality"), ("tag", drop_mask_in_attention, "padding")):
        loaded = make_model(kind, "gpt" if kind == "write" else "bert")
        plant(loaded)
        assert "body.blocks.1.mixer" in failures(check_model(loaded))[check].advice


# Planted in the files of a folder.

GENERATION, CONFIG = "generation_config.json", "config.json"


def set_keys(file, **keys):
    def plant(folder):
        content = json.loads((folder / file).read_text())
        content |= keys
        content = {key: value for key, value in content.items() if value is not ...}
        (folder / file).write_text(json.dumps(content))

    return plant


def set_in_both(**keys):
    def plant(folder):
        for file in (GENERATION, CONFIG):
            set_keys(file, **keys)(folder)

    return plant


def add_token(folder):
    content = json.loads((folder / "tokenizer.json").read_text())
    last = max(token["id"] for token in content["added_tokens"])
    size = max([last, *content["model"]["vocab"].values()])
    content["added_tokens"].append(content["added_tokens"][-1] | {"id": size + 1, "content": "<more>"})
    (folder / "tokenizer.json").write_text(json.dumps(content))


def store_second_embedding(folder):
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if name.endswith("wte.weight"))
    save_file(tensors | {"lm_head.weight": tensors[name] * 2}, folder / "model.safetensors", {"format": "pt"})


IN_FILES = {
    "more tokens than embeddings": ("write", "gpt", add_token, "loading", set()),
    "two different output layers": ("write", "gpt", store_second_embedding, "loading", set()),
    "token outside of the vocabulary": (
        "write",
        "gpt",
        set_keys(GENERATION, bad_words_ids=[[10**6]]),
        "generation settings",
        set(),
    ),
    "no eos_token_id": (
        "write",
        "gpt",
        set_in_both(eos_token_id=...),
        "generation settings",
        set(),
    ),
    "two eos_token_id": ("write", "llama", set_keys(GENERATION, eos_token_id=7), "generation settings", set()),
    "max_length of 0": ("translate", "transformer", set_keys(GENERATION, max_length=0), "generation settings", set()),
    "min_length above max_length": (
        "write",
        "gpt",
        set_keys(GENERATION, min_length=9, max_length=5),
        "generation settings",
        set(),
    ),
    "temperature without sampling": (
        "write",
        "gpt",
        set_keys(GENERATION, temperature=0.7),
        "generation settings",
        set(),
    ),
    "more return sequences than beams": (
        "translate",
        "transformer",
        set_keys(GENERATION, num_return_sequences=9),
        "generation settings",
        set(),
    ),
    "no decoder_start_token_id": (
        "translate",
        "transformer",
        set_in_both(decoder_start_token_id=...),
        "generation settings",
        set(),
    ),
    "wrong decoder_start_token_id": (
        "translate",
        "transformer",
        set_in_both(decoder_start_token_id=3),
        "generation settings",
        set(),
    ),
    "eos_token_id unknown to the tokenizer": (
        "write",
        "gpt",
        set_in_both(eos_token_id=7),
        "special tokens",
        set(),
    ),
}


@pytest.mark.parametrize("name", IN_FILES)
def test_defect_in_folder_fails_its_check(name, save_model, tmp_path):
    kind, family, plant, check, side_effects = IN_FILES[name]
    folder = shutil.copytree(save_model(kind, family), tmp_path / "copy")
    plant(folder)
    failed = failures(check_folder(folder, no_peers=True))
    assert check in failed
    assert {*failed} <= {check} | side_effects


@pytest.mark.parametrize("file", [GENERATION, CONFIG])
def test_boundary_id_beyond_the_vocabulary_is_a_note(file, save_model, tmp_path):
    """As in IgLM: it is never generated, and no output depends on it."""
    folder = shutil.copytree(save_model("write", "gpt"), tmp_path / "copy")
    set_keys(file, bos_token_id=10**6, eos_token_id=[10**6])(folder)
    results = [*check_folder(folder, no_peers=True)]
    assert failures(results) == {}
    notes = [result for result in results if result.check == "generation settings" and result.status == "note"]
    assert [result.message for result in notes] == [
        f"{file}: bos_token_id is 1000000", f"{file}: eos_token_id is [1000000]",
    ]  # fmt: skip
    assert all("Token 1000000 does not exist" in result.advice for result in notes)


def test_transformers_parity_finds_swapped_tensors(save_model):
    """Only if regard misreads the file: tensors swapped in the file itself are swapped for both."""
    pytest.importorskip("transformers", reason="compares with transformers")
    folder = save_model("write", "llama")
    assert not failures(check_folder(folder))
    loaded = load(folder, "cpu")
    mixer = loaded.model.body.blocks[0].mixer.inner
    mixer.query.weight, mixer.out.weight = mixer.out.weight, mixer.query.weight
    assert {*failures(check_model(loaded, folder=folder))} == {"transformers parity"}


def test_golden_answers_find_tensors_swapped_in_the_file(small_run, pairs_file, tmp_path):
    folder = shutil.copytree(small_run, tmp_path / "copy")
    texts = pairs_file.read_text().splitlines()
    assert "golden answers" in {
        result.check for result in check_folder(folder, texts, no_peers=True) if result.status == "ok"
    }
    tensors = load_file(folder / "model.safetensors")
    value, query = (f"model.decoder.layers.0.self_attn.{part}_proj.weight" for part in ("v", "q"))
    tensors[value], tensors[query] = tensors[query], tensors[value]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert {*failures(check_folder(folder, texts, no_peers=True))} == {"golden answers"}


def test_pickle_is_a_note(save_model, tmp_path):
    folder = shutil.copytree(save_model("write", "gpt"), tmp_path / "copy")
    (folder / "innocent.txt").write_bytes(b"\x80\x04K\x01.")
    [note] = [result for result in check_folder(folder, no_peers=True) if result.check == "pickles"]
    assert (note.status, "innocent.txt" in note.advice) == ("note", True)


def test_outlying_weight_norm_is_a_note(make_model):
    loaded = make_model("write", "gpt", layers=4)
    with torch.no_grad():
        loaded.model.body.blocks[2].feedforward.inner.up.weight.mul_(50)
    [note] = [result for result in check_model(loaded) if result.check == "weight norms"]
    assert (note.status, "body.blocks.2.feedforward" in note.advice) == ("note", True)
