"""The scheduler: every job gets what the model answers alone, whatever the others do. Models are built in memory."""

from __future__ import annotations

import math
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from regard.answer_stream import AnswerStream
from regard.data.tokenizer_train import GPT_LAYOUT, TokenizerOptions, train_tokenizer
from regard.decode_request import DecodeRequest, FinishEvent
from regard.engine.executors import batch_invariant_engine
from regard.engine.quantize import quantize_model
from regard.fair_lock import FairLock
from regard.loaded_model import LoadedModel
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.scheduler import (
    Cancelled,
    DeadlineExceeded,
    Done,
    Event,
    Failed,
    InputTooLong,
    QueueFull,
    ScheduledJob,
    Scheduler,
    SchedulerOptions,
    Token,
)
from regard.tasks.dynamic_batch import DynamicBatch
from regard.tasks.write import Write

sys.path.append(str(Path(__file__).parent))
from small_tasks import TEXTS, loaded_model, small  # noqa: E402

LONG = "tea\n\n  Water and milk.  " + "No bread please. " * 4 + "\nmilk "
GENERATING = ["write", "translate", "recurrent"]
INPUTS = {
    "classify": [*TEXTS, "tea\tmilk"],
    "regress": TEXTS,
    "tag": [*TEXTS, "tea " * 40],
    "answer": [f"{text}\t{other}" for text in TEXTS for other in ("no tea and milk", "bread " * 20)],
    "embed": [f"{text}\ttea\tmilk and bread" for text in TEXTS],
    "fill": [f"{text} [MASK]" for text in TEXTS[:4]],
}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "write": [
        {"temperature": 0.0, "max_new_tokens": 9},
        {"temperature": 2.0, "max_new_tokens": 20, "seed": 3},
        {"temperature": 0.0, "num_beams": 3, "num_return": 2, "max_new_tokens": 9},
        {"temperature": 1.0, "num_return": 2, "max_new_tokens": 9},
        {"temperature": 1.5, "max_new_tokens": 110, "min_new_tokens": 110},  # beyond the context
    ],
    "translate": [
        {},
        {"num_beams": 1},
        {"num_beams": 3, "num_return": 3, "max_new_tokens": 9},
        {"temperature": 1.0, "num_return": 2},
        {"temperature": 2.0, "seed": 4},
    ],
}
TWELVE = {"num_beams": 1, "temperature": 1.0, "min_new_tokens": 12, "max_new_tokens": 12}
OPTIONS["recurrent"] = OPTIONS["translate"]
ENGINE_ONLY = pytest.mark.skipif(
    batch_invariant_engine(small("write").model) is None, reason="the engine does not run here"
)


class Gate:
    """The lock of a scheduler, by which a test counts out its steps."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.arrivals, self.permits = 0, 0.0

    def __enter__(self) -> None:
        with self.changed:
            self.arrivals += 1
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.permits > 0, 60)
            self.permits -= 1

    def __exit__(self, *_: object) -> None: ...

    def wait(self) -> None:
        """Until the scheduler is about to run a step."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.arrivals > 0 and not self.permits, 60)

    def step(self, count: int = 1) -> None:
        """Let the scheduler run some steps; then it waits before the next."""
        for _ in range(count):
            self.wait()
            with self.changed:
                self.permits, self.arrivals = 1.0, 0
                self.changed.notify_all()
        self.wait()

    def open(self) -> None:
        with self.changed:
            self.permits = math.inf
            self.changed.notify_all()


@contextmanager
def running(loaded: LoadedModel, gate: Gate | FairLock | None = None, **options: Any) -> Iterator[Scheduler]:
    is_reproducible = options.pop("is_reproducible", False)
    scheduler = Scheduler(loaded, SchedulerOptions(**options), is_reproducible, gate)
    try:
        yield scheduler
    finally:
        if isinstance(gate, Gate):
            gate.open()
        scheduler.close(drain=False)
        assert not scheduler._thread.is_alive()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.001)


def submit_all(scheduler: Scheduler, raws: Sequence[str], **options: Any) -> list[ScheduledJob]:
    return [scheduler.submit(raw, scheduler.loaded.make_options(**options)) for raw in raws]


