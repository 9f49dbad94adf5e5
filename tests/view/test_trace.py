"""Looking inside: weights that sum to one, numbers that can be checked, guesses that are the model's own, no shift."""

import json
import math
import zlib
from base64 import b64decode
from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers
from torch.testing import assert_close

from regard.data.pictures import Pictures
from regard.data.pieces import READING, TRANSLATING, WRITING, Pieces, learn
from regard.data.tokens import Tokenizer
from regard.load import Loaded, load
from regard.look import look
from regard.models import MODELS, ability_for
from regard.parts.attention import join
from regard.parts.positions import Alibi, Sinusoidal, sinusoids
from regard.tasks import TASKS
from regard.tasks.classify import Classify
from regard.tasks.embed import Embed
from regard.view import attention_maps
from regard.view.attention_maps import attention_tab, maps, steps_tab
from regard.view.figures import stills
from regard.view.logit_lens import guessed, stream, stream_tab
from regard.view.position_table import positions_tab
from regard.view.trace import UNKNOWN, run
from regard.view.word_attention import Start, between_words, sharpest, start_of
from regard.view.word_pieces import Line, line, words

H, D, L, CONTEXT = 3, 24, 2, 40
TEXTS = [
    "The red cat runs because it is late, isn't it?",
    "A blue bird sleeps (so it says).",
    "Die Katze kommt spät.",
] * 9
TEXT, TARGET = "The red cat runs because it is late.", "Die Katze sleeps spät, so it says."
SMALL = {
    "context": CONTEXT, "dim": D, "layers": L, "encoder_layers": L, "decoder_layers": L + 1, "heads": H, "kv_heads": 1,
    "hidden": 20, "dropout": 0.0, "stages": 1,
}  # fmt: skip
LAYOUTS = {"translate": TRANSLATING, "write": WRITING}
LEARNT = {
    "classify": {"labels": ["a", "b"]},
    "tag": {"tags": ["O", "B-x", "I-x", "B-y", "I-y", "B-z"]},
    "regress": {"mean": 0.0, "spread": 1.0},
}
TOKENIZERS = {
    name: learn(TEXTS, Pieces(vocab=v), layout) for name, v, layout in (("t", 60, TRANSLATING), ("r", 64, READING))
}
TOKENIZERS["w"] = learn(TEXTS, Pieces(vocab=280), WRITING)
ASKED = {
    "answer": f"Who came?\t{TEXT}",
    "fill": "The red [MASK] runs because it is late.",
    "classify": f"{TEXT}\tA bird.",
}


def made(kind, family, aim=None, **config):
    """A model with random weights, large enough that no head is indifferent."""
    torch.manual_seed(0)
    tokenizer = TOKENIZERS[{"translate": "t", "write": "w"}.get(kind, "r")]
    task = TASKS[kind](tokenizer=tokenizer, **LEARNT.get(kind, {}), **(aim or {}))
    one = MODELS[family]
    known = {field.name for field in fields(one.config)}
    said = {name: value for name, value in (SMALL | task.sizes() | config).items() if name in known}
    model = task.head(one.bodies[ability_for(family, kind, task.asks)](one.config(**said))).eval()
    for name, weight in model.named_parameters():
        if not name.startswith("head.bias"):
            torch.nn.init.normal_(weight, std=0.3)
    return Loaded(model, task)


def seen_by(loaded):
    kind = next(name for name, task in TASKS.items() if type(loaded.task) is task)
    return run(loaded, ASKED.get(kind, TEXT), TARGET if kind == "translate" else None)


def numbers(blob, *shape, kind="<f4"):
    return np.frombuffer(zlib.decompress(b64decode(blob)), kind).reshape(shape)


