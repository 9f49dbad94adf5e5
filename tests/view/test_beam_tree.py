"""The tree equals beam search: the same hypotheses, and no node that the search did not score."""

import json
import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.data.tokenizer_train import TokenizerOptions, train_tokenizer
from regard.generate import generate
from regard.generation_config import GenerationOptions
from regard.loaded_model import LoadedModel
from regard.modalities.protocols import Target
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.models.bert import Bert, BertConfig
from regard.models.recurrent import RecurrentConfig
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer, TransformerConfig
from regard.parts.cache import Cache
from regard.tasks.classify import Classify
from regard.tasks.translate import Translate
from regard.view.beam_tree import beam_tab, beam_tree, translation_tree

END, START = 0, 1


class PrefixCache(Cache):
    """The prefix of each row, as one number."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = torch.zeros(1, dtype=torch.int64)

    def select(self, rows: Tensor) -> None:
        self.codes = self.codes[rows]


class TableModel:
    """A random model: the next token depends on the full prefix."""

    def __init__(self, vocab: int, longest: int, seed: int):
        self.vocab = vocab
        random = torch.Generator().manual_seed(seed)
        self.table = 2 * torch.randn(vocab ** (longest + 2), vocab, generator=random)

    def step(self, ids: Tensor, caches: list[Cache]) -> Tensor:
        [cache] = caches
        cache.codes = cache.codes * self.vocab + ids[:, 0]
        return self.table[cache.codes]

    def logp(self, tokens: list[int]) -> float:
        code, total = START, 0.0
        for token in tokens:
            total += self.table[code].log_softmax(-1)[token].item()
            code = code * self.vocab + token
        return total

    def tree(self, limit: int, options: GenerationOptions):
        return beam_tree(self.step, [PrefixCache()], torch.tensor([START]), END, limit, options)


@given(
    seed=st.integers(0, 999),
    vocab=st.integers(2, 6),
    limit=st.integers(1, 4),
    beam=st.integers(1, 7),
    min_new_tokens=st.integers(0, 5),
    penalty=st.sampled_from([0.0, 0.6, 1.0]),
)
@settings(max_examples=150)
def test_hypotheses_equal_those_of_beam_search(seed, vocab, limit, beam, min_new_tokens, penalty) -> None:
    table_model = TableModel(vocab, limit, seed)
    options = GenerationOptions(num_beams=beam, num_return=beam, length_penalty=penalty, min_new_tokens=min_new_tokens)
    start, limits = torch.tensor([START]), torch.tensor([limit])
    [expected] = generate(table_model.step, [PrefixCache()], start, END, limits, options, torch.tensor([0]))
    assert table_model.tree(limit, options).hypotheses[:beam] == expected


@pytest.mark.parametrize("vocab", [3, 4])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_full_beam_ranks_all_texts(vocab: int, penalty: float) -> None:
    longest = 3
    texts = [[*text] for length in range(longest + 1) for text in product(range(1, vocab), repeat=length)]
    for seed in range(10):
        table_model = TableModel(vocab, longest, seed)

        def logp(text, table_model=table_model) -> float:
            """At the limit only the end is left, but its probability is what it is."""
            return table_model.logp([*text, END])

        tree = table_model.tree(longest, GenerationOptions(num_beams=len(texts), length_penalty=penalty))
        expected = sorted(texts, key=lambda text: -logp(text) / (len(text) + 1) ** penalty)
        assert [answer.ids for answer in tree.hypotheses] == expected
        assert [answer.logp for answer in tree.hypotheses] == pytest.approx([logp(text) for text in expected], abs=1e-5)


@given(seed=st.integers(0, 999), beam=st.integers(1, 5))
@settings(max_examples=40)
def test_every_node_extends_an_alive_node(seed: int, beam: int) -> None:
    table_model = TableModel(5, 4, seed)
    tree = table_model.tree(4, GenerationOptions(num_beams=beam))
    assert tree.nodes[0].parent is None
    for index, node in enumerate(tree.nodes[1:], 1):
        parent = tree.nodes[node.parent]
        assert node.parent < index
        assert parent.is_alive
        assert node.length == parent.length + 1
        assert node.logp == pytest.approx(table_model.logp(tree.tokens(index)), abs=1e-5)
        assert not (node.is_alive and node.is_finished)
        assert not node.is_finished or node.token == END
    for time in range(1, tree.nodes[-1].length + 1):
        now = [node for node in tree.nodes if node.length == time]
        alive = [node.logp for node in now if node.token != END and node.is_alive]
        pruned = [node.logp for node in now if node.token != END and not node.is_alive]
        assert len(alive) <= beam
        assert len(now) <= 2 * beam
        assert max(pruned, default=-math.inf) <= min(alive, default=-math.inf)
    assert Counter(node.is_finished for node in tree.nodes)[True] == len(tree.hypotheses) == len(tree.leaves)


TEXTS = ["a bad cab", "b", "abba had a dad", "cab cab cab cab", "h", "hab da bad"]


def translator(kind: str) -> LoadedModel:
    """Its weights are random but large, so that what it says depends on what it read. In float64, where the kernels
    that a processor chooses for a batch and for a single text differ by less than the search can see."""
    task = Translate(preprocessor=TextPreprocessor(train_tokenizer(TEXTS, TokenizerOptions("characters"))))
    torch.manual_seed(2)
    if kind == "transformer":
        sizes = {"dim": 16, "encoder_layers": 1, "decoder_layers": 2, "heads": 2, "hidden": 24}
        body = Transformer(TransformerConfig(len(task.tokenizer), context=40, **sizes))
    else:
        body = Seq2Seq(RecurrentConfig(len(task.tokenizer), context=40, dim=16, layers=2))
    model = task.head(body).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.data *= 10
    model.head.bias.data[0, task.tokenizer.pad_token_id] = 9.0  # a padding token that must never be generated
    return LoadedModel(model.double(), task)


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_a_translator_returns_the_hypotheses_of_its_tree(kind: str) -> None:
    loaded = translator(kind)
    task, model = loaded.task, loaded.model
    options = GenerationOptions(num_beams=3, num_return=3)
    sources = task.encode_sources([task.preprocessor.parse(text, Target.TEXT) for text in TEXTS])
    hypotheses = task.search(model, sources, np.arange(len(TEXTS)), options)
    for text, expected in zip(TEXTS, hypotheses, strict=True):
        tree = translation_tree(task, model, text, options)
        assert [answer.ids for answer in tree.hypotheses[:3]] == [answer.ids for answer in expected]
        assert [answer.logp for answer in tree.hypotheses[:3]] == pytest.approx([a.logp for a in expected], rel=1e-5)


def test_the_tab_has_all_data_of_the_page() -> None:
    loaded = translator("transformer")
    tab = json.loads(json.dumps(beam_tab(loaded, TEXTS[0])))
    assert (tab["kind"], tab["penalty"]) == ("beam", 1.0)
    assert [node["id"] for node in tab["nodes"]] == [*range(len(tab["nodes"]))]
    assert tab["nodes"][0]["parent"] is None
    assert {node["pruned"] for node in tab["nodes"]} == {True, False}
    assert tab["hypotheses"][0]["text"] == loaded(TEXTS[0])
    scores = [answer["logp"] / answer["length"] ** tab["penalty"] for answer in tab["hypotheses"]]
    assert scores == sorted(scores, reverse=True)
    for answer in tab["hypotheses"]:
        node = tab["nodes"][answer["node"]]
        assert node["finished"]
        assert not node["pruned"], "finished nodes are not pruned"
        assert (node["token"], node["length"], node["logp"]) == ("</s>", answer["length"], answer["logp"])


def test_a_long_text_shows_its_first_sentence() -> None:
    loaded = translator("transformer")
    loaded.task.max_train_length = 12
    long = beam_tab(loaded, "A bad cab. A bad dad had a cab.")
    assert long["nodes"] == beam_tab(loaded, "A bad cab.")["nodes"]
    assert beam_tab(loaded, "a" * 60) is None


def test_only_translators_have_a_tree() -> None:
    tokenizer = train_tokenizer(TEXTS, TokenizerOptions("characters"))
    task = Classify(preprocessor=TextPreprocessor(tokenizer), labels=["a", "b"])
    model = task.head(Bert(BertConfig(len(tokenizer), dim=8, layers=1, hidden=8)))
    assert beam_tab(LoadedModel(model, task), "b") is None
