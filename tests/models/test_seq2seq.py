"""The recurrent translator satisfies the Transformer's contracts: masks, caches and searches."""

import math
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard import decode_batch
from regard.decode_request import Hypothesis
from regard.generate import generate
from regard.generation_config import GenerationOptions
from regard.look import look
from regard.models.recurrent import RecurrentConfig
from regard.models.seq2seq import Seq2Seq
from regard.parts.heads import Model
from regard.sequence_search import BeamSearch

B, S, T, V, D = 3, 7, 9, 19, 6
PAD, END = V - 1, 0
CHUNKS = [(0, 4), (4, 7), (7, 8), (8, 9)]
LENGTHS = [S, 2, 5]
GREEDY, BEAM = GenerationOptions(num_beams=1), GenerationOptions(num_beams=3, num_return=3)
SAMPLE = GenerationOptions(temperature=1.3, num_return=2, seed=5)
KINDS = [
    {"cell": "rnn", "layers": 1},
    {"cell": "gru", "layers": 3},
    {"cell": "lstm", "layers": 2},
    {"cell": "lstm", "layers": 1, "attention": False},
    {"cell": "gru", "layers": 2, "attention": False, "unidirectional": True},
]


def make_body(**options: object) -> Seq2Seq:
    torch.manual_seed(1)
    return Seq2Seq(RecurrentConfig(V, context=40, dim=D, **options)).double().eval()


@pytest.fixture(params=KINDS, ids=lambda options: "-".join(map(str, options.values())))
def body(request: pytest.FixtureRequest) -> Seq2Seq:
    return make_body(**request.param)


def ids(length: int) -> Tensor:
    return torch.randint(V - 1, (B, length), generator=torch.Generator().manual_seed(length))


def mask_of(lengths: list[int], longest: int) -> Tensor:
    return (torch.arange(longest) < torch.tensor(lengths)[:, None])[:, None, None]


def test_decoder_is_causal_and_sees_the_whole_source(body: Seq2Seq) -> None:
    source, target = ids(S), ids(T)
    before = body(source, target)
    assert before.shape == (B, T, D)
    for changed in range(T):
        altered = target.clone()
        altered[:, changed] = (target[:, changed] + 1) % (V - 1)
        differs = (body(source, altered) - before).abs().amax((0, 2)) > 1e-9
        assert differs.tolist() == [t >= changed for t in range(T)]
    for changed in range(S):
        altered = source.clone()
        altered[:, changed] = (source[:, changed] + 1) % (V - 1)
        assert ((body(altered, target) - before).abs().amax(-1) > 1e-12).all()


@pytest.mark.parametrize("extra", [0, 4])
def test_padding_of_the_source_is_invisible(body: Seq2Seq, extra: int) -> None:
    source, target = ids(S + extra), ids(T)
    garbage = torch.where(mask_of(LENGTHS, S + extra)[:, 0, 0], source, (source * 7 + 3) % V)
    assert_close(body(garbage, target, mask_of(LENGTHS, S + extra)), body(source[:, :S], target, mask_of(LENGTHS, S)))


def test_batch_equals_single_sentences(body: Seq2Seq) -> None:
    source, target = ids(S), ids(T)
    together = body(source, target, mask_of(LENGTHS, S))
    for b, length in enumerate(LENGTHS):
        assert_close(body(source[b : b + 1, :length], target[b : b + 1, : T - b])[0], together[b, : T - b])


def test_chunks_with_a_cache_equal_the_full_forward(body: Seq2Seq) -> None:
    source, target, mask = ids(S), ids(T), mask_of(LENGTHS, S)
    with torch.inference_mode():
        caches = body.decoder_caches(source, mask)
        chunks = [body.decode(target[:, a:b], cache=caches) for a, b in CHUNKS]
    assert [cache.length for cache in caches] == [T] * body.config.layers
    assert_close(torch.cat(chunks, 1), body(source, target, mask))