EVERY = [
    ("translate", "transformer", {}),
    ("translate", "transformer", {"norm_last": True}),
    ("translate", "recurrent", {}),
    ("write", "gpt", {}),
    ("write", "llama", {}),
    ("write", "nano", {"softcap": 15.0}),
    ("fill", "bert", {}),
    ("classify", "bert", {}),
    ("tag", "bert", {"after_pad": True}),
    ("answer", "bert", {}),
    ("regress", "gpt", {}),
    ("embed", "llama", {}),
    ("tag", "nano", {}),
    ("fill", "modernbert", {"every": 2, "window": 1}),
]
every = pytest.mark.parametrize(
    ("kind", "family", "config"), EVERY, ids=lambda x: x if isinstance(x, str) else str(len(x))
)


# Attention.


@every
def test_every_row_spreads_one_over_the_tokens_beside_it(kind, family, config):
    inside = seen_by(made(kind, family, **config))
    found = maps(inside)
    names = {"transformer": ["cross", "encoder", "decoder"], "recurrent": ["cross"]}.get(family, ["self"])
    assert [one.name for one in found] == names
    for one in found:
        layers = L + 1 if one.name in ("cross", "decoder") else L
        heads = 1 if family == "recurrent" else H
        wanted = (1 if family == "recurrent" else layers, heads, len(one.asks.pieces), len(one.answers.pieces))
        assert one.weights.shape == wanted
        np.testing.assert_allclose(one.weights.sum(-1), 1.0, atol=1e-6)


@every
def test_what_the_page_is_told_can_be_reckoned_again(kind, family, config):
    """Queries, keys, mask and scale give the weights, and with the values what attention has said."""
    inside = seen_by(made(kind, family, **config))
    found = maps(inside)
    tab = json.loads(json.dumps(attention_tab(found, inside)))
    for one, told in zip(found, tab["maps"], strict=True):
        T, S = len(told["asks"]), len(told["answers"])
        small = numbers(told["weights"], told["layers"], told["heads"], T, S, kind="u1")
        assert np.abs(small / 255 - one.weights).max() <= 0.5 / 255 + 1e-6
        assert len(told["askWords"]) == T
        assert len(told["answerWords"]) == S
        if family == "recurrent":
            assert told["opened"] == []
            continue
        assert [(h["layer"], h["head"]) for h in told["opened"]] == [*np.ndindex(told["layers"], told["heads"])]
        for home in range(told["layers"]):
            said = []
            for head in told["opened"][home * H : (home + 1) * H]:
                E = head["size"]
                q, k, v = (numbers(head[name], n, E) for name, n in (("queries", T), ("keys", S), ("values", S)))
                scores = torch.tensor(q @ k.T * head["scale"])
                if head["mask"]:
                    scores = scores.masked_fill(torch.tensor(numbers(head["mask"], T, S, kind="u1") == 0), -math.inf)
                weights = scores.softmax(-1)
                assert_close(weights, torch.tensor(numbers(head["weights"], T, S)), atol=1e-5, rtol=0)
                said.append(weights @ torch.tensor(v))
            module = inside.model.get_submodule(one.homes[home])
            with torch.no_grad():
                assert_close(
                    module.out(join(torch.stack(said)[None])), inside.seen[one.homes[home]], atol=1e-4, rtol=1e-4
                )
    steps = steps_tab(tab)
    assert (steps is None) == (family == "recurrent")


def test_who_writes_sees_nothing_behind_it():
    for loaded, name in ((made("write", "gpt"), "self"), (made("translate", "transformer"), "decoder")):
        inside = seen_by(loaded)
        one = next(one for one in maps(inside) if one.name == name)
        assert not np.triu(one.weights, 1).any()
        assert "it writes the next" in one.says
        assert all(head["mask"] for head in attention_maps.as_told(one, inside, 10**6)["opened"])


def test_who_only_reads_is_not_said_to_write():
    [one] = maps(seen_by(made("tag", "gpt")))
    assert "nothing that comes after" in one.says
    assert "writes" not in one.says
    [one] = maps(seen_by(made("fill", "bert")))
    assert "after" not in one.says


