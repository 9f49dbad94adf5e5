"""The registry: models on demand, unloaded when idle, replaced without a failed request."""

import asyncio
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from regard.fair_lock import FairLock
from regard.load import load
from regard.serve import jobs
from regard.serve import registry as registry_module
from regard.serve.registry import ModelRegistry, folder_stamp
from regard.training.run_folder import RunFolder

TEXTS = ["tea and milk", "water please", "bread and tea and milk"]


@pytest.fixture
def run_copy(model_folder, tmp_path):
    """A run folder that a test may change."""
    return Path(shutil.copytree(model_folder("translate"), tmp_path / "copy"))


def publish(folder, seed):
    """Other weights, written as training writes a better checkpoint. Returns what this model answers."""
    loaded = load(folder, "cpu")
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in loaded.model.parameters():
            weight.add_(torch.randn(weight.shape) * 0.2)
    RunFolder(folder).publish(loaded.model)
    return [loaded(text) for text in TEXTS]


def ask(server, model, text):
    answer = server.post(f"/v1/run/{model}", {"input": text})
    assert answer.status == 200, answer
    return answer.json["predictions"][0]["text"]


def loaded_names(server):
    return [info.name for info in server.registry.infos() if info.is_loaded]


def test_the_answers_are_those_of_the_model(server, model_folder):
    loaded = load(model_folder("translate"), "cpu", speed="exact")
    assert [ask(server, "translate", text) for text in TEXTS] == loaded(TEXTS)


def test_concurrent_first_requests_share_one_load_that_blocks_nobody(start_server, monkeypatch):
    gate, calls = threading.Event(), []

    def slow_load(*args, **kwargs):
        calls.append(args)
        assert gate.wait(60)
        return load(*args, **kwargs)

    server = start_server("classify", "translate")
    server.wait_for(lambda: loaded_names(server) == ["classify"])
    monkeypatch.setattr(registry_module, "load", slow_load)
    with ThreadPoolExecutor(8) as clients:
        answers = [clients.submit(ask, server, "translate", "tea") for _ in range(8)]
        server.wait_for(lambda: len(calls) == 1)
        assert server.get("/health/live").status == 200
        assert server.post("/v1/run/classify", {"input": "tea"}).status == 200
        gate.set()
        assert len({answer.result() for answer in answers}) == 1
    assert len(calls) == 1


