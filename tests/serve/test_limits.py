"""What bad input gets, over real sockets: slow and half-sent requests, sizes, keys, hosts, origins, malformed HTTP."""

import json
import socket
from collections import deque
from contextlib import ExitStack

import pytest

from regard.serve import http_protocol

JSON = b"Content-Type: application/json\r\n"
HOST = b"Host: localhost\r\n"


def head(method, path, *lines):
    return b"%s %s HTTP/1.1\r\n%s%s\r\n" % (
        method.encode(),
        path.encode(),
        HOST,
        b"".join(b"%s\r\n" % s for s in lines),
    )


def post(path, body, *lines):
    return (
        head(
            "POST",
            path,
            b"Content-Type: application/json",
            b"Connection: close",
            *lines,
            b"Content-Length: %d" % len(body),
        )
        + body
    )


def status_of(answer):
    return int(answer.split(b" ", 2)[1])


def error_of(answer):
    return json.loads(answer.partition(b"\r\n\r\n")[2])["error"]


@pytest.fixture(scope="module")
def strict(start_server):
    """A server with short deadlines and small limits."""
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(http_protocol, "LINGER", 0.2)
    yield start_server("translate", header_timeout=0.4, body_timeout=0.4, max_body_mb=0.01)
    monkeypatch.undo()


@pytest.fixture(scope="module")
def locked(start_server):
    return start_server("translate", "embed", api_key="s3cret")


INPUT = json.dumps({"input": "tea and milk"}).encode()
RUN = "/v1/run/translate"


def test_the_body_of_a_response_does_not_wait_for_an_acknowledgement(strict, monkeypatch):
    options, complete = [], http_protocol.DeadlineProtocol.on_response_complete

    def record(protocol):
        connection = protocol.transport.get_extra_info("socket")
        options.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        complete(protocol)

    monkeypatch.setattr(http_protocol.DeadlineProtocol, "on_response_complete", record)
    assert strict.get("/health/live").status == 200
    strict.wait_for(lambda: bool(options))
    assert options[0]


def test_half_sent_headers_get_408(strict):
    assert status_of(strict.raw(b"POST /v1/run/translate HTTP/1.1\r\nHost: loc")) == 408


def test_headers_that_drip_get_408(strict):
    """Every byte arrives in time, and the request never does."""
    with strict.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
        connection.settimeout(0.05)
        answer = b""
        while not answer:
            try:
                connection.sendall(b"a")
                answer = connection.recv(1000)
            except TimeoutError:
                continue
        assert status_of(answer) == 408


def test_slow_headers_of_a_second_request_get_408(strict):
    with strict.connect() as connection:
        connection.sendall(head("GET", "/health/live"))
        assert status_of(strict.read_response(connection)) == 200
        connection.sendall(b"GET /health/live HT")
        assert status_of(strict.read_response(connection)) == 408
        assert connection.recv(10) == b""


def test_a_half_sent_body_gets_408_in_the_shape_of_the_api(strict):
    half = b"Content-Length: 100\r\n\r\n" + INPUT[:10]
    answer = strict.raw(b"POST /v1/run/translate HTTP/1.1\r\n" + HOST + JSON + half)
    assert status_of(answer) == 408
    assert error_of(answer)["message"] == "the body of the request did not arrive within 0.4 s: send faster"
    answer = strict.raw(b"POST /translate HTTP/1.1\r\n" + HOST + JSON + half)
    assert status_of(answer) == 408
    assert isinstance(error_of(answer), str)


def test_chunks_that_stop_get_408(strict):
    lines = b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"inp\r\n'
    assert status_of(strict.raw(b"POST /v1/run/translate HTTP/1.1\r\n" + HOST + JSON + lines)) == 408


def test_slow_clients_do_not_delay_others(strict):
    with ExitStack() as stack:
        slow = [stack.enter_context(strict.connect()) for _ in range(60)]
        for i, connection in enumerate(slow):
            body = b"Content-Length: 99\r\n\r\n{" if i % 2 else b""
            connection.sendall(b"POST /v1/run/translate HTTP/1.1\r\n" + HOST + JSON + body)
        assert strict.post(RUN, {"input": "tea"}).status == 200
        assert {status_of(connection.recv(1000)) for connection in slow} == {408}
    strict.wait_for(lambda: not strict.server.server_state.connections)
    strict.wait_for(lambda: not strict.server.server_state.tasks)