def error_of(job: ScheduledJob) -> Exception:
    """The error of a job that must fail."""
    try:
        done = job.result()
    except Exception as error:
        return error
    raise AssertionError(f"the job has ended without an error: {done}")


def check_idle(scheduler: Scheduler) -> None:
    """Nothing waits or runs, and no slot of the KV cache is in use."""
    wait_for(lambda: not scheduler.stats().running and not scheduler.stats().waiting)
    executor = scheduler.executor
    assert executor is None or (len(executor), executor.slots_in_use) == (0, 0)


def tokens_of(events: Sequence[Event]) -> list[Token]:
    return [event for event in events if isinstance(event, Token)]


class TestAnswers:
    @pytest.mark.parametrize("name", GENERATING)
    def test_answers_equal_those_of_a_call(self, name: str) -> None:
        """All inputs with all options at the same time."""
        loaded = small(name)
        raws = TEXTS if name == "write" else [*TEXTS, LONG, "", "\n \n"]
        with running(loaded, prefill_tokens=7) as scheduler:
            jobs = [(submit_all(scheduler, raws, **options), options) for options in OPTIONS[name]]
            for group, options in jobs:
                for raw, job in zip(raws, group, strict=True):
                    done, expected = job.result(), loaded.generate(raw, **options)
                    assert [p.text for p in done.predictions] == [p.text for p in expected]
                    assert [p.logprob for p in done.predictions] == pytest.approx(
                        [p.logprob for p in expected], abs=1e-3
                    )
                    assert done.finish_reasons == [p.finish_reason for p in expected]
                    assert done.completion_tokens == sum(p.tokens for p in expected)
            check_idle(scheduler)

    @pytest.mark.parametrize("name", INPUTS)
    def test_answers_of_other_tasks_equal_those_of_a_call(self, name: str) -> None:
        loaded = small(name)
        with running(loaded) as scheduler:
            jobs = {count: submit_all(scheduler, INPUTS[name], num_return=count) for count in (1, 2)}
            for count, group in jobs.items():  # other options: another batch
                for raw, job in zip(INPUTS[name], group, strict=True):
                    best, expected = job.result().predictions, loaded.generate(raw, num_return=count)
                    if name == "regress":  # the last digit depends on the batch
                        assert float(best[0].text) == pytest.approx(float(expected[0].text), abs=1e-3)
                    else:
                        assert [p.text for p in best] == [p.text for p in expected]
                    assert [p.score for p in best] == pytest.approx([p.score for p in expected], abs=1e-4)
            check_idle(scheduler)

    @pytest.mark.parametrize("name", ["classify", "embed"])
    def test_vectors_equal_those_of_embed(self, name: str) -> None:
        loaded = small(name)
        with running(loaded) as scheduler:
            jobs = [scheduler.submit(raw, embed=True) for raw in TEXTS]
            predicted = scheduler.submit("tea\tmilk")
            for raw, job in zip(TEXTS, jobs, strict=True):
                done = job.result()
                assert done.vector == pytest.approx(loaded.embed(raw), abs=1e-4)
                assert done.predictions == []
                assert done.prompt_tokens > len(raw) / 2
            assert predicted.result().predictions[0].text == loaded("tea\tmilk")

    @ENGINE_ONLY
    @pytest.mark.parametrize("name", ["write", "translate"])
    @pytest.mark.parametrize("int8", [False, True], ids=["exact", "int8"])
    def test_an_answer_has_the_same_bits_alone_and_from_many_threads(self, name: str, int8: bool) -> None:
        loaded = small(name)
        if int8:
            loaded = LoadedModel(quantize_model(loaded.model), loaded.task)
        self.check_threads(loaded, OPTIONS[name])

    def test_a_plain_model_has_the_same_bits_from_many_threads_if_it_is_reproducible(self) -> None:
        self.check_threads(small("recurrent"), OPTIONS["recurrent"][1:4], is_reproducible=True)
        self.check_threads(small("classify"), [{}, {"num_return": 2}], is_reproducible=True)

    @staticmethod
    def check_threads(loaded: LoadedModel, many: list[dict[str, Any]], **how: Any) -> None:
        requests = [(raw, loaded.make_options(**options)) for options in many for raw in TEXTS]
        with running(loaded, **how) as scheduler:
            alone = [scheduler.submit(raw, options).result() for raw, options in requests]
        results: dict[tuple[int, int], Done] = {}

        def client(number: int) -> None:
            order = random.Random(number).sample(range(len(requests)), len(requests))
            jobs = [(i, scheduler.submit(*requests[i])) for i in order]
            results.update({(number, i): job.result() for i, job in jobs})

        with running(loaded, max_batch_size=9, prefill_tokens=5, max_queue_tokens=10**6, **how) as scheduler:
            threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert scheduler.stats().finished == 4 * len(requests)
            check_idle(scheduler)
        assert len(results) == 4 * len(requests)
        assert all(done == alone[i] for (_, i), done in results.items())

    def test_an_input_is_one_text(self) -> None:
        with running(small("classify")) as scheduler:
            assert scheduler.submit(Path("tea")).result().predictions[0].text == small("classify")("tea")
            with pytest.raises(TypeError, match="each text must be a str, not int"):
                scheduler.submit(3)


