"""Our folders in other programs: transformers and CTranslate2 give our outputs, through files on disk."""

import json
import random

import numpy as np
import pytest
import torch

from regard.data.rows import Row
from regard.data.tokenizer_train import BERT_LAYOUT, GPT_LAYOUT, TokenizerOptions, train_tokenizer
from regard.decode_request import DecodeRequest
from regard.generate import hypotheses_of
from regard.generation_config import GenerationOptions
from regard.hub.folder import read_config
from regard.load import load
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.modalities.token_preprocessor import TokenIds
from regard.models import MODELS
from regard.models.transformer import Transformer, TransformerConfig
from regard.tasks.classify import Classify
from regard.tasks.fill import Fill
from regard.tasks.translate import Translate
from regard.tasks.write import Write, WriteOptions
from regard.training.loop import Progress, TrainOptions
from regard.training.loop import train_steps as learn_steps
from regard.training.run_folder import RunFolder

transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")

NOUNS = ["tea", "water", "bread", "house", "river", "garden", "letter", "window", "train", "song"]
VERBS = ["likes", "sees", "takes", "wants", "brings", "finds"]
TIE = 1e-5  # two best logits this close may be told apart differently


def sentences(count):
    draw = random.Random(7)
    return [
        " ".join(draw.choices(NOUNS + VERBS, k=draw.randint(1, 9))) + draw.choice([".", "?", "!"]) for _ in range(count)
    ]


def translation_row(source, target):
    return Row((source,), target, "", 1, source)


@pytest.fixture(scope="module", params=[True, False], ids=["post-norm is Marian", "pre-norm is Pegasus"])
def folder(request, tmp_path_factory):
    """A model trained for 100 steps to reverse sentences, with noise in every weight."""
    torch.manual_seed(3)
    tokenizer = train_tokenizer(sentences(500), TokenizerOptions(vocab_size=80))
    task = Translate(preprocessor=TextPreprocessor(tokenizer))
    config = TransformerConfig(
        vocab=len(tokenizer), context=64, dim=24, encoder_layers=3, decoder_layers=2, heads=4, hidden=40,
        post_norm=request.param, pad=tokenizer.pad_token_id,
    )  # fmt: skip
    model = task.head(Transformer(config))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "tokens" not in name and name != "head.bias":
                weight.add_(torch.randn_like(weight) * 0.1)
    train_options = TrainOptions(steps=100, lr=0.01, warmup_steps=20, batch_tokens=400)
    rows = [translation_row(text, " ".join(reversed(text.split()))) for text in sentences(500)]
    for _ in learn_steps(Progress.new(model, train_options), task, task.encode(rows), train_options):
        pass
    model.eval()
    run = RunFolder.new(tmp_path_factory.mktemp("run") / "model")
    run.describe(model, task, {})
    run.publish(model)
    return run.folder


def test_transformers_gives_our_logits(folder):
    ours = load(folder, device="cpu")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    kind = "MarianMTModel" if ours.model.body.config.post_norm else "PegasusForConditionalGeneration"
    assert type(theirs).__name__ == kind
    batch = ours.task.collate(ours.task.encode([*map(translation_row, sentences(9), sentences(18)[9:])]), range(9))
    ids, mask, _ = batch.inputs
    with torch.inference_mode():
        our_logits = ours.model(ids, batch.decoder_ids, mask)
        hf_logits = theirs(
            input_ids=ids, attention_mask=mask[:, 0, 0].long(), decoder_input_ids=batch.decoder_ids
        ).logits
    assert (our_logits - hf_logits)[batch.real].abs().max() < 1e-5


def test_transformers_tokenizes_as_we_do(folder):
    ours, theirs = load(folder, device="cpu"), transformers.AutoTokenizer.from_pretrained(folder)
    texts = [*sentences(50), "tea, (water)!  bread"]
    assert theirs(texts).input_ids == ours.tokenizer.encode(texts)
    assert [theirs.decode(ids, skip_special_tokens=True) for ids in theirs(texts).input_ids] == ours.tokenizer.decode(
        ours.tokenizer.encode(texts)
    )


def equal_except_ties(ours, text, mine, theirs):
    """Equal, or they diverge where our two best logits differ by less than TIE."""
    if mine == theirs:
        return True
    at = next(i for i, (a, b) in enumerate(zip(mine + [-1], theirs + [-1], strict=False)) if a != b)
    pad = ours.tokenizer.pad_token_id
    source = torch.tensor(ours.tokenizer.encode([text]))
    with torch.inference_mode():
        best = ours.model(source, torch.tensor([[pad, *mine[:at]]]))[0, -1].topk(2).values
    return float(best[0] - best[1]) < TIE


def our_tokens(ours, texts, length):
    sources = TokenIds(ours.tokenizer.encode(texts))
    results = ours.task.search(
        ours.model, sources, np.arange(len(texts)), GenerationOptions(num_beams=1, max_new_tokens=length)
    )
    return [best[0].ids for best in results]


def test_greedy_tokens_of_transformers_on_200_sentences(folder):
    ours = load(folder, device="cpu")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts, length = sentences(200), 20
    mine = our_tokens(ours, texts, length)
    hf_tokens = []
    for i in range(0, len(texts), 50):
        batch = tokenizer(texts[i : i + 50], return_tensors="pt", padding=True)
        hf_tokens += theirs.generate(**batch, num_beams=1, do_sample=False, max_length=length + 1).tolist()
    end, pad = ours.tokenizer.eos_token_id, ours.tokenizer.pad_token_id
    clean = [[t for t in (row[1:] + [end])[: (row[1:] + [end]).index(end)] if t != pad] for row in hf_tokens]
    assert all(equal_except_ties(ours, *row) for row in zip(texts, mine, clean, strict=True))
    assert len({tuple(row) for row in mine}) > 50, "too few different outputs to compare"