def test_without_attention_only_the_summary_matters() -> None:
    """The left half of the last token and the right half of the first."""
    torch.manual_seed(2)
    encoded, target, mask = torch.randn(B, S, D).double(), ids(T), mask_of(LENGTHS, S)
    altered = torch.randn(B, S, D).double()
    for b, length in enumerate(LENGTHS):
        altered[b, length - 1, : D // 2] = encoded[b, length - 1, : D // 2]
        altered[b, 0, D // 2 :] = encoded[b, 0, D // 2 :]
    for attention in False, True:
        body = make_body(attention=attention)
        assert_close(body.summary(altered, mask), body.summary(encoded, mask))
        same = torch.allclose(body.decode(target, encoded, mask), body.decode(target, altered, mask))
        assert same is not attention
        assert_close(
            [c.state for c in body.caches_from(altered, mask)], [c.state for c in body.caches_from(encoded, mask)]
        )


def test_summary_is_the_final_state_of_each_direction() -> None:
    source, mask = ids(S), mask_of(LENGTHS, S)
    for unidirectional in False, True:
        body = make_body(layers=1, unidirectional=unidirectional, cell="gru")
        summary = body.summary(body.encode(source, mask), mask)
        for b, length in enumerate(LENGTHS):
            x = body.tokens(source[b : b + 1, :length])
            (mixer,) = body.encoder
            if unidirectional:
                assert_close(summary[b], mixer.cell(x)[1][0, 0])
            else:
                assert_close(summary[b, : D // 2], mixer.left.cell(x)[1][0, 0])
                assert_close(summary[b, D // 2 :], mixer.right.cell(x.flip(1))[1][0, 0])


def test_every_weight_has_a_gradient_and_dropout_acts_in_training_only(body: Seq2Seq) -> None:
    source, target, mask = ids(S), ids(T), mask_of(LENGTHS, S)
    assert torch.equal(body(source, target), body(source, target))
    model = Model(body.train(), body.lm_head().double())
    assert not torch.equal(body(source, target), body(source, target))
    model.head.loss(body(source, target, mask).flatten(0, 1), target.flatten(), 0.1).backward()
    assert [name for name, w in model.named_parameters() if w.grad is None or w.grad.abs().max() < 1e-9] == []


def test_trace_records_attention_and_gates() -> None:
    body, mask = make_body(), mask_of(LENGTHS, S)
    with look(body) as trace:
        body(ids(S), ids(T), mask)
    weights = trace["cross.inner.weights"]
    assert_close(weights.sum(-1), torch.ones(B, 1, T).double())
    assert not weights[~mask.expand_as(weights)].any()
    assert trace["decoder.0.gates"].shape == (B, T, 4, D)


def amplify(body: Seq2Seq) -> Model:
    """Scale up the random weights, so that the output depends on the source."""
    model = Model(body, body.lm_head().double())
    for name, weight in model.named_parameters():
        if "tokens" not in name:
            weight.data *= 3
    return model


def search_all(model: Model, options: GenerationOptions, rows: list[int]) -> list[list[Hypothesis]]:
    chosen = torch.tensor(rows)
    source, mask = ids(S)[chosen], mask_of(LENGTHS, S)[chosen]

    def step(last: Tensor, caches: list) -> Tensor:
        logits = model.head(model.body.decode(last, cache=caches)[:, -1])
        logits[:, PAD] = -math.inf
        return logits

    with torch.inference_mode():
        start, limits = torch.full_like(chosen, PAD), torch.full_like(chosen, 8) + chosen
        return generate(step, model.body.decoder_caches(source, mask), start, END, limits, options, chosen)


@pytest.mark.parametrize("options", [GREEDY, BEAM, SAMPLE], ids=["greedy", "beam", "sampling"])
def test_search_scores_equal_teacher_forcing_and_single_equals_batch(body: Seq2Seq, options: GenerationOptions) -> None:
    model = amplify(body)
    for row, hypotheses in enumerate(search_all(model, options, [0, 1, 2])):
        assert len(hypotheses) == options.num_return
        (alone,) = search_all(model, options, [row])
        assert [h.ids for h in alone] == [h.ids for h in hypotheses]
        for hypothesis in hypotheses:
            target = torch.tensor([[PAD, *hypothesis.ids]])
            logits = model(ids(S)[row : row + 1, : LENGTHS[row]], target)
            logits[..., PAD] = -math.inf
            logprobs = logits[0].log_softmax(-1).gather(1, torch.tensor([*hypothesis.ids, END])[:, None])
            assert hypothesis.logp == pytest.approx(logprobs.sum().item(), abs=1e-4)


def test_beam_of_one_is_greedy(body: Seq2Seq) -> None:
    model = amplify(body)
    greedy = search_all(model, GREEDY, [0, 1, 2])
    with patch.object(decode_batch, "Sampling", lambda end: BeamSearch(end, 1)):
        beam = search_all(model, GREEDY, [0, 1, 2])
    assert [[h.ids for h in hypotheses] for hypotheses in greedy] == [
        [h.ids for h in hypotheses] for hypotheses in beam
    ]
    assert len({tuple(hypotheses[0].ids) for hypotheses in greedy}) > 1, "the outputs differ between sources"


@pytest.mark.parametrize("attention", [False, True])
def test_one_batch_can_be_memorised(attention: bool) -> None:
    torch.manual_seed(1)
    body = Seq2Seq(RecurrentConfig(V, dim=16, layers=2, attention=attention, dropout=0.0))
    model = Model(body, body.lm_head())
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    target = torch.cat((torch.full((B, 1), PAD), ids(T)[:, :-1]), 1)
    for _ in range(60):
        loss = model.head.loss(body(ids(S), target, mask_of(LENGTHS, S)).flatten(0, 1), ids(T).flatten()) / (B * T)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1