class TestStreams:
    def events(self, name: str, raw: str, **options: Any) -> tuple[list[Token], Done, str]:
        """The tokens, the end, and the answer of a call."""
        loaded = small(name)
        with running(loaded, prefill_tokens=5) as scheduler:
            *tokens, done = scheduler.submit(raw, loaded.make_options(**options))
        assert isinstance(done, Done)
        assert all(isinstance(token, Token) for token in tokens)
        expected = loaded(raw, **options)
        return tokens, done, expected[len(raw) :] if name == "write" else expected

    @pytest.mark.parametrize("name", GENERATING)
    @pytest.mark.parametrize("raw", ["tea", "Please, no", LONG])
    @pytest.mark.parametrize("options", [{"num_beams": 1, "temperature": 0.0}, {"temperature": 2.0}, {"num_beams": 2}])
    def test_the_texts_joined_are_the_answer(self, name: str, raw: str, options: dict[str, Any]) -> None:
        if name == "write":
            raw, options = raw[:20], {"temperature": 0.0, "max_new_tokens": 30, **options}
        tokens, done, answer = self.events(name, raw, **options)
        assert "".join(token.text for token in tokens) == answer
        ids = [token for token in tokens if token.id != small(name).task.end]
        if "num_beams" not in options or options["num_beams"] == 1:
            assert len(ids) == done.completion_tokens
            assert sum(token.logprob for token in ids) >= done.predictions[0].logprob - 1e-4
        else:
            assert not ids, "beams change until the end"

    @pytest.mark.parametrize("seed", range(4))
    def test_a_text_that_outgrows_the_context(self, seed: int) -> None:
        options = {"temperature": 2.0, "seed": seed, "max_new_tokens": 130, "min_new_tokens": 40}
        tokens, done, answer = self.events("write", "tea and", **options)
        assert "".join(token.text for token in tokens) == answer
        assert len(answer) == done.completion_tokens
        assert done.prompt_tokens == len("tea and")

    def test_a_character_of_several_tokens_at_the_end_of_the_context(self) -> None:
        """The tokens are bytes; those of `é` and spaces are the only ones. The context ends within a character."""
        tokenizer = train_tokenizer(["tea"], TokenizerOptions("bytes"), GPT_LAYOUT)
        kept = {*tokenizer.encode(["é "])[0], tokenizer.eos_token_id}
        suppressed = [token for token in range(len(tokenizer)) if token not in kept]
        task = Write(preprocessor=TextPreprocessor(tokenizer), generation_config={"suppress_tokens": suppressed})
        loaded = loaded_model(task, "gpt", "decoder", context=16)
        with running(loaded) as scheduler:
            for seed in range(12):
                how = {"temperature": 2.0, "max_new_tokens": 60, "min_new_tokens": 60, "seed": seed, "top_p": 1.0}
                events = [*scheduler.submit("é", loaded.make_options(**how))]
                assert "é" + "".join(token.text for token in tokens_of(events)) == loaded("é", **how)

    @pytest.mark.parametrize("size", [1, 2, 5])
    @pytest.mark.parametrize("seed", range(3))
    def test_stop_texts(self, seed: int, size: int) -> None:
        """Of several tokens, as each token is a character; and before and after the context is full."""
        how = {"temperature": 2.0, "seed": seed, "max_new_tokens": 90, "min_new_tokens": 90}
        _, _, whole = self.events("write", "tea", **how)
        for place in (0, 7, 44, 60, 80):
            stop = (whole[place : place + size], "zz", whole[85:88])
            tokens, done, answer = self.events("write", "tea", **how, stop=stop)
            end = min(whole.index(text) for text in stop if text in whole)
            assert "".join(token.text for token in tokens) == answer == whole[:end]
            assert done.finish_reasons == ["stop"]
            found = next(length for length in range(91) if any(text in whole[:length] for text in stop))
            assert done.completion_tokens == found, "nothing is generated after the stop text"

    def test_beams_that_contain_a_stop_text(self) -> None:
        """They end at the limit, or where the context is full: there a greedy text would go on."""
        how = {"temperature": 0.0, "num_beams": 3, "max_new_tokens": 90, "min_new_tokens": 90}
        _, done, whole = self.events("write", "tea", **how)
        assert done.finish_reasons == ["length"]
        _, done, answer = self.events("write", "tea", **how, stop=whole[4:6])
        assert answer == whole[: whole.index(whole[4:6])]
        assert done.finish_reasons == ["stop"]
        assert done.completion_tokens <= 48

    def test_finish_reasons_and_counts(self) -> None:
        for limit in (1, 5, 60):
            how = {"temperature": 1.0, "max_new_tokens": limit, "min_new_tokens": limit}
            _, done, _ = self.events("write", "tea", **how)
            assert (done.finish_reasons, done.completion_tokens, done.prompt_tokens) == (["length"], limit, 3)
        full = "tea and water " * 3 + "please"  # the whole context: its older half is dropped
        _, done, _ = self.events("write", full, temperature=0.0, max_new_tokens=3)
        assert done.prompt_tokens == len(full) == 48
        _, done, _ = self.events("write", "", temperature=0.0, max_new_tokens=3)
        assert done.prompt_tokens == 1, "the token before an empty text"
        loaded = small("translate")
        _, done, _ = self.events("translate", LONG, num_beams=1, max_new_tokens=4, min_new_tokens=4)
        passages = [text for line in LONG.split("\n") for text in loaded.task.preprocessor.passages(line, 30)]
        texts = [text for text, _ in passages if text]
        assert done.finish_reasons == ["length"]
        assert done.completion_tokens == 4 * len(texts)
        assert done.prompt_tokens == sum(len(ids) for ids in loaded.task.tokenizer.encode(texts))