def test_a_request_that_is_cancelled_does_not_end_the_load_for_others(model_folder, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(registry_module, "load", lambda *args, **kwargs: gate.wait(60) and load(*args, **kwargs))

    async def use(registry):
        async with registry.use("translate") as served:
            return served.loaded("tea")

    async def cancel_first():
        registry = ModelRegistry({"translate": model_folder("translate")})
        first, second = (asyncio.create_task(use(registry)) for _ in range(2))
        await asyncio.sleep(0.05)
        first.cancel()
        gate.set()
        assert await second
        assert first.cancelled()
        await registry.close()

    asyncio.run(cancel_first())


def test_the_first_model_is_loaded_at_the_start_and_makes_the_server_ready(start_server, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(registry_module, "load", lambda *args, **kwargs: gate.wait(60) and load(*args, **kwargs))
    server = start_server("translate", "classify")
    assert (server.get("/health/ready").status, server.get("/health/live").status) == (503, 200)
    gate.set()
    server.wait_for(lambda: server.get("/health/ready").status == 200)
    assert loaded_names(server) == ["translate"]


def test_an_idle_model_leaves_the_memory_and_comes_back(start_server):
    server = start_server("translate", "classify", idle_unload=0.2)
    first = ask(server, "translate", "tea")
    server.wait_for(lambda: loaded_names(server) == [] and server.registry.served() == [])
    assert ask(server, "translate", "tea") == first


def test_a_model_with_a_request_is_not_unloaded(start_server):
    server = start_server("translate", idle_unload=0.1)
    server.wait_for(lambda: server.get("/health/ready").status == 200)
    ask(server, "translate", "tea")
    [served] = server.registry.served()
    with ThreadPoolExecutor(1) as clients:
        with served.scheduler.lock:
            answer = clients.submit(ask, server, "translate", "tea")
            server.wait_for(lambda: served.scheduler.stats().running + served.scheduler.stats().waiting == 1)
            looks, look = [], server.registry.unload_idle
            server.registry.unload_idle = lambda seconds: looks.append(look(seconds))
            server.wait_for(lambda: len(looks) >= 2)
            assert (loaded_names(server), server.registry.served()) == (["translate"], [served])
        assert answer.result()


def test_better_weights_are_served_without_a_failed_request(start_server, run_copy):
    server = start_server(folders={"copy": run_copy}, reload_every=0.01)
    versions = [[ask(server, "copy", text) for text in TEXTS]]
    stop, answers = threading.Event(), []

    def client(number):
        while not stop.is_set():
            i = (number + len(answers)) % len(TEXTS)
            answers.append((i, ask(server, "copy", TEXTS[i])))
        return True

    with ThreadPoolExecutor(4) as clients:
        results = [clients.submit(client, number) for number in range(4)]
        for seed in range(3):
            old = server.registry.served()
            versions.append(publish(run_copy, seed))
            server.wait_for(lambda old=old: not {*old} & {*server.registry.served()})
            assert [ask(server, "copy", text) for text in TEXTS] == versions[-1]
        stop.set()
        assert all(result.result() for result in results), "no request failed"
    assert len({str(version) for version in versions}) == 4
    assert {(i, text) for i, text in answers} <= {(i, version[i]) for version in versions for i in range(len(TEXTS))}
    assert len(server.registry.served()) == 1


def test_a_request_ends_on_the_model_that_it_began_on(start_server, run_copy, monkeypatch):
    monkeypatch.setattr(jobs, "SHORT", 0)  # in a thread of its own, which this test holds
    server = start_server(folders={"copy": run_copy}, reload_every=0.01)
    before = ask(server, "copy", TEXTS[0])
    [old] = server.registry.served()
    entered, release = threading.Event(), threading.Event()
    submit = old.scheduler.submit

    def held(*args, **kwargs):
        entered.set()
        assert release.wait(60)
        return submit(*args, **kwargs)

    old.scheduler.submit = held
    with ThreadPoolExecutor(1) as clients:
        answer = clients.submit(ask, server, "copy", TEXTS[0])
        assert entered.wait(60)
        after = publish(run_copy, 0)[0]
        server.wait_for(lambda: len(server.registry.served()) == 2)
        assert ask(server, "copy", TEXTS[0]) == after != before
        release.set()
        assert answer.result() == before
    server.wait_for(lambda: old not in server.registry.served())


def test_a_damaged_folder_leaves_the_old_model_in_use(start_server, run_copy, capsys):
    server = start_server(folders={"copy": run_copy}, reload_every=0.01)
    before = ask(server, "copy", TEXTS[0])
    good = (run_copy / "model.safetensors").read_bytes()
    errors = []
    registry_module.logger.addFilter(lambda record: errors.append(record.getMessage()) or True)
    (run_copy / "model.safetensors").write_bytes(good[: len(good) // 2])
    server.wait_for(lambda: any("copy cannot be loaded" in error for error in errors))
    assert ask(server, "copy", TEXTS[0]) == before
    (run_copy / "model.safetensors").write_bytes(good)
    after = publish(run_copy, 5)[0]
    server.wait_for(lambda: ask(server, "copy", TEXTS[0]) == after)


def test_what_training_writes_beside_the_weights_is_no_reason_to_reload(run_copy):
    before = folder_stamp(run_copy)
    (run_copy / "metrics.jsonl").write_text("{}\n")
    (run_copy / "step-9").mkdir()
    (run_copy / "step-9" / "state.safetensors").write_bytes(b"")
    (run_copy / ".model.safetensors").write_bytes(b"half")
    assert folder_stamp(run_copy) == before
    time.sleep(0.01)
    (run_copy / "model.safetensors").touch()
    assert folder_stamp(run_copy) != before


def test_schedulers_share_one_fair_lock(server):
    """With a plain lock, a model with many requests would starve the others."""
    for name in ("translate", "classify"):
        assert server.post(f"/v1/run/{name}", {"input": "tea"}).status == 200
    locks = {id(served.scheduler.lock): served.scheduler.lock for served in server.registry.served()}
    assert len(server.registry.served()) >= 2
    assert [type(lock) for lock in locks.values()] == [FairLock]


def test_a_folder_without_weights_gets_503(start_server, model_folder, tmp_path):
    folder = Path(shutil.copytree(model_folder("translate"), tmp_path / "empty"))
    (folder / "model.safetensors").unlink()
    server = start_server("classify", folders={"empty": folder})
    answer = server.post("/v1/run/empty", {"input": "tea"})
    assert answer.status == 503
    assert answer.json["error"]["message"] == (
        "the model empty cannot be loaded: the log of the server has the cause"
    ), "no path of the server"
    assert server.post("/v1/run/classify", {"input": "tea"}).status == 200


@pytest.mark.parametrize(
    ("name", "message"),
    [("translat", "did you mean translate?"), ("Embed", "did you mean embed?"), ("x" * 500, "unknown model 'xxx")],
)
def test_an_unknown_model_gets_404_with_the_nearest_name(server, name, message):
    answer = server.post(f"/v1/run/{name}", {"input": "tea"})
    assert (answer.status, answer.json["error"]["code"]) == (404, "model_not_found")
    assert message in answer.json["error"]["message"]
    assert len(answer.json["error"]["message"]) < 200