def test_a_connection_that_sends_nothing_is_closed(strict):
    with strict.connect() as connection:
        assert connection.recv(10) == b""


def test_a_declared_body_beyond_the_limit_gets_413_before_it_is_sent(strict):
    answer = strict.raw(head("POST", RUN, JSON.strip(), b"Content-Length: 1000000000"))
    assert status_of(answer) == 413
    assert error_of(answer)["message"] == "the body has 1,000,000,000 bytes, and this server takes 10,485: send less"


def test_chunks_beyond_the_limit_get_413(strict):
    chunk = b"1000\r\n" + b"a" * 4096 + b"\r\n"
    answer = strict.raw(head("POST", RUN, JSON.strip(), b"Transfer-Encoding: chunked"), *[chunk] * 4)
    assert status_of(answer) == 413
    assert "this server takes 10,485" in error_of(answer)["message"]


def test_a_client_that_ignores_413_and_sends_on_is_cut_off(strict):
    with strict.connect() as connection:
        connection.sendall(head("POST", RUN, JSON.strip(), b"Content-Length: 1000000000000"))
        assert status_of(connection.recv(1000)) == 413
        pieces = iter(lambda: connection.sendall(b"a" * 65536), 0)
        with pytest.raises(ConnectionError):
            deque(pieces, maxlen=0)


def test_the_largest_body_is_accepted(strict):
    text = b'{"input": "' + b"tea " * 8
    body = text + b" " * (10_485 - len(text) - 2) + b'"}'
    assert len(body) == 10_485
    assert status_of(strict.raw(post(RUN, body))) == 200
    assert status_of(strict.raw(post(RUN, body + b" "))) == 413


def test_connections_beyond_the_cap_get_503(start_server):
    server = start_server("translate", max_connections=3)
    with ExitStack() as stack:
        for _ in range(3):
            connection = stack.enter_context(server.connect())
            connection.sendall(head("GET", "/health/live"))
            assert status_of(server.read_response(connection)) == 200
        answer = server.raw(head("GET", "/health/live"))
        assert status_of(answer) == 503
        assert error_of(answer)["message"] == "all 3 connections of the server are in use: try again later"
        connection.sendall(head("GET", "/health/live"))
        assert status_of(server.read_response(connection)) == 200, "an open connection goes on"
    server.wait_for(lambda: not server.server.server_state.connections)
    assert server.get("/health/live").status == 200


def test_a_client_that_does_not_read_is_cut_off(start_server, monkeypatch):
    server = start_server("translate", body_timeout=0.3)
    monkeypatch.setattr(server.app.state.metrics, "render", lambda registry: "#" * (64 << 20))
    with server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(head("GET", "/metrics"))
        server.wait_for(lambda: server.server.server_state.total_requests > 0)
        server.wait_for(lambda: not server.server.server_state.connections, timeout=20)  # idle ones stay for 30


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b'{"input": "tea\0milk"}', 400, "cannot be read as JSON"),
        (b'{"input": "tea\\u0000milk"}', 422, "NUL"),
        (b"", 400, "the body is empty: send a JSON object"),
        (b'{"input": "tea"', 400, "cannot be read as JSON"),
        (b'{"input": "\xff"}', 400, "cannot be read as JSON"),
        (b'{"input": "\\ud800"}', 400, "cannot be read as JSON"),
        (b"[" * 9000, 422, "Expected `object`, got `array`"),
        (b'{"input": ' + b"[" * 9000, 422, "input"),
        (b"null", 422, "Expected `object`, got `null`"),
        (b'{"input": 3}', 422, "input: Expected"),
        (b'{"input": "tea", "options": {"num_beams": "many"}}', 422, "num-beams must be a whole number"),
        (b'{"input": "tea", "options": {"num_beems": 2}}', 422, "did you mean num_beams?"),
        (b'{"input": "' + b"tea " * 100 + b'"}', 413, "101 tokens exceed the model's context of 64"),
    ],
)
def test_a_malformed_body_gets_one_clear_message(strict, body, status, message):
    answer = strict.raw(post(RUN, body))
    assert status_of(answer) == status
    assert message in error_of(answer)["message"]
    assert b"Traceback" not in answer


