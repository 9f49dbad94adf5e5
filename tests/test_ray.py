"""Ray without a cluster: the worker, the application of a replica, and the message where Ray is missing. A cluster
takes half a minute to start: benchmarks/ray_inference.py compares the answers and the throughput of two workers."""

import numpy as np
import pytest

import regard
import regard.ray
from regard.ray import AnswerWorker


def test_a_worker_answers_a_batch_and_keeps_its_columns(small_run):
    worker = AnswerWorker(str(small_run), "text", "exact", 1, {"num_beams": 2})
    texts = ["tea and water 3", "milk please 5", "no bread 9"]
    batch = worker({"id": np.arange(3), "text": np.array(texts, dtype=object)})
    assert [*batch] == ["id", "text", "answer"]
    assert batch["answer"] == regard.load(small_run, speed="exact", threads=1)(texts, num_beams=2)


def test_a_wrong_column_is_refused_with_the_columns(small_run):
    worker = AnswerWorker(str(small_run), "line", "exact", 1, {})
    with pytest.raises(ValueError, match="no column 'line': choose one of text"):
        worker({"text": np.array(["tea"])})


def test_the_application_of_a_replica_answers(small_run):
    testclient = pytest.importorskip("starlette.testclient")
    with testclient.TestClient(regard.ray.make_app({"demo": small_run}, None), "http://localhost") as client:
        response = client.post("/v1/run/demo", json={"input": "milk please 5"})
    [prediction] = response.json()["predictions"]
    assert prediction["text"] == regard.load(small_run, speed="exact", threads=1)("milk please 5")


def test_a_deployment_is_made_for_ray_serve(small_run):
    pytest.importorskip("ray.serve", reason="needs the extra ray")
    pytest.importorskip("starlette")
    server = regard.ray.deployment({"demo": small_run}).options(num_replicas=2)
    assert server.name == "regard"
    assert server.num_replicas == 2


def test_a_missing_ray_is_named_with_its_extra(small_run, monkeypatch):
    monkeypatch.setattr(regard.ray, "find_spec", lambda _: None)
    for call in (lambda: regard.ray.answer(None, small_run), lambda: regard.ray.deployment({"demo": small_run})):
        with pytest.raises(ValueError, match=r'ray is not installed: pip install "regard\[ray\]"'):
            call()
