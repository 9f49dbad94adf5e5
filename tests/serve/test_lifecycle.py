"""The life of requests and of the process: clients that leave, deadlines, full queues, SIGTERM under load."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryFile

import pytest
from PIL import Image
from safetensors.torch import load_file, save_file

from regard.cli.serve import main as serve
from regard.cli.serve import print_start

RUN = "/v1/run/translate"
CONTENT = {"input": "tea and milk"}


def request_bytes(path, **content):
    body = json.dumps(content).encode()
    lines = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return lines.encode() + b"\r\n\r\n" + body


@pytest.fixture(scope="module")
def writer(start_server):
    server = start_server("write", "translate", "classify")
    server.wait_for(lambda: server.get("/health/ready").status == 200)
    for name in ("write", "translate"):
        assert server.post(f"/v1/run/{name}", CONTENT).status == 200
    return server


@pytest.fixture
def jobs(writer, monkeypatch):
    """All jobs that are submitted while the scheduler is held, by model."""
    submitted = []
    for served in writer.registry.served():
        submit = served.scheduler.submit
        monkeypatch.setattr(
            served.scheduler, "submit", lambda *args, s=submit, **kw: submitted.append(s(*args, **kw)) or submitted[-1]
        )
    return submitted


def hold(server, name):
    """A lock that stops the scheduler of a model before its next step."""
    return next(served for served in server.registry.served() if served.name == name).scheduler.lock


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("count", [1, 12])
def test_a_client_that_leaves_cancels_its_job(writer, jobs, stream, count):
    with hold(writer, "write"):
        clients = [writer.connect() for _ in range(count)]
        for client in clients:
            client.sendall(request_bytes("/v1/run/write", input="tea", stream=stream))
        writer.wait_for(lambda: len(jobs) == count)
        for client in clients:
            client.close()
        writer.wait_for(lambda: all(job.is_cancelled for job in jobs))
    writer.wait_until_idle()
    writer.wait_for(lambda: not writer.server.server_state.tasks)
    assert {*writer.registry._users.values()} == {0}
    assert writer.post("/v1/run/write", CONTENT).status == 200


def test_a_client_that_leaves_in_the_middle_of_a_stream_cancels_its_job(writer, jobs):
    """After its first event, and with a reset instead of an orderly end."""
    options = {"max_new_tokens": 2000, "temperature": 1.0}
    with writer.connect() as client:
        client.sendall(request_bytes("/v1/run/write", input="tea", stream=True, options=options))
        received = b""
        while b"data: " not in received:
            received += client.recv(100)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.wait_until_idle()
    writer.wait_for(lambda: not writer.server.server_state.tasks)
    assert {*writer.registry._users.values()} == {0}


def test_a_client_that_stays_is_not_cancelled(writer, jobs):
    with ThreadPoolExecutor(2) as clients:
        answers = [clients.submit(writer.post, "/v1/run/write", CONTENT | {"stream": s}) for s in (False, True)]
        assert [answer.result().status for answer in answers] == [200, 200]
    assert [job.is_cancelled for job in jobs] == [False, False]


def test_a_stream_has_the_answer_of_a_plain_request(writer):
    content = {"input": "tea and", "options": {"temperature": 0.0, "max_new_tokens": 12}}
    plain = writer.post("/v1/run/write", content).json
    answer = writer.post("/v1/run/write", content | {"stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in answer.body.decode().split("\n\n") if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["done"]["predictions"] == plain["predictions"]


def test_an_error_before_the_first_event_has_its_own_status(writer):
    answer = writer.post("/v1/run/write", {"input": "tea", "stream": True, "options": {"max_new_tokens": -1}})
    assert (answer.status, answer.headers["content-type"]) == (422, "application/json")
    long = writer.post("/v1/run/translate", {"input": "tea " * 300, "stream": True})
    assert (long.status, long.json["error"]["code"]) == (413, "context_length_exceeded")
    assert writer.post("/v1/run/writ", {"input": "tea", "stream": True}).status == 404


def test_a_stream_that_waits_stays_open_and_ends_with_the_error(start_server, monkeypatch):
    monkeypatch.setattr("regard.serve.jobs.KEEP_ALIVE", 0.05)
    server = start_server("write", request_timeout=0.4)
    server.wait_for(lambda: server.get("/health/ready").status == 200)
    with ThreadPoolExecutor(1) as clients, hold(server, "write"):
        answer = clients.submit(server.post, "/v1/run/write", {"input": "tea", "stream": True}).result()
    comment, *_, last, end = answer.body.decode().split("\n\n")
    assert (answer.status, comment, end) == (200, ": keep-alive", "")
    assert "deadline" in json.loads(last.removeprefix("data: "))["error"]["message"]
    server.wait_until_idle()


def test_a_full_queue_gets_429(start_server):
    server = start_server("translate", max_queue_tokens=8)
    assert server.post(RUN, CONTENT).status == 200
    with ThreadPoolExecutor(8) as clients:
        with hold(server, "translate"):
            answers = [clients.submit(server.post, RUN, CONTENT) for _ in range(8)]
            server.wait_for(lambda: any(answer.done() for answer in answers))
            refused = next(answer for answer in answers if answer.done()).result()
        statuses = {answer.result().status for answer in answers}
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json["error"]["code"] == "queue_full"
    assert statuses == {200, 429}
    server.wait_until_idle()


def test_a_request_beyond_its_deadline_gets_504(start_server):
    server = start_server("translate", request_timeout=0.3)
    server.wait_for(lambda: server.get("/health/ready").status == 200)
    with ThreadPoolExecutor(1) as clients, hold(server, "translate"):
        answer = clients.submit(server.post, RUN, CONTENT)
        assert answer.result().status == 504, "even if a step takes long"
    server.wait_until_idle()
    assert server.post(RUN, CONTENT).status == 200


def test_a_model_with_nan_gets_500_with_the_cause(start_server, model_folder, tmp_path):
    folder = shutil.copytree(model_folder("translate"), tmp_path / "nan")
    weights = load_file(folder / "model.safetensors")
    name = max(weights, key=lambda key: weights[key].numel())
    weights[name][:] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    server = start_server(folders={"nan": folder})
    answer = server.post("/v1/run/nan", CONTENT)
    assert (answer.status, answer.json["error"]["code"]) == (500, "not_finite")


@contextmanager
def server_process(*args):
    """`regard serve` in a process of its own, and the lines that it printed."""
    code = "import sys; from regard.cli.serve import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *map(str, args), "--port", "0", "--threads", "1"]
    with TemporaryFile() as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        try:
            lines = []
            while not lines or not lines[-1].startswith("try: "):
                lines.append(process.stdout.readline())
                assert lines[-1], (log.seek(0), log.read())
            yield process, lines, log
        finally:
            process.kill()


def exchange(port, data):
    """One request on a connection of its own: "refused" if the server did not accept it, else what it answered."""
    try:
        connection = socket.create_connection(("127.0.0.1", port), 60)
    except ConnectionRefusedError:
        return "refused"
    with connection:
        received = b""
        try:
            connection.sendall(data)
            while piece := connection.recv(1 << 16):
                received += piece
        except ConnectionError:
            return "reset"
        return received


def test_sigterm_under_load_loses_no_accepted_request(model_folder):
    with server_process(model_folder("translate"), f"story={model_folder('write')}") as (process, lines, log):
        assert [line.split()[0] for line in lines[:2]] == ["translate", "story"]
        check_shutdown(process, int(re.search(r"http://127.0.0.1:(\d+)", lines[2])[1]))
        log.seek(0)
        statuses = [json.loads(line).get("status", 200) for line in log]
        assert {*statuses} == {200}


def check_shutdown(process, port):
    """12 clients ask on new connections, until the server refuses them."""
    plain = request_bytes("/v1/run/translate", **CONTENT).replace(b"Host:", b"Connection: close\r\nHost:")
    stream = request_bytes("/v1/run/story", input="tea", stream=True, options={"max_new_tokens": 200})
    stream = stream.replace(b"Host:", b"Connection: close\r\nHost:")
    assert b"200 OK" in exchange(port, plain)
    assert exchange(port, stream).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    outcomes, many = [], threading.Event()

    def client(number):
        while True:
            outcome = exchange(port, stream if number % 2 else plain)
            if outcome == "refused":
                return
            outcomes.append((number, outcome))
            if len(outcomes) > 30:
                many.set()

    with ThreadPoolExecutor(12) as clients:
        results = [clients.submit(client, number) for number in range(12)]
        assert many.wait(60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        for result in results:
            result.result()
    for number, outcome in outcomes:
        assert outcome not in ("reset", b""), "a request that was accepted"
        assert b"200 OK" in outcome
        assert number % 2 == 0 or outcome.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_a_shutdown_answers_requests_on_open_connections(start_server):
    """A connection that is idle is closed; one with a request is answered first."""
    server = start_server("translate")
    with server.connect() as idle, server.connect() as half, server.connect() as late:
        idle.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in server.read_response(idle)
        data = request_bytes(RUN, **CONTENT)
        half.sendall(data[:-5])
        server.wait_for(lambda: server.app.state.metrics.active == 1)
        server.server.should_exit = True
        late.sendall(data)
        assert b"200 OK" in server.read_response(late)
        assert idle.recv(1000) == b""
        half.sendall(data[-5:])
        assert b"200 OK" in server.read_response(half)
    server.stop()


def test_a_shutdown_answers_connections_that_wait_in_the_kernel(start_server):
    server = start_server("translate")
    server.wait_for(lambda: server.get("/health/ready").status == 200)
    server.loop.call_soon_threadsafe(server.loop.remove_reader, server.listener)
    server.wait_for(lambda: server.listener not in server.loop._selector.get_map())
    with ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(10)]
        for client in clients:
            client.sendall(request_bytes(RUN, **CONTENT))
        server.server.should_exit = True
        assert [server.read_response(client).split()[1] for client in clients] == [b"200"] * 10
    server.stop()


def test_requests_beyond_the_drain_timeout_are_ended(start_server):
    server = start_server("translate", drain_timeout=1, body_timeout=600)
    with server.connect() as half:
        half.sendall(request_bytes(RUN, **CONTENT)[:-5])
        server.wait_for(lambda: server.app.state.metrics.active == 1)
        server.stop()
        status, *_, body = server.read_response(half).split(b"\r\n")
        assert b"503" in status
        assert json.loads(body)["error"]["message"] == "the server is shutting down: try again later"


@pytest.mark.parametrize("name", ["translate", "answer", "image"])
def test_the_command_prints_a_request_to_try(start_server, capsys, name, tmp_path):
    server = start_server(name, "classify", api_key="k9")
    print_start(server.registry.infos(), server.options, server.listener)
    first, second, address, try_line = capsys.readouterr().out.splitlines()
    assert first.split()[0] == name
    assert second.split()[:3] == ["classify", "classify", "(text)"]
    assert address.startswith(f"{server.url} ")
    command = try_line.removeprefix("try: ")
    Image.new("RGB", (8, 8)).save(tmp_path / "FILE.png")
    answers = [
        json.loads(subprocess.run(["bash", "-c", command], capture_output=True, cwd=tmp_path, env=environment).stdout)
        for environment in (os.environ | {"REGARD_API_KEY": key} for key in ("k9", "no"))
    ]
    assert answers[0]["model"] == name
    assert "the key is wrong" in answers[1]["error"]["message"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "name at least one model"),
        (["{translate}", "{translate}"], "two models are named translate: choose another name for one of them"),
        (["{translate}", "--port", "70000"], "port must be from 0 to 65535, not 70000"),
        (["{translate}", "--port", "{used}"], "stop the other process, or choose another --port"),
        (["{translate}", "--host", "nowhere.invalid"], "check --host"),
        (["/nowhere"], "not a model folder"),
        (["a b={translate}"], "is no name of a model"),
        (["{translate}", "--detect", "d={translate}"], "--detect needs a classify model"),
        (["{translate}", "--reproducible", "--speed", "int8"], "speed must be exact with --reproducible"),
        (["{translate}", "--max-body-mb", "0"], "max-body-mb must be above 0, not 0.0"),
    ],
)
def test_wrong_arguments_are_refused(model_folder, args, message):
    with socket.create_server(("127.0.0.1", 0)) as used:
        values = {"translate": str(model_folder("translate")), "used": str(used.getsockname()[1])}
        arguments = [arg.format(**values) for arg in args]
        with pytest.raises(ValueError, match=re.escape(message)):
            serve(arguments)


def test_without_the_extra_one_message_says_what_to_install(monkeypatch, model_folder):
    monkeypatch.setattr("regard.cli.serve.PACKAGES", ("starlette", "no_such_package"))
    with pytest.raises(ValueError, match=re.escape('regard serve needs no_such_package: pip install "regard[serve]"')):
        serve([str(model_folder("translate"))])