class TestLimits:
    @pytest.mark.parametrize("name", ["write", "recurrent", "classify"])
    def test_more_tokens_than_the_queue_holds_are_refused(self, name: str) -> None:
        gate = Gate()
        how = {} if name == "classify" else {"max_new_tokens": 9, "num_beams": 1, "temperature": 0.0}
        with running(small(name), gate, max_queue_tokens=60) as scheduler:
            jobs = submit_all(scheduler, ["tea"], **how)
            gate.wait()  # it has left the queue
            error = None
            while error is None:
                try:
                    jobs += submit_all(scheduler, ["tea"], **how)
                except QueueFull as full:
                    error = full
            assert isinstance(error.retry_after, int)
            assert 1 <= error.retry_after <= 60
            scheduler._tokens_per_second = 1e9
            with pytest.raises(QueueFull, match="the queue is full: try again in 1 s"):
                submit_all(scheduler, ["tea"], **how)
            assert 3 <= len(jobs) <= 20
            assert 0 < scheduler.stats().waiting_tokens <= 60
            assert scheduler.stats().waiting == len(jobs) - 1
            gate.open()
            assert {job.result().predictions[0].text for job in jobs} == {small(name)("tea", **how)}
            [job] = submit_all(scheduler, ["Please, no milk and no bread!"], **how)
            assert job.result()

    @pytest.mark.parametrize("name", ["max_queue_tokens", "max_batch_tokens", "max_batch_size", "prefill_tokens"])
    def test_limits_with_which_nothing_would_run_are_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"{name.replace('_', '.')} must be at least 1, not 0"):
            SchedulerOptions(**{name: 0})

    def test_one_job_may_be_larger_than_the_queue(self) -> None:
        with running(small("classify"), max_queue_tokens=2) as scheduler:
            assert scheduler.submit("tea and water please.").result()

    def test_an_input_that_the_model_would_not_read_to_its_end_is_refused(self) -> None:
        for name in ("classify", "write"):
            with running(small(name)) as scheduler:
                with pytest.raises(InputTooLong) as error:
                    scheduler.submit("tea " * 30)
                assert "48" in str(error.value)
                assert scheduler.submit("tea").result()
        with running(small("classify")) as scheduler:  # two texts, which are read together: 3 special tokens
            assert scheduler.submit("tea and" * 3 + "\t" + "milk" * 5 + "no").result().prompt_tokens == 48
            with pytest.raises(InputTooLong):
                scheduler.submit("tea and" * 3 + "\t" + "milk" * 5 + "no!")
        with running(small("translate")) as scheduler, pytest.raises(InputTooLong):
            scheduler.submit("tea" * 30)  # no sentence to split

    def test_a_deadline_that_has_passed(self) -> None:
        for name in ("write", "recurrent", "classify"):
            with running(small(name)) as scheduler:
                late = scheduler.submit("tea", deadline=time.monotonic() - 1)
                good = scheduler.submit("tea", deadline=time.monotonic() + 1000)
                assert isinstance(error_of(late), DeadlineExceeded)
                assert good.result()

    @pytest.mark.parametrize("name", GENERATING)
    def test_a_deadline_while_it_decodes(self, name: str) -> None:
        gate = Gate()
        with running(small(name), gate) as scheduler:
            options = small(name).make_options(num_beams=1, temperature=1.0, min_new_tokens=9, max_new_tokens=9)
            late, good = (scheduler.submit("tea", options, deadline=time.monotonic() + 1000) for _ in range(2))
            gate.step(4)
            late.deadline = 0.0
            gate.open()
            assert isinstance(error_of(late), DeadlineExceeded)
            assert good.result().completion_tokens == 9
            check_idle(scheduler)