def test_a_bias_on_the_scores_is_told():
    loaded = made("write", "gpt")
    for block in loaded.model.body.blocks:
        block.mixer.inner.score_bias = Alibi(H)
    inside = seen_by(loaded)
    [told] = attention_tab(maps(inside), inside)["maps"]
    T, head = len(told["asks"]), told["opened"][H + 1]
    q, k = (numbers(head[name], T, head["size"]) for name in ("queries", "keys"))
    scores = q @ k.T * head["scale"] + numbers(head["bias"], T, T)
    weights = torch.tensor(np.where(np.tri(T), scores, -np.inf)).softmax(-1)
    assert_close(weights.float(), torch.tensor(numbers(head["weights"], T, T)), atol=1e-5, rtol=0)


def test_a_row_of_the_cross_map_is_the_step_that_wrote_its_token():
    """Written token by token, the weights of step t are those of the row that is named after what step t writes."""
    loaded = made("translate", "transformer")
    inside = seen_by(loaded)
    cross, _, decoder = maps(inside)
    task, body = loaded.task, loaded.model.body
    [source], [wanted] = task.encode([TEXT]), task.tokenizer.encode_targets([TARGET])
    assert cross.asks.pieces == task.tokenizer.pieces(wanted)
    assert cross.answers.pieces == task.tokenizer.pieces(source)
    assert decoder.asks.pieces == decoder.answers.pieces == ["start", *task.tokenizer.pieces(wanted)[:-1]]
    with torch.inference_mode():
        caches = body.read(torch.tensor([source]))
        for t, given in enumerate([task.first, *wanted[:-1]]):
            with look(loaded.model) as seen:
                body.decode(torch.tensor([[given]]), cache=caches)
            for one in (cross, decoder):
                row = seen[f"{one.homes[1]}.weights"][0, :, 0].numpy()  # (H,S)
                np.testing.assert_allclose(one.weights[1, :, t, : row.shape[1]], row, atol=1e-5)


def test_heads_are_opened_while_there_is_room_and_that_of_the_start_always():
    inside = seen_by(made("write", "gpt"))
    [one] = maps(inside)
    assert attention_maps.to_open(one, inside, 0) == [one.start[:2]]
    T, E = len(one.asks.pieces), D // H
    few = attention_maps.to_open(one, inside, (H + 1) * 4 * (T * T + 3 * T * E))
    assert len(few) == H + 1
    assert {(one.start.layer, head) for head in range(H)} < set(few)


def test_attention_that_pools_is_a_map_too():
    inside = seen_by(made("classify", "recurrent", {"pooling": "attention"}))
    [one] = maps(inside)
    assert (one.name, one.weights.shape[:3]) == ("pooling", (1, 1, 1))
    np.testing.assert_allclose(one.weights.sum(), 1.0, atol=1e-6)
    assert [one.name for one in maps(seen_by(made("regress", "bert", {"pooling": "attention"})))] == ["self", "pooling"]


# The stream.


@every
def test_the_last_guess_is_the_models_own(kind, family, config):
    loaded = made(kind, family, **config)
    inside = seen_by(loaded)
    found = stream(inside)
    if family == "recurrent":
        assert found is None
        return
    if kind in ("classify", "regress", "answer", "embed"):
        assert found.lens is None
        assert found.wanted is None
        return
    places = range(len(inside.given.pieces))
    if kind == "tag":  # of each word its first piece
        places = [inside.given.places.index(word) for word in range(len(inside.given.words))]
        assert found.tokens == inside.given.words
    logits = guessed(inside, found.states[-1:])
    assert torch.equal(logits, inside.logits[:, places])
    chances = logits[0].softmax(-1)
    for t, best in enumerate(found.lens[-1]):
        assert len(best) == 5
        wanted = chances[t].topk(5).values
        assert_close(torch.tensor([p for _, p in best]), wanted, atol=1e-5, rtol=0)
        if kind != "tag":
            assert len(found.wanted) == len(found.tokens)
            assert best[0][0] == line(loaded.tokenizer, [int(chances[t].argmax())]).pieces[0]
        else:
            assert best[0][0] == loaded.task.tags[int(chances[t].argmax())]


