"""A recurrent translator keeps the contracts of the Transformer: the same calls, caches and searches."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.generate import GenerationOptions, Hypothesis, beam_search, generate
from regard.look import look
from regard.models.recurrent import RecurrentConfig
from regard.models.seq2seq import Seq2Seq
from regard.parts.heads import Model

B, S, T, V, D = 3, 7, 9, 19, 6
PAD, END = V - 1, 0
PIECES = [(0, 4), (4, 7), (7, 8), (8, 9)]
LENGTHS = [S, 2, 5]
GREEDY, BEAM = GenerationOptions(num_beams=1), GenerationOptions(num_beams=3, num_return=3)
SAMPLE = GenerationOptions(temperature=1.3, num_return=2, seed=5)
KINDS = [
    {"cell": "rnn", "layers": 1},
    {"cell": "gru", "layers": 3},
    {"cell": "lstm", "layers": 2},
    {"cell": "lstm", "layers": 1, "attention": False},
    {"cell": "gru", "layers": 2, "attention": False, "one_way": True},
]


def body_of(**how: object) -> Seq2Seq:
    torch.manual_seed(1)
    return Seq2Seq(RecurrentConfig(V, context=40, dim=D, **how)).double().eval()


@pytest.fixture(params=KINDS, ids=lambda how: "-".join(map(str, how.values())))
def body(request: pytest.FixtureRequest) -> Seq2Seq:
    return body_of(**request.param)


def ids(length: int) -> Tensor:
    return torch.randint(V - 1, (B, length), generator=torch.Generator().manual_seed(length))


def mask_of(lengths: list[int], longest: int) -> Tensor:
    return (torch.arange(longest) < torch.tensor(lengths)[:, None])[:, None, None]


def test_the_decoder_does_not_peek_ahead_and_sees_all_of_the_source(body: Seq2Seq) -> None:
    source, target = ids(S), ids(T)
    before = body(source, target)
    assert before.shape == (B, T, D)
    for changed in range(T):
        other = target.clone()
        other[:, changed] = (target[:, changed] + 1) % (V - 1)
        differs = (body(source, other) - before).abs().amax((0, 2)) > 1e-9
        assert differs.tolist() == [t >= changed for t in range(T)]
    for changed in range(S):
        other = source.clone()
        other[:, changed] = (source[:, changed] + 1) % (V - 1)
        assert ((body(other, target) - before).abs().amax(-1) > 1e-12).all()


@pytest.mark.parametrize("more", [0, 4])
def test_padding_of_the_source_is_invisible_whatever_stands_there(body: Seq2Seq, more: int) -> None:
    source, target = ids(S + more), ids(T)
    garbage = torch.where(mask_of(LENGTHS, S + more)[:, 0, 0], source, (source * 7 + 3) % V)
    assert_close(body(garbage, target, mask_of(LENGTHS, S + more)), body(source[:, :S], target, mask_of(LENGTHS, S)))


def test_a_batch_equals_its_sentences_one_by_one(body: Seq2Seq) -> None:
    source, target = ids(S), ids(T)
    together = body(source, target, mask_of(LENGTHS, S))
    for b, length in enumerate(LENGTHS):
        assert_close(body(source[b : b + 1, :length], target[b : b + 1, : T - b])[0], together[b, : T - b])


def test_token_by_token_equals_all_at_once(body: Seq2Seq) -> None:
    source, target, mask = ids(S), ids(T), mask_of(LENGTHS, S)
    with torch.inference_mode():
        caches = body.read(source, mask)
        pieces = [body.decode(target[:, a:b], cache=caches) for a, b in PIECES]
    assert [cache.length for cache in caches] == [T] * body.config.layers
    assert_close(torch.cat(pieces, 1), body(source, target, mask))


def test_without_attention_a_summary_is_all_that_is_known_of_a_source() -> None:
    """Left half of the last real token, right half of the first."""
    torch.manual_seed(2)
    encoded, target, mask = torch.randn(B, S, D).double(), ids(T), mask_of(LENGTHS, S)
    other = torch.randn(B, S, D).double()
    for b, length in enumerate(LENGTHS):
        other[b, length - 1, : D // 2] = encoded[b, length - 1, : D // 2]
        other[b, 0, D // 2 :] = encoded[b, 0, D // 2 :]
    for attention in False, True:
        body = body_of(attention=attention)
        assert_close(body.summary(other, mask), body.summary(encoded, mask))
        same = torch.allclose(body.decode(target, encoded, mask), body.decode(target, other, mask))
        assert same is not attention
        assert_close([c.state for c in body.begin(other, mask)], [c.state for c in body.begin(encoded, mask)])


def test_the_summary_is_what_each_direction_knew_at_its_end() -> None:
    source, mask = ids(S), mask_of(LENGTHS, S)
    for one_way in False, True:
        body = body_of(layers=1, one_way=one_way, cell="gru")
        summary = body.summary(body.encode(source, mask), mask)
        for b, length in enumerate(LENGTHS):
            x = body.tokens(source[b : b + 1, :length])
            (mixer,) = body.encoder
            if one_way:
                assert_close(summary[b], mixer.cell(x)[1][0, 0])
            else:
                assert_close(summary[b, : D // 2], mixer.left.cell(x)[1][0, 0])
                assert_close(summary[b, D // 2 :], mixer.right.cell(x.flip(1))[1][0, 0])


def test_every_weight_learns_and_dropout_is_on_in_training_only(body: Seq2Seq) -> None:
    source, target, mask = ids(S), ids(T), mask_of(LENGTHS, S)
    assert torch.equal(body(source, target), body(source, target))
    model = Model(body.train(), body.vocabulary().double())
    assert not torch.equal(body(source, target), body(source, target))
    model.head.loss(body(source, target, mask).flatten(0, 1), target.flatten(), 0.1).backward()
    assert [name for name, w in model.named_parameters() if w.grad is None or w.grad.abs().max() < 1e-9] == []


def test_where_it_looks_can_be_seen() -> None:
    body, mask = body_of(), mask_of(LENGTHS, S)
    with look(body) as seen:
        body(ids(S), ids(T), mask)
    weights = seen["cross.inner.weights"]
    assert_close(weights.sum(-1), torch.ones(B, 1, T).double())
    assert not weights[~mask.expand_as(weights)].any()
    assert seen["decoder.0.gates"].shape == (B, T, 4, D)


def loud(body: Seq2Seq) -> Model:
    """Weights are random but large, so that what it says depends on what it read."""
    model = Model(body, body.vocabulary().double())
    for name, weight in model.named_parameters():
        if "tokens" not in name:
            weight.data *= 3
    return model


def answers(model: Model, how: GenerationOptions, rows: list[int], search=generate) -> list[list[Hypothesis]]:
    chosen = torch.tensor(rows)
    source, mask = ids(S)[chosen], mask_of(LENGTHS, S)[chosen]

    def step(last: Tensor, caches: list) -> Tensor:
        logits = model.head(model.body.decode(last, cache=caches)[:, -1])
        logits[:, PAD] = -math.inf
        return logits

    with torch.inference_mode():
        start, limits = torch.full_like(chosen, PAD), torch.full_like(chosen, 8) + chosen
        more = [chosen] if search is generate else []
        return search(step, model.body.read(source, mask), start, END, limits, how, *more)


@pytest.mark.parametrize("how", [GREEDY, BEAM, SAMPLE], ids=["greedy", "beam", "sampling"])
def test_every_search_gives_the_log_probability_of_teacher_forcing_and_single_equals_batch(
    body: Seq2Seq, how: GenerationOptions
) -> None:
    model = loud(body)
    for row, found in enumerate(answers(model, how, [0, 1, 2])):
        assert len(found) == how.num_return
        (alone,) = answers(model, how, [row])
        assert [h.ids for h in alone] == [h.ids for h in found]
        for hypothesis in found:
            target = torch.tensor([[PAD, *hypothesis.ids]])
            logits = model(ids(S)[row : row + 1, : LENGTHS[row]], target)
            logits[..., PAD] = -math.inf
            logprobs = logits[0].log_softmax(-1).gather(1, torch.tensor([*hypothesis.ids, END])[:, None])
            assert hypothesis.logp == pytest.approx(logprobs.sum().item(), abs=1e-4)


def test_a_beam_of_one_is_greedy(body: Seq2Seq) -> None:
    model = loud(body)
    greedy, beam = answers(model, GREEDY, [0, 1, 2]), answers(model, GREEDY, [0, 1, 2], beam_search)
    assert [[h.ids for h in found] for found in greedy] == [[h.ids for h in found] for found in beam]
    assert len({tuple(found[0].ids) for found in greedy}) > 1, "a model that says one thing proves nothing"


@pytest.mark.parametrize("attention", [False, True])
def test_a_batch_is_learnt_by_heart(attention: bool) -> None:
    torch.manual_seed(1)
    body = Seq2Seq(RecurrentConfig(V, dim=16, layers=2, attention=attention, dropout=0.0))
    model = Model(body, body.vocabulary())
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    target = torch.cat((torch.full((B, 1), PAD), ids(T)[:, :-1]), 1)
    for _ in range(60):
        loss = model.head.loss(body(ids(S), target, mask_of(LENGTHS, S)).flatten(0, 1), ids(T).flatten()) / (B * T)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1