class TestInterruptions:
    @pytest.mark.parametrize("name", GENERATING)
    @pytest.mark.parametrize("steps", [0, 1, 2, 5, 9])
    def test_a_job_that_is_cancelled(self, name: str, steps: int) -> None:
        """While it waits for its first step, while its prompt is prefilled (20 tokens), and while it decodes."""
        gate, loaded = Gate(), small(name)
        prompt = "tea and water please."
        with running(loaded, gate, prefill_tokens=4) as scheduler:
            victim, other, third = submit_all(scheduler, [prompt] * 3, **TWELVE)
            gate.step(steps)
            victim.cancel()
            victim.cancel()
            gate.open()
            assert isinstance(error_of(victim), Cancelled)
            for job in (other, third):
                assert job.result().predictions[0].text == loaded(prompt, **TWELVE)
            check_idle(scheduler)
            assert scheduler.stats().cancelled == 1
            victim.cancel()  # does nothing
            [again] = submit_all(scheduler, [prompt], **TWELVE)
            assert again.result().predictions[0].text == loaded(prompt, **TWELVE)

    @pytest.mark.parametrize("name", ["write", "recurrent", "classify"])
    def test_a_job_that_is_cancelled_in_the_queue(self, name: str) -> None:
        gate, loaded = Gate(), small(name)
        how = {} if name == "classify" else TWELVE
        with running(loaded, gate, max_batch_size=1) as scheduler:
            first = submit_all(scheduler, ["tea"], **how)
            gate.wait()
            victim, last = submit_all(scheduler, ["milk", "No water"], **how)
            victim.cancel()
            gate.open()
            assert isinstance(error_of(victim), Cancelled)
            assert first[0].result().predictions[0].text == loaded("tea", **how)
            assert last.result().predictions[0].text == loaded("No water", **how)
            check_idle(scheduler)

    @pytest.mark.parametrize("name", GENERATING)
    def test_a_listener_that_fails_cancels_its_job(self, name: str) -> None:
        loaded, heard = small(name), []

        def broken(event: Event) -> None:
            heard.append(event)
            raise ConnectionResetError

        with running(loaded) as scheduler:
            how = TWELVE | {"min_new_tokens": 40, "max_new_tokens": 40}
            options = loaded.make_options(**how)
            other = scheduler.submit("milk", options)
            scheduler.submit("tea", options, listener=broken)
            assert other.result().predictions[0].text == loaded("milk", **how)
            check_idle(scheduler)
            assert scheduler.stats()[5:7] == (1, 1)  # finished, cancelled
        assert isinstance(heard[-1], Failed)
        assert isinstance(heard[-1].error, Cancelled)
        assert 2 <= len(heard) < 30

    @pytest.mark.parametrize("name", GENERATING)
    def test_an_error_in_a_step_fails_what_runs_and_nothing_else(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gate, loaded = Gate(), small(name)
        with running(loaded, gate, max_batch_size=2) as scheduler:
            jobs = submit_all(scheduler, ["tea"], **TWELVE)
            gate.step(2)
            executor = scheduler.executor
            waiting = submit_all(scheduler, TEXTS[:4], **TWELVE)

            def fail() -> None:
                raise RuntimeError("out of luck")

            monkeypatch.setattr(executor, "step", fail)
            gate.open()
            assert str(error_of(jobs[0])) == "out of luck"
            answers = [self.outcome(job) for job in waiting]
            expected = [loaded(raw, **TWELVE) for raw in TEXTS[:4]]
            assert answers[2:] == expected[2:], "those that were still in the queue"
            assert all(a in (e, "out of luck") for a, e in zip(answers, expected, strict=True))
            [last] = submit_all(scheduler, ["tea"], **TWELVE)
            assert last.result().predictions[0].text == loaded("tea", **TWELVE)
            assert scheduler.executor is not executor
            check_idle(scheduler)

    @staticmethod
    def outcome(job: ScheduledJob) -> str:
        try:
            return job.result().predictions[0].text
        except RuntimeError as error:
            return str(error)

    def test_a_faulty_input_of_a_batch_fails_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        gate, loaded, sizes = Gate(), small("answer"), []
        raws = [*INPUTS["answer"][:3], "a question without a document", *INPUTS["answer"][3:]]
        with running(loaded, gate) as scheduler:
            first = scheduler.submit(raws[0])
            gate.wait()
            jobs = submit_all(scheduler, raws)
            original = scheduler._answers
            monkeypatch.setattr(scheduler, "_answers", lambda jobs: sizes.append(len(jobs)) or original(jobs))
            gate.open()
            assert first.result()
            for raw, job in zip(raws, jobs, strict=True):
                if "\t" in raw:
                    assert job.result().predictions[0].text == loaded(raw)
                else:
                    assert "give a question and a document" in str(error_of(job))
        assert max(sizes) == len(raws), "they were in one batch"

    def test_a_batch_that_cannot_start_fails(self) -> None:
        """The reproducible mode refuses float64."""
        loaded = loaded_model(small("classify").task, "bert", "encoder")
        loaded.model.double()
        with running(loaded, is_reproducible=True) as scheduler:
            for _ in range(2):
                assert "float32" in str(error_of(scheduler.submit("tea")))
            check_idle(scheduler)

    def test_a_model_without_vectors(self) -> None:
        with running(small("write")) as scheduler:
            assert "has no embedding" in str(error_of(scheduler.submit("tea", embed=True)))
            assert scheduler.submit("tea").result()

    def test_numbers_that_are_not_finite_fail_only_their_own_job(self) -> None:
        """A token whose embedding overflows."""
        task = small("write").task
        loaded = loaded_model(task, "gpt", "decoder", tie_embeddings=False)
        [[poison]] = task.tokenizer.encode(["?"])
        loaded.model.body.tokens.weight.data[poison] = 3e38
        how = {"temperature": 0.0, "min_new_tokens": 9, "max_new_tokens": 9}
        expected = loaded("tea", **how)
        with running(loaded, prefill_tokens=3) as scheduler:
            for _ in range(3):
                good, bad, last = submit_all(scheduler, ["tea", "no tea? and", "tea"], **how)
                error = error_of(bad)
                assert isinstance(error, FloatingPointError)
                assert "an activation of this input overflows" in str(error)
                assert good.result().predictions[0].text == last.result().predictions[0].text == expected
            check_idle(scheduler)

    @pytest.mark.parametrize("name", [*GENERATING, "classify"])
    def test_close_finishes_what_was_accepted(self, name: str) -> None:
        gate, loaded = Gate(), small(name)
        how = {} if name == "classify" else TWELVE
        scheduler = Scheduler(loaded, SchedulerOptions(max_batch_size=2), lock=gate)
        jobs = submit_all(scheduler, TEXTS, **how)
        closing = threading.Thread(target=scheduler.close)
        closing.start()
        wait_for(lambda: scheduler._is_closed)
        with pytest.raises(Cancelled, match="shutting down"):
            scheduler.submit("tea")
        gate.open()
        closing.join(60)
        assert not scheduler._thread.is_alive()
        assert [job.result().predictions[0].text for job in jobs] == [loaded(raw, **how) for raw in TEXTS]
        scheduler.close()

    @pytest.mark.parametrize("name", [*GENERATING, "classify"])
    def test_close_cancels_what_was_accepted(self, name: str) -> None:
        gate, loaded = Gate(), small(name)
        how = {} if name == "classify" else TWELVE
        scheduler = Scheduler(loaded, SchedulerOptions(max_batch_size=2), lock=gate)
        jobs = submit_all(scheduler, ["tea"], **how)
        gate.wait()
        jobs += submit_all(scheduler, TEXTS, **how)
        closing = threading.Thread(target=partial(scheduler.close, drain=False))
        closing.start()
        wait_for(lambda: scheduler._is_closed)
        gate.open()
        closing.join(60)
        assert not scheduler._thread.is_alive()
        assert all(isinstance(error_of(job), Cancelled) for job in jobs[1:])
        if name != "classify":  # its first job was in a batch already
            assert isinstance(error_of(jobs[0]), Cancelled)


class TestFairness:
    def test_schedulers_that_share_a_lock_take_turns(self) -> None:
        lock, order = FairLock(), []
        how = {"temperature": 1.0, "min_new_tokens": 40, "max_new_tokens": 40}
        with running(small("write"), lock) as first, running(small("translate"), lock) as second:
            ends = [threading.Event(), threading.Event()]

            def listen(number: int, event: Event) -> None:
                order.append(number)
                if isinstance(event, Done):
                    ends[number].set()

            with lock:
                for number, scheduler in enumerate((first, second)):
                    options = scheduler.loaded.make_options(**how)
                    scheduler.submit("tea", options, listener=partial(listen, number))
                wait_for(lambda: len(lock._waiting) == 2)
            assert all(end.wait(60) for end in ends)
        assert order.count(0) > 40 < order.count(1)
        assert order.index(0) < 30 > order.index(1), "neither waits for the end of the other"

    @ENGINE_ONLY
    def test_a_long_prompt_does_not_delay_the_tokens_of_others(self) -> None:
        gate, loaded, heard = Gate(), small("write"), []
        how = loaded.make_options(temperature=1.0, min_new_tokens=40, max_new_tokens=40)
        with running(loaded, gate, prefill_tokens=2) as scheduler:
            scheduler.submit("t", how, listener=heard.append)
            gate.step()
            scheduler.submit("tea and water please, milk", how)
            for _ in range(10):
                before = len(heard)
                gate.step()
                assert len(heard) == before + 1

    @ENGINE_ONLY
    def test_a_job_uses_the_prefix_of_one_that_has_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loaded, counts = small("write"), []
        how = {"temperature": 0.0, "min_new_tokens": 2, "max_new_tokens": 2}
        with running(loaded) as scheduler:
            step = scheduler.model.mixed_step
            count = lambda cache, ids, *more: counts.append(len(ids)) or step(cache, ids, *more)  # noqa: E731
            monkeypatch.setattr(scheduler.model, "mixed_step", count)
            for expected in (20 + 3, 20 - 16 + 3):
                [job] = submit_all(scheduler, ["tea and water please."], **how)
                assert job.result().predictions[0].text == loaded("tea and water please.", **how)
                check_idle(scheduler)
                assert sum(counts) == expected
                counts.clear()
            assert scheduler.stats().cached_slots == 16

    def test_a_plain_model_decodes_waiting_jobs_in_one_batch(self) -> None:
        gate = Gate()
        with running(small("recurrent"), gate) as scheduler:
            first = submit_all(scheduler, ["tea"])
            gate.wait()
            jobs = submit_all(scheduler, TEXTS)
            gate.step(1)
            assert isinstance(scheduler.executor, DynamicBatch)
            wait_for(lambda: scheduler.stats().running == 1 + len(TEXTS))
            gate.open()
            assert [job.result().predictions[0].text for job in first + jobs] == small("recurrent")(["tea", *TEXTS])

    @ENGINE_ONLY
    def test_stats(self) -> None:
        gate, loaded = Gate(), small("write")
        how = {"temperature": 1.0, "min_new_tokens": 5, "max_new_tokens": 5}
        with running(loaded, gate, max_batch_size=2) as scheduler:
            assert scheduler.stats() == (0,) * 9
            jobs = submit_all(scheduler, ["tea and water please"] * 3, **how)
            gate.step(2)
            stats = scheduler.stats()
            assert (stats.waiting, stats.running, stats.finished) == (1, 2, 0)
            assert stats.waiting_tokens == 20 + 5
            assert stats.kv_slots > 0
            gate.open()
            assert [len(job.result().predictions) for job in jobs] == [1, 1, 1]
            check_idle(scheduler)
            stats = scheduler.stats()
            assert (stats.finished, stats.prompt_tokens, stats.completion_tokens, stats.kv_slots) == (3, 60, 15, 0)
            assert stats.cached_slots > 0


class TestDynamicBatch:
    """The executor of models that the engine does not support."""

    @staticmethod
    def requests(*raws: str) -> list[DecodeRequest]:
        loaded = small("recurrent")
        options = loaded.make_options(num_beams=1, min_new_tokens=5, max_new_tokens=5)
        return [AnswerStream(loaded.task, raw, options, 48).requests[0] for raw in raws]

    def test_the_first_that_waits_is_in_the_next_batch(self) -> None:
        """Batches are sorted by length; a short one must not wait for ever."""
        batch = DynamicBatch(small("recurrent").model, small("recurrent").task, max_batch_size=2)
        for request in (requests := self.requests("a", "tea and water", "milk", "no bread please", "tea")):
            batch.add(request)
        ended: list[DecodeRequest] = []
        while len(batch):
            first = batch.waiting[0] if not batch.running else None
            ended += [event.request for event in batch.step() if isinstance(event, FinishEvent)]
            assert len(batch.running) <= 2
            assert first is None or first in batch.running or first in ended
        assert {*ended} == {*requests}

    def test_a_batch_whose_requests_are_all_cancelled_ends(self) -> None:
        batch = DynamicBatch(small("recurrent").model, small("recurrent").task)
        first, second, third = self.requests("tea and water", "milk", "no bread")
        batch.add(first)
        batch.add(second)
        batch.step()
        batch.add(third)
        batch.cancel(first)
        batch.cancel(second)
        assert len(batch) == 1
        assert {event.request for event in batch.step()} == batch.running == {third}
        batch.cancel(third)
        assert len(batch) == 0
        assert batch.step() == []