def test_greedy_tokens_of_ctranslate2_on_200_sentences(folder, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the dev extra")
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(str(folder)).convert(str(tmp_path / "ct2"))
    ours = load(folder, device="cpu")
    texts, length = sentences(200), 20
    mine = our_tokens(ours, texts, length)
    translator = ctranslate2.Translator(str(tmp_path / "ct2"), device="cpu", compute_type="float32")
    prompts = [ours.tokenizer.convert_ids_to_tokens(ids) for ids in ours.tokenizer.encode(texts)]
    hf_tokens = translator.translate_batch(prompts, beam_size=1, min_decoding_length=0, max_decoding_length=length)
    clean = [[ours.tokenizer.backend_tokenizer.token_to_id(t) for t in r.hypotheses[0]] for r in hf_tokens]
    assert all(equal_except_ties(ours, *row) for row in zip(texts, mine, clean, strict=True))


def test_saving_twice_gives_the_same_bytes(folder, tmp_path):
    ours = load(folder, device="cpu")
    second = RunFolder.new(tmp_path / "again")
    second.describe(ours.model, ours.task, {})
    second.publish(ours.model)
    for file in (
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
    ):
        assert (second.folder / file).read_bytes() == (folder / file).read_bytes(), file


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "marlan"}, "'marlan' is not supported yet: regard reads marian"),
        ({"activation_function": "tanh"}, "tanh"),
        ({"d_model": "wide"}, "dim"),
        ({"encoder_attention_heads": 3}, "heads"),
        ({"encoder_layers": 4}, "lacks"),
        ({"encoder_layers": 2}, "no place"),
        ({"encoder_ffn_dim": 41}, "hidden"),
    ],
)
def test_a_wrong_config_is_refused_by_name(folder, tmp_path, change, message):
    for file in folder.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        load(tmp_path, device="cpu")
    assert read_config(folder)


SMALL = {"context": 64, "dim": 24, "layers": 2, "heads": 6, "hidden": 40}


def publish_run(folder, model, task):
    """A published run with noise in every weight."""
    torch.manual_seed(3)
    family = MODELS[model]
    sizes = {name: size for name, size in task.sizes().items() if name in family.config.__dataclass_fields__}
    whole = task.head(next(iter(family.bodies.values()))(family.config(**SMALL, **sizes))).eval()
    with torch.no_grad():
        for weight in whole.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    run = RunFolder.new(folder)
    run.describe(whole, task, {})
    run.publish(whole)
    return run.folder


@pytest.fixture(scope="module", params=["gpt", "llama", "nanochat"])
def causal_folder(request, tmp_path_factory):
    tokenizer = train_tokenizer(sentences(100), TokenizerOptions(tokenizer="characters"), GPT_LAYOUT)
    return publish_run(
        tmp_path_factory.mktemp("run") / "model", request.param, Write(preprocessor=TextPreprocessor(tokenizer))
    )


def test_transformers_generates_the_tokens_of_our_causal_models(causal_folder):
    ours = load(causal_folder, device="cpu")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(causal_folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(causal_folder)
    texts, length, roles = [text[:30] for text in sentences(40)], 12, ours.tokenizer.roles
    pad, end, unknown = (ours.tokenizer.token_id(roles[role]) for role in ("pad_token", "eos_token", "unk_token"))
    assert tokenizer(texts).input_ids == ours.tokenizer.encode(texts)
    added = []
    for text in texts:
        ids = torch.tensor(tokenizer([text]).input_ids)
        with torch.inference_mode():
            assert (ours.model(ids) - theirs(input_ids=ids).logits).abs().max() < 1e-5
        how = {"max_new_tokens": length, "do_sample": False, "suppress_tokens": [pad, unknown], "eos_token_id": end}
        mask = torch.ones_like(ids)
        hf_ids = theirs.generate(ids, attention_mask=mask, pad_token_id=pad, **how)[0, ids.size(1) :].tolist()
        request = DecodeRequest(ids[0].tolist(), length, WriteOptions(temperature=0.0))
        [[best]] = hypotheses_of(ours.task.decode(ours.model, [request])).values()
        mine = best.ids
        assert mine == [token for token in hf_ids if token != end]
        added.append(tuple(mine))
    assert len(set(added)) > 10, "too few different outputs to compare"


def test_transformers_gives_the_logits_of_our_masked_lm(tmp_path):
    tokenizer = train_tokenizer(sentences(100), TokenizerOptions(vocab_size=80), BERT_LAYOUT)
    task = Fill(preprocessor=TextPreprocessor(tokenizer))
    folder = publish_run(tmp_path / "model", "bert", task)
    ours, theirs = load(folder, device="cpu"), transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    for text in sentences(10):
        ids = torch.tensor([task.encode_masked(f"[MASK] {text}")])
        with torch.inference_mode():
            assert (ours.model(ids) - theirs(input_ids=ids).logits).abs().max() < 1e-5


@pytest.mark.parametrize("model", ["gpt", "llama", "nanochat", "bert"])
def test_transformers_loads_the_body_of_our_classifiers(model, tmp_path):
    tokenizer = train_tokenizer(sentences(100), TokenizerOptions(vocab_size=80), BERT_LAYOUT)
    task = Classify(labels=["a", "b", "c"], preprocessor=TextPreprocessor(tokenizer))
    folder = publish_run(tmp_path / "model", model, task)
    ours, theirs = load(folder, device="cpu"), transformers.AutoModel.from_pretrained(folder).eval()
    ids = torch.tensor(task.tokenizer.encode(sentences(1)))
    with torch.inference_mode():
        assert (ours.model.body(ids) - theirs(input_ids=ids).last_hidden_state).abs().max() < 1e-5
