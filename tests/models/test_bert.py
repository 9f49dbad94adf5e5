"""BERT has the published sizes, segments, and the logits of transformers with the same weights."""

import pytest
import torch
from torch.testing import assert_close

from regard.models.bert import SIZES, Bert, BertConfig
from regard.parts.heads import Model
from regard.parts.pooling import POOLINGS

B, T, V, SEP = 3, 7, 19, 4
LENGTHS = [T, 4, 5]
NAMES = {
    "bert.embeddings.word_embeddings.weight": "body.tokens.weight",
    "bert.embeddings.position_embeddings.weight": "body.positions.weight",
    "bert.embeddings.token_type_embeddings.weight": "body.segments.weight",
    "cls.predictions.bias": "head.bias",
    **{
        f"{theirs}.{w}": f"{ours}.{w}"
        for w in ("weight", "bias")
        for theirs, ours in {
            "bert.embeddings.LayerNorm": "body.embed_norm",
            "bert.encoder.layer.{}.attention.self.query": "body.blocks.{}.mixer.inner.query",
            "bert.encoder.layer.{}.attention.self.key": "body.blocks.{}.mixer.inner.key",
            "bert.encoder.layer.{}.attention.self.value": "body.blocks.{}.mixer.inner.value",
            "bert.encoder.layer.{}.attention.output.dense": "body.blocks.{}.mixer.inner.out",
            "bert.encoder.layer.{}.attention.output.LayerNorm": "body.blocks.{}.mixer.norm",
            "bert.encoder.layer.{}.intermediate.dense": "body.blocks.{}.feedforward.inner.up",
            "bert.encoder.layer.{}.output.dense": "body.blocks.{}.feedforward.inner.down",
            "bert.encoder.layer.{}.output.LayerNorm": "body.blocks.{}.feedforward.norm",
            "cls.predictions.transform.dense": "head.transform.inner",
            "cls.predictions.transform.LayerNorm": "head.transform.norm",
        }.items()
    },
}


@pytest.mark.parametrize(("name", "count"), [("tiny", 4_416_698), ("base", 109_514_298), ("large", 335_174_458)])
def test_published_parameter_counts(name: str, count: int) -> None:
    with torch.device("meta"):
        body = Bert(BertConfig(vocab=30_522, **SIZES[name]))
        model = Model(body, body.lm_head())
    assert sum(weight.numel() for weight in model.parameters()) == count


@pytest.mark.parametrize("name", SIZES)
def test_head_dim_is_64_in_every_size(name: str) -> None:
    assert SIZES[name]["dim"] == 64 * SIZES[name]["heads"]
    assert SIZES[name]["hidden"] == 4 * SIZES[name]["dim"]


@pytest.mark.parametrize(
    ("count", "start", "expected"),
    [(1, 1, [0, 0, 0, 0, 0]), (2, 1, [0, 0, 1, 1, 1]), (3, 2, [0, 0, 0, 1, 1]), (2, 0, [0, 0, 0, 0, 0])],
)
def test_second_segment_begins_after_a_separator(count: int, start: int, expected: list[int]) -> None:
    body = Bert(BertConfig(V, segments=count, sep=SEP, segment_start=start))
    assert body.segment_ids(torch.tensor([[1, SEP, SEP, 2, SEP]]), None).tolist() == [expected]


def test_without_a_separator_there_is_one_segment() -> None:
    body = Bert(BertConfig(V))
    assert not body.segment_ids(torch.arange(V)[None], None).any()


@pytest.mark.parametrize("pad", [0, 3])
def test_roberta_positions_are_bert_positions_with_an_offset(pad: int) -> None:
    sizes = {"context": T, "dim": 12, "layers": 1, "heads": 3, "hidden": 20, "pad": pad}
    bert, roberta = (
        Bert(BertConfig(V, **sizes, positions_after_pad=positions_after_pad)).eval()
        for positions_after_pad in (False, True)
    )
    assert len(roberta.positions.weight) == T + pad + 1
    weights = roberta.state_dict()
    bert.load_state_dict(weights | {"positions.weight": weights["positions.weight"][pad + 1 :]})
    ids = torch.randint(pad + 1, V, (B, T))
    mask = (torch.arange(T) < torch.tensor(LENGTHS)[:, None])[:, None, None]
    packed = torch.block_diag(*(torch.ones(n, n) for n in (3, T - 3))).bool().expand(B, 1, T, T)
    for attention_mask in None, mask, packed:
        assert torch.equal(bert(ids, attention_mask), roberta(ids, attention_mask))
    with pytest.raises(ValueError, match=rf"{T + 1} tokens .*context of {T}\b"):
        roberta(torch.zeros(B, T + 1, dtype=torch.long))


def test_head_activation_is_that_of_the_body_or_gelu_in_roberta() -> None:
    x = torch.randn(B, 12)
    for positions_after_pad, activation in (False, torch.relu), (True, torch.nn.functional.gelu):
        body = Bert(BertConfig(V, dim=12, heads=3, activation="relu", positions_after_pad=positions_after_pad))
        head = body.lm_head()
        assert_close(head.transform(x), head.transform.norm(activation(head.transform.inner(x))))
        assert (body.blocks[0].feedforward.inner.activation(x) >= 0).all()


def test_pooler_equals_its_formula() -> None:
    pool, x = POOLINGS["pooler"](5), torch.randn(B, T, 5)
    torch.nn.init.normal_(pool.dense.bias)
    assert_close(pool(x), torch.tanh(x[:, 0] @ pool.dense.weight.T + pool.dense.bias))


@pytest.mark.parametrize("padded", [False, True])
def test_logits_equal_transformers(padded: bool, randomize, copy_weights) -> None:
    transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=V, max_position_embeddings=11, hidden_size=12, num_hidden_layers=3, num_attention_heads=3,
        intermediate_size=20,
    )  # fmt: skip
    theirs = randomize(transformers.BertForMaskedLM(config)).eval()
    body = Bert(BertConfig(V, context=11, dim=12, layers=3, heads=3, hidden=20, sep=SEP))
    ours = copy_weights(dict(theirs.named_parameters()), Model(body, body.lm_head()), NAMES).eval()
    ids = torch.randint(SEP + 1, V, (B, T))
    ids[:, 2] = SEP
    real = torch.arange(T) < torch.tensor(LENGTHS if padded else [T] * B)[:, None]
    with torch.inference_mode():
        ours_logits = ours(ids, mask=real[:, None, None] if padded else None)
        kinds = (torch.arange(T) > 2).long().expand(B, T)
        theirs_logits = theirs(input_ids=ids, attention_mask=real.long(), token_type_ids=kinds).logits
    assert_close(ours_logits[real], theirs_logits[real], rtol=0, atol=1e-5)
