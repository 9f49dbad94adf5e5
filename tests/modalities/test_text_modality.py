"""Passages: no text is lost, order and line breaks are preserved, and an endless input is streamed."""

from itertools import count, islice

from hypothesis import given
from hypothesis import strategies as st

from regard.data.tokenizer_train import MARIAN_LAYOUT, TokenizerOptions, train_tokenizer
from regard.load import load
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.tasks.task import Prediction
from regard.tasks.translate import TranslateOptions, join_predictions

READER = TextPreprocessor(train_tokenizer(["ab. \t?!A"], TokenizerOptions("characters"), MARIAN_LAYOUT))
TEXTS = st.lists(st.text(alphabet="ab. \n\t?!A", max_size=30), max_size=6)


def predict_passages(texts, predict):
    """Every line is split into sentences."""
    layouts = [READER.passages(text, 0) for text in texts]
    predictions = iter(predict([part for layout in layouts for part, _ in layout if part is not None]))
    return [
        join_predictions([([] if part is None else next(predictions), space) for part, space in layout])
        for layout in layouts
    ]


def shout(sentences, count=1):
    return [[Prediction(text.upper() + "'" * i, -1.0 - i, -1.0 - i) for i in range(count)] for text in sentences]


@given(TEXTS)
def test_sentences_are_predicted_and_joined_in_order(texts):
    predictions = [best[0].text for best in predict_passages(texts, shout)]
    assert [" ".join(prediction.split()) for prediction in predictions] == [
        " ".join(text.upper().split()) for text in texts
    ]
    assert [prediction.count("\n") for prediction in predictions] == [text.count("\n") for text in texts]


@given(TEXTS)
def test_no_sentence_is_empty(texts):
    inputs = []

    def predict(sentences):
        inputs.extend(sentences)
        return shout(sentences)

    list(predict_passages(texts, predict))
    assert all(sentence.strip() == sentence != "" for sentence in inputs)


def test_log_probs_of_a_text_are_sums_over_its_sentences():
    (best,) = predict_passages(["\nOne. Two.\n"], lambda sentences: shout(sentences, count=2))
    assert [prediction.text for prediction in best] == ["\nONE. TWO.\n", "\nONE.' TWO.'\n"]
    assert [prediction.logprob for prediction in best] == [-2.0, -4.0]


def test_an_endless_input_is_read_window_by_window(small_run, monkeypatch):
    translator, read = load(small_run, device="cpu"), []

    def endless():
        for i in count():
            read.append(i)
            yield f"tea and water {i % 90}"

    monkeypatch.setattr(type(translator.task), "window", 8)
    predictions = translator.task.predict(translator.model, endless(), TranslateOptions(num_beams=1))
    assert len(list(islice(predictions, 20))) == 20
    assert len(read) == 24, "three windows of eight"


def test_the_window_size_does_not_change_predictions(small_run, monkeypatch):
    translator = load(small_run, device="cpu")
    inputs = [f"tea {'and water ' * (i % 4)}{i}" for i in range(11)]
    wide = [best[0].text for best in translator.generate(inputs)]
    monkeypatch.setattr(type(translator.task), "window", 2)
    assert [best[0].text for best in translator.task.predict(translator.model, inputs)] == wide
    assert [translator(text) for text in inputs] == wide == translator(inputs)


def test_a_line_longer_than_all_training_sentences_is_split(small_run):
    translator = load(small_run, device="cpu")
    first, second = "Tea and milk please no bread and water.", "Tea please and milk and bread and water no."
    assert translator.task.max_train_length < len(translator.tokenizer.encode([f"{first} {second}"])[0])
    assert (
        translator(f"{first} {second}\n\n{second}")
        == f"{translator(first)} {translator(second)}\n\n{translator(second)}"
    )


def test_requests_without_a_sentence_are_predicted_as_they_are(small_run):
    translator = load(small_run, device="cpu")
    assert translator(["", "\n", " \n"]) == ["", "\n", " \n"]