@pytest.mark.parametrize("line", [b"Content-Type: text/plain", b"Content-Type: application/xml; charset=utf-8"])
def test_another_content_type_gets_415(strict, line):
    answer = strict.raw(head("POST", RUN, line, b"Connection: close", b"Content-Length: 2") + b"{}")
    assert status_of(answer) == 415
    assert error_of(answer)["message"].endswith("is not accepted: send application/json")


def test_a_compressed_body_gets_415(strict):
    assert status_of(strict.raw(post(RUN, INPUT, b"Content-Encoding: gzip"))) == 415


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET / HTTP/1.1\r\nBad Header\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n", 400),
        (b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000, 431),
        (b"POST /v1/run/translate HTTP/1.1\r\n" + HOST + b"Content-Length: many\r\n\r\n", 400),
        (b"POST /v1/run/translate HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n", 400),
        (b"POST /v1/run/translate HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n", 400),
        (b"BREW / HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 405),
    ],
)
def test_malformed_http_gets_an_error_and_the_connection_is_closed(strict, request_bytes, status):
    answer = strict.raw(request_bytes)
    assert status_of(answer) == status
    assert error_of(answer)
    assert strict.get("/health/live").status == 200


def test_a_key_is_needed_and_compared(locked):
    content = {"input": "tea"}
    missing = locked.post(RUN, content)
    assert (missing.status, missing.json["error"]["code"]) == (401, "missing_key")
    assert missing.headers["www-authenticate"] == "Bearer"
    for wrong in ("Bearer s3cre", "Bearer s3cret2", "Bearer ", "Basic s3cret", "Bearer \xff", "s3cret"):
        assert locked.post(RUN, content, Authorization=wrong).status == 401, wrong
    for right in ("Bearer s3cret", "bearer s3cret"):
        assert locked.post(RUN, content, Authorization=right).status == 200, right
    assert locked.post(f"{RUN}?api_key=s3cret", content).status == 401, "a field of LibreTranslate only"
    assert locked.post(RUN, {**content, "api_key": "s3cret"}).status == 401


def test_health_metrics_and_the_page_need_no_key(locked):
    for path in ("/health/live", "/metrics", "/", "/openapi.json"):
        assert locked.get(path).status == 200, path
    assert locked.get("/health/ready").status in (200, 503)
    assert locked.post("/", {"inputs": "tea"}).status == 401, "the page is public, and the API at its path is not"
    assert locked.get("/v1/models").status == 401


def test_the_key_of_libretranslate_is_a_field(locked):
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    fields = {"q": "tea", "source": "en", "target": "de"}
    assert locked.post("/translate", fields).status == 401
    assert locked.post("/translate", {**fields, "api_key": "wrong"}).status == 401
    assert locked.post("/translate", {**fields, "api_key": ["s3cret", 1]}).status == 401
    assert locked.request("POST", "/translate", b"q=tea&source=en&target=de&api_key=wrong", **form).status == 401
    assert locked.get("/languages?api_key=wrong").status == 401
    accepted = [
        locked.post("/translate", {**fields, "api_key": "s3cret"}),
        locked.request("POST", "/translate", b"q=tea&source=en&target=de&api_key=s3cret", **form),
        locked.post("/translate?api_key=s3cret", fields),
        locked.get("/languages?api_key=s3cret"),
    ]
    assert [response.status for response in accepted if response.status == 401] == []


def test_pages_of_other_sites_are_refused(server):
    for origin in (
        "https://evil.example",
        "null",
        f"http://localhost.evil.example:{server.port}",
        "http://127.0.0.1:1",
    ):
        answer = server.post(RUN, {"input": "tea"}, Origin=origin)
        assert (answer.status, answer.json["error"]["code"]) == (403, "wrong_origin"), origin
        reading = server.get("/v1/models", Origin=origin)
        assert "access-control-allow-origin" not in reading.headers
    assert server.post(RUN, {"input": "tea"}, Origin=server.url).status == 200


def test_cors_allows_the_origins_that_are_named(start_server):
    server = start_server("translate", cors=("https://good.example",), api_key="k")
    good, bad = {"Origin": "https://good.example"}, {"Origin": "https://evil.example"}
    wishes = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization"}
    preflight = server.request("OPTIONS", RUN, **good, **wishes)
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-origin"] == "https://good.example"
    assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
    answer = server.post(RUN, {"input": "tea"}, Authorization="Bearer k", **good)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "https://good.example")
    refused = server.post(RUN, {"input": "tea"}, **good)
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, "https://good.example")
    assert server.post(RUN, {"input": "tea"}, Authorization="Bearer k", **bad).status == 403
    assert "access-control-allow-origin" not in server.request("OPTIONS", RUN, **bad, **wishes).headers


