"""The files of deploy/ agree with the options, paths and time limits of the server, and grant it no privilege."""

import json
import re
import shutil
import subprocess
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from regard.serve.serve_options import ServeOptions

pytest.importorskip("starlette")
from regard.serve import health  # noqa: E402

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OPTIONS = {f"--{field.name.replace('_', '-')}" for field in fields(ServeOptions)}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def dockerfile():
    """Instructions of the last stage, and all of them."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    steps = [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]
    start = max(i for i, (name, _) in enumerate(steps) if name == "FROM")
    return dict(steps[start:]), steps


def unit():
    """The values of each setting, in order."""
    settings = {}
    for line in (DEPLOY / "regard@.service").read_text(encoding="utf-8").splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            settings.setdefault(name, []).append(value)
    return settings


def seconds(text):
    return int(re.fullmatch(r"(\d+)s?", text)[1])


def option_value(words, option, default):
    return words[words.index(option) + 1] if option in words else default


def assert_known(words):
    unknown = {word for word in words if word.startswith("--")} - OPTIONS
    assert not unknown, unknown


def test_the_image_runs_regard_serve_as_an_unprivileged_user():
    last, steps = dockerfile()
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", last["USER"])
    names = [name for name, _ in steps]
    assert names.index("USER") < names.index("ENTRYPOINT")
    command = json.loads(last["ENTRYPOINT"])
    assert command[:2] == ["regard", "serve"]
    assert_known(command)
    assert "VOLUME" in last, "the kernel cache needs a place in a read-only root file system"
    assert "NUMBA_CACHE_DIR=" + last["VOLUME"] in last["ENV"]


def test_the_health_check_asks_a_route_that_needs_no_key():
    last, _ = dockerfile()
    url = re.search(r"http://127\.0\.0\.1:(\d+)(/[\w/]+)", last["HEALTHCHECK"])
    assert url[2] in {route.path for route in health.routes}
    assert url[1] == option_value(json.loads(last["ENTRYPOINT"]), "--port", "8000") == last["EXPOSE"]


def test_the_image_installs_the_cpu_build_of_a_supported_torch_and_existing_extras():
    installs = [body for name, body in dockerfile()[1] if name == "RUN" and "pip install" in body]
    torch = next(requirement for requirement in PROJECT["dependencies"] if requirement.startswith("torch"))
    assert f'"{torch}" --index-url https://download.pytorch.org/whl/cpu' in installs[0]
    extras = re.search(r'"\.\[([\w,]+)\]"', installs[1])[1].split(",")
    assert set(extras) <= PROJECT["optional-dependencies"].keys()


def test_the_build_context_has_what_the_image_copies():
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [
        word for name, body in dockerfile()[1] if name == "COPY" and "--from" not in body for word in body.split()[:-1]
    ]
    assert {f"!{name}" for name in copied} <= set(kept)
    assert all((ROOT / name).exists() for name in copied)


def test_compose_grants_nothing_that_the_server_does_not_need():
    yaml = pytest.importorskip("yaml")
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]["regard"]
    assert_known(service["command"])
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    drain = option_value(service["command"], "--drain-timeout", ServeOptions.drain_timeout)
    assert seconds(service["stop_grace_period"]) > float(drain)
    cache = dockerfile()[0]["VOLUME"]
    assert f"cache:{cache}" in service["volumes"]
    assert next(volume for volume in service["volumes"] if ":/models" in volume).endswith(":ro")
    assert any(mount.startswith("/tmp") for mount in service["tmpfs"]), "uploads are written to /tmp"


def test_the_unit_is_hardened_and_waits_for_the_drain():
    settings = unit()
    [command] = settings["ExecStart"]
    words = command.split()
    assert words[0].endswith("/bin/regard")
    assert words[1] == "serve"
    assert_known(words)
    assert option_value(words, "--host", ServeOptions.host) == "127.0.0.1"
    assert seconds(settings["TimeoutStopSec"][0]) > float(option_value(words, "--drain-timeout", "30"))
    for name in ("NoNewPrivileges", "DynamicUser", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictNamespaces"):
        assert settings[name] == ["yes"], name
    assert settings["ProtectSystem"] == ["strict"]
    assert settings["CapabilityBoundingSet"] == [""]
    assert settings["MemoryDenyWriteExecute"] == ["no"], "the kernels are compiled at run time"


def test_systemd_accepts_the_unit(tmp_path):
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("needs systemd-analyze")
    text = (DEPLOY / "regard@.service").read_text(encoding="utf-8")
    file = tmp_path / "regard@8001.service"
    file.write_text(text.replace("/opt/regard/bin/regard", "/bin/true"), encoding="utf-8")
    done = subprocess.run([tool, "verify", "--man=no", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(file.name) not in done.stderr


def test_the_proxy_streams_and_its_limits_are_those_of_the_server():
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    values = dict(re.findall(r"^\s*(\w+) ([^;{]+);", text, re.MULTILINE))
    assert values["proxy_buffering"] == "off"
    assert values["client_max_body_size"] == f"{ServeOptions.max_body_mb:.0f}m"
    assert seconds(values["proxy_read_timeout"]) > ServeOptions.request_timeout
    assert seconds(values["client_header_timeout"]) == ServeOptions.header_timeout
    assert seconds(values["client_body_timeout"]) == ServeOptions.body_timeout
    assert values["proxy_set_header"].startswith("X-") or "proxy_set_header Host $http_host" in text
    assert set(re.findall(r"--[a-z][a-z-]+", text)) <= OPTIONS


def test_nginx_accepts_the_configuration(tmp_path):
    tool = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if tool is None:
        pytest.skip("needs nginx")
    paths = "".join(
        f"{name}_temp_path {tmp_path / name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = f"pid {tmp_path / 'pid'}; events {{}} http {{ access_log off; {paths} include {DEPLOY / 'nginx.conf'}; }}"
    (tmp_path / "nginx.conf").write_text(main, encoding="utf-8")
    command = [tool, "-t", "-e", "stderr", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