@every
def test_norms_are_those_of_what_each_block_leaves(kind, family, config):
    loaded = made(kind, family, **config)
    found = stream(seen_by(loaded))
    if found is None:
        return
    tab = json.loads(json.dumps(stream_tab(found)))
    body = loaded.model.body
    blocks = body.decoder if kind == "translate" else body.blocks
    assert tab["layers"] == ["embedding", *(f"block {i + 1}" for i in range(len(blocks)))]
    passed = []  # into each block, and out of the last
    hooks = [block.register_forward_pre_hook(lambda _, args: passed.append(args[0])) for block in blocks]
    hooks.append(blocks[-1].register_forward_hook(lambda *args: passed.append(args[2])))
    seen_by(loaded)
    for hook in hooks:
        hook.remove()
    given = seen_by(loaded).given
    first = [given.places.index(word) for word in range(len(given.words))]
    places = first if kind == "tag" else range(len(given.pieces))
    wanted = [x[0].norm(dim=-1)[places].tolist() for x in passed]
    np.testing.assert_allclose(tab["norms"], wanted, atol=1e-3)
    assert len(tab["norms"][0]) == len(tab["tokens"])


def test_a_writer_is_asked_for_the_next_token():
    """The guess at place t is that of the text up to t alone, and what is wanted there stands at t + 1."""
    loaded = made("write", "llama", {"opens": True})
    inside = run(loaded, TEXT)
    found = stream(inside)
    ids = [loaded.tokenizer.begin, *loaded.tokenizer.encode([TEXT])[0]]
    assert found.tokens == line(loaded.tokenizer, ids).pieces
    assert found.wanted == [*found.tokens[1:], UNKNOWN]
    with torch.no_grad():
        alone = loaded.model(torch.tensor([ids[:4]]))
    assert_close(inside.logits[:, 3], alone[:, 3], atol=1e-5, rtol=1e-5)


def test_who_fills_in_is_asked_for_the_token_itself():
    inside = run(made("fill", "bert"), "The red [MASK] runs")
    hidden = inside.given.pieces.index("[MASK]")
    assert inside.given.places[hidden] >= 0
    assert inside.wanted.pieces == [*inside.given.pieces[:hidden], UNKNOWN, *inside.given.pieces[hidden + 1 :]]


def test_the_decoder_is_asked_for_the_translation():
    inside = seen_by(made("translate", "transformer"))
    assert stream(inside).tokens[1:] == stream(inside).wanted[:-1]
    assert stream(inside).wanted[-1] == "</s>"


def test_a_translator_says_its_own_words_unless_told_others(small_run):
    translator = load(small_run, device="cpu")
    wanted = translator.tokenizer.encode_targets([translator("tea and water 7")])[0]
    assert run(translator, "tea and water 7").wanted.pieces == translator.tokenizer.pieces(wanted)


# Words.