def test_another_host_name_is_refused_on_the_loopback(server, start_server):
    """DNS rebinding: the name of an attacker leads to 127.0.0.1, and a browser takes the page for his."""
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1.evil.example", "localhost.", "[::2]"):
        expected = 200 if host == "localhost." else 403
        assert server.get("/health/live", Host=host).status == expected, host
    for host in ("localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:8000"):
        assert server.get("/health/live", Host=host).status == 200, host
    named = start_server("translate", allow_host=("models.example",))
    assert named.get("/health/live", Host="models.example:443").status == 200
    assert named.get("/health/live", Host="evil.example").status == 403


def test_an_unexpected_error_tells_the_client_nothing(server, monkeypatch, capsys):
    def broken(registry):
        raise RuntimeError("secret of the server")

    monkeypatch.setattr(server.app.state.metrics, "render", broken)
    answer = server.get("/metrics", X_Request_Id="a-7")
    assert (answer.status, answer.headers["x-request-id"]) == (500, "a-7")
    assert answer.json["error"]["message"] == "the server failed to answer this request: its log has the cause"
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert any("secret of the server" in line.get("traceback", "") and line["id"] == "a-7" for line in lines)
    monkeypatch.undo()
    assert server.get("/metrics").status == 200


def test_the_access_log_is_json_lines(server, capsys):
    answer = server.post(RUN, {"input": "tea and milk"}, X_Request_Id="log:1")
    server.get("/v1/nothing%0a%7f", X_Request_Id="no valid id")
    lines = {}

    def is_written():
        for line in map(json.loads, capsys.readouterr().err.splitlines()):
            lines[line["path"]] = line
        return lines.keys() >= {RUN, "/v1/nothing\n\x7f"}

    server.wait_for(is_written)
    expected = {"id": "log:1", "method": "POST", "path": RUN, "status": 200, "model": "translate"}
    expected |= answer.json["usage"]
    assert answer.headers["x-request-id"] == "log:1"
    assert {key: lines[RUN][key] for key in expected} == expected
    assert lines[RUN].keys() == {*expected, "time", "milliseconds"}
    other = lines["/v1/nothing\n\x7f"]
    assert (other["status"], len(other["id"])) == (404, 32)
    assert "model" not in other


def test_prometheus_reads_the_metrics(server):
    parser = pytest.importorskip("prometheus_client.parser")

    def read():
        answer = server.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = [*parser.text_string_to_metric_families(answer.body.decode())]
        return {(s.name, *sorted(s.labels.items())): s.value for family in families for s in family.samples}

    before = read()
    usage = server.post(RUN, {"input": "tea and milk"}).json["usage"]
    server.get("/no/such/path")
    server.wait_until_idle()
    after = read()

    def growth(name, **labels):
        key = (name, *sorted(labels.items()))
        return after[key] - before.get(key, 0)

    assert growth("regard_requests_total", method="POST", route="/v1/run/{model}", status="200") == 1
    assert growth("regard_requests_total", method="GET", route="other", status="404") == 1
    assert growth("regard_request_seconds_count", route="/v1/run/{model}") == 1
    assert growth("regard_request_seconds_bucket", route="/v1/run/{model}", le="+Inf") == 1
    assert growth("regard_request_seconds_sum", route="/v1/run/{model}") > 0
    assert growth("regard_prompt_tokens_total", model="translate") == usage["prompt_tokens"]
    assert growth("regard_completion_tokens_total", model="translate") == usage["completion_tokens"]
    assert after["regard_model_loaded", ("model", "translate")] == 1
    assert after["regard_queue_tokens", ("model", "translate")] == 0
    assert after["regard_running_requests", ("model", "translate")] == 0
    assert after[("regard_active_requests",)] == 1, "the request for the metrics itself"
    bounds = [
        value for key, value in after.items() if key[0] == "regard_request_seconds_bucket" and RUN[:7] in str(key)
    ]
    assert bounds == sorted(bounds)