def hashed():
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "un", "##like", "##ly", ",", "run"]
    engine = Engine(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.post_processor = TOKENIZERS["r"].engine.post_processor
    return Tokenizer(engine, READING.roles)


def test_pieces_that_go_on_make_words():
    tokenizer = hashed()
    found = line(tokenizer, tokenizer.encode(["the cats, unlikely tigers"])[0])
    assert found.pieces == ["[CLS]", "the", "cat", "##s", ",", "un", "##like", "##ly", "[UNK]", "[SEP]"]
    assert found.places == [-1, 0, 1, 1, 2, 3, 3, 3, 4, -1]
    assert found.words == ["the", "cats", ",", "unlikely", "[UNK]"]


def test_bytes_are_shown_as_letters():
    tokenizer = learn(["tea for two"] * 9, Pieces(vocab=262), WRITING)
    ids = [tokenizer.end, *tokenizer.encode(["Grüße, tea\n"])[0]]
    found = line(tokenizer, ids)
    assert found.words == ["Grüße", ",", "tea", ""]
    assert found.places[:1] == [-1]
    assert [p for p in found.pieces if p[:1] == "Ġ"]
    assert "Ċ" in found.pieces[-1]


@pytest.mark.parametrize("pieces", ["bpe", "unigram", "characters"])
def test_marked_spaces_make_words(pieces):
    tokenizer = learn(TEXTS, Pieces(pieces=pieces), READING)
    found = line(tokenizer, tokenizer.encode(["The cat, it (runs)"])[0])
    assert found.words == ["The", "cat", ",", "it", "(", "runs", ")"]
    assert (found.places[0], found.places[-1]) == (-1, -1)


def test_letters_with_spaces_between_make_words():
    tokenizer = learn(TEXTS, Pieces(pieces="characters"), WRITING)
    assert line(tokenizer, tokenizer.encode(["The cat, it"])[0]).words == ["The", "cat", ",", "it"]


SAYABLE = st.text(st.sampled_from("abü ,.(\n漢🙂'"), max_size=30)


@given(SAYABLE, st.sampled_from("trw"))
def test_no_piece_is_lost_and_words_stand_in_order(text, which):
    tokenizer = TOKENIZERS[which]
    ids = tokenizer.encode([text])[0]
    found = line(tokenizer, ids)
    assert len(found.pieces) == len(found.places) == len(ids)
    inner = [place for place in found.places if place >= 0]
    assert inner == sorted(inner)
    assert sorted(set(inner)) == list(range(len(found.words)))
    if which == "w":
        assert "".join(found.words) == "".join(text.split())


def test_special_tokens_are_no_part_of_a_word_whatever_they_look_like():
    assert words(["▁a", "END", "b"], "▁", {1}) == [("a", [0]), ("END", [1]), ("b", [2])]
    assert words(["▁a", "END", "b"], "▁") == [("aENDb", [0, 1, 2])]


# What is found.


def plain(text):
    names = text.split()
    return Line(names, list(range(len(names))), names)


def spread(heads, size, **planted):
    """Weights that are even but for some rows."""
    weights = np.full((L, heads, size, size), 1 / size, np.float32)
    for where, row in planted.items():
        layer, head, ask = (int(i) for i in where[1:].split("_"))
        weights[layer, head, ask] = row
    return weights


def test_the_head_that_resolves_a_pronoun_is_named():
    text = plain("The animal sleeps because it is tired")
    far = np.array([0.05, 0.41, 0.1, 0.1, 0.1, 0.14, 0.1])
    beside = np.array([0, 0, 0, 0.9, 0, 0.1, 0])
    after = np.array([0, 0, 0, 0, 0.1, 0.1, 0.8])
    weights = spread(H, 7, _1_2_4=far, _0_0_4=beside, _0_1_4=after, _1_1_6=np.eye(7)[1])
    assert start_of(weights, text, text, None) == (Start(1, 2, 4), 'layer 2, head 3 puts 0.41 of "it" on "animal"')
    assert start_of(weights, text, text, "TIRED")[1] == 'layer 2, head 2 puts 1.00 of "tired" on "animal"'


def test_a_place_at_which_every_word_looks_is_no_find():
    text = plain("So the animal sleeps because it is tired")
    weights = spread(H, 8, _1_2_5=np.array([0.1, 0.1, 0.3, 0.1, 0.1, 0.1, 0.1, 0.1]))
    weights[0, 0] = np.eye(8)[0]
    assert start_of(weights, text, text, None)[1] == 'layer 2, head 3 puts 0.30 of "it" on "animal"'
    weights[0, 0] = np.eye(8)[2]
    told = 'layer 2, head 3 puts 0.30 of "it" on "animal" (most of all heads: layer 1, head 1 with 1.00, for other'
    assert start_of(weights, text, text, None)[1] == f"{told} words too)"


def test_without_a_pronoun_the_sharpest_word_is_named():
    text = plain("red cats run and sleep")
    weights = spread(H, 5, _0_1_3=np.array([0.9, 0.1, 0, 0, 0]))
    assert start_of(weights, text, text, None) == (Start(0, 1, 3), 'layer 1, head 2 puts 0.90 of "and" on "red"')


def test_punctuation_is_nothing_to_be_found():
    text = plain("Well , the cats run and it sleeps")
    weights = spread(H, 8, _0_1_6=0.9 * np.eye(8)[1] + 0.0125, _1_1_6=0.5 * np.eye(8)[3] + 0.0625)
    assert start_of(weights, text, text, None)[1] == 'layer 2, head 2 puts 0.56 of "it" on "cats"'


def test_neighbours_are_found_where_there_is_nobody_else():
    weights = spread(1, 2, _1_0_1=np.array([0.8, 0.2]))
    same = plain("red it")
    assert start_of(weights, same, same, None) == (Start(1, 0, 1), 'layer 2, head 1 puts 0.80 of "it" on "red"')
    alone = plain("it")
    assert start_of(spread(2, 1), alone, alone, None) == (Start(0, 0, 0), None)
    nobody = Line(["</s>"], [-1], [])
    assert start_of(spread(2, 1), nobody, nobody, None) == (Start(0, 0, 0), None)


def test_a_translator_starts_with_the_layer_that_aligns_most_sharply():
    source, target = plain("it is late now ."), plain("es ist so")
    weights = np.full((3, 2, 3, 5), 0.2, np.float32)
    weights[1] = 0.7 * np.eye(3, 5) + 0.3 / 5
    weights[1, 1, 2] = [0.1, 0, 0.9, 0, 0]
    weights[0, 1, 0] = np.eye(5)[3]  # sharper, but only here
    weights[1, 0, 0] = np.eye(5)[4]  # sharper still, but on a full stop
    assert sharpest(weights) == 1
    start, found = start_of(weights, target, source, None, sharpest(weights))
    assert (start, found) == (Start(1, 1, 2), 'layer 2, head 2 puts 0.90 of "so" on "late"')
    assert start_of(weights, target, source, "es", 1)[1] == 'layer 2, head 2 puts 0.76 of "es" on "it"'


def test_words_of_several_pieces_give_their_mean_and_get_their_sum():
    text = Line(["a", "b", "c", "</s>"], [0, 0, 1, -1], ["ab", "c"])
    weights = np.array([[0.1, 0.2, 0.3, 0.4], [0.3, 0.2, 0.1, 0.4], [0.25] * 4, [0, 0, 0, 1]], np.float32)
    np.testing.assert_allclose(between_words(weights, text, text), [[0.4, 0.2], [0.5, 0.25]], rtol=1e-6)
    start, found = start_of(weights[None, None], text, text, "ab")
    assert (start, found) == (Start(0, 0, 0), 'layer 1, head 1 puts 0.20 of "ab" on "c"')  # of its pieces, the surer


# Positions.


@pytest.mark.parametrize(("kind", "family", "name"), [
    ("translate", "transformer", "sinusoidal"), ("write", "gpt", "learned"), ("tag", "bert", "learned"),
    ("write", "llama", "rotary"), ("write", "nano", "rotary"),
])  # fmt: skip
def test_the_table_of_positions_is_the_models_own(kind, family, name):
    body = made(kind, family, after_pad=True, pad=3).model.body if family == "bert" else made(kind, family).model.body
    tab = json.loads(json.dumps(positions_tab(body)))
    assert tab["name"] == name
    assert tab["shape"] == [CONTEXT, D // H if name == "rotary" else D]
    table = torch.tensor(numbers(tab["table"], *tab["shape"]))
    if name == "rotary":
        sines, cosines = table.chunk(2, -1)
        assert_close(sines.square() + cosines.square(), torch.ones_like(sines))
    else:
        assert_close(table, body.positions(CONTEXT).detach())
    assert tab["alike"][0] == 1
    assert len(tab["alike"]) == CONTEXT
    unit = torch.nn.functional.normalize(table, dim=-1)
    assert_close(tab["alike"][3], (unit[3:] * unit[:-3]).sum(-1).mean().item(), atol=1e-5, rtol=0)
    assert [sum(bit << i for i, bit in enumerate(row)) for row in tab["counter"]] == list(range(CONTEXT))


def test_a_wide_table_shows_fewer_places_and_none_shows_nothing():
    class Wide:
        positions = torch.nn.Module()

    assert positions_tab(Wide()) is None
    assert positions_tab(made("translate", "recurrent").model.body) is None
    Wide.positions = Sinusoidal(300, 2000)
    tab = positions_tab(Wide())
    assert tab["shape"] == [50, 2000]
    assert_close(torch.tensor(numbers(tab["table"], 50, 2000)), sinusoids(50, 2000))


# What is refused, and still pictures.


@pytest.mark.parametrize(("kind", "family", "more"), [
    ("classify", "pooled", {}), ("classify", "pooled", {"aim": {"pooling": "attention"}}), ("tag", "recurrent", {}),
    ("write", "recurrent", {}), ("translate", "recurrent", {"attention": False}),
], ids=str)  # fmt: skip
def test_models_without_attention_are_refused(kind, family, more):
    with pytest.raises(ValueError, match="this model has no attention to look at"):
        maps(seen_by(made(kind, family, **more)))


@pytest.mark.parametrize(("kind", "family"), [
    ("write", "gpt"), ("fill", "bert"), ("classify", "bert"), ("tag", "gpt"), ("answer", "bert"), ("regress", "llama"),
    ("embed", "bert"), ("translate", "transformer"),
])  # fmt: skip
def test_a_text_longer_than_the_context_is_refused_not_cut(kind, family):
    loaded = made(kind, family)
    text = ASKED.get(kind, TEXT) + " The red cat runs." * 20
    with pytest.raises(
        ValueError, match=rf"\d\d+ tokens do not fit this model's context of {CONTEXT}: shorten the text"
    ):
        run(loaded, text, "Tee" if kind == "translate" else None)
    if kind == "translate":
        with pytest.raises(ValueError, match=f"context of {CONTEXT}"):
            run(loaded, "A cat", text)


def test_what_cannot_be_looked_at_is_named():
    with pytest.raises(ValueError, match="context of 5: shorten"):
        run(made("embed", "bert", {"limit": 5}), TEXT)
    with pytest.raises(ValueError, match="has no text to look into"):
        run(
            Loaded(
                made("classify", "bert").model, Classify(labels=["a", "b"], pictures=Pictures(8, 1, (0.5,), (0.5,)))
            ),
            "a",
        )
    with pytest.raises(ValueError, match="does not translate"):
        run(made("write", "gpt"), TEXT, "a target")
    with pytest.raises(ValueError, match="has no tokens"):
        run(Loaded(made("embed", "gpt").model, Embed(tokenizer=TOKENIZERS["w"])), "")
    with pytest.raises(ValueError, match='no word "dog" asks in this text: there are The, red, cat'):
        maps(run(made("write", "gpt"), TEXT), "dog")


def test_still_pictures_are_drawn_whatever_the_tokens_say(tmp_path):
    inside = run(made("write", "gpt"), "It costs $5 or $x^{2$ \\frac 漢字\t🙂")
    files = stills(maps(inside), stream(inside), tmp_path / "look.html")
    assert [file.name for file in files] == ["look-self-heads.png", "look-self-map.png", "look-lens.png"]
    assert all(min(Image.open(file).size) > 200 for file in files)
