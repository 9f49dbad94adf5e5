"""The Slurm script and the Kubernetes job of deploy/ start torchrun and `regard train` with options that exist, save
before the time limit, and start again."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from regard.models import MODELS
from regard.options import option_flag
from regard.training.settings import options

ROOT = Path(__file__).parents[1]
SCRIPT, JOB = ROOT / "deploy" / "regard.sbatch", ROOT / "deploy" / "train-job.yaml"
TORCHRUN_GRACE = 30  # seconds that torchrun gives its ranks after SIGTERM

STUBS = {
    "scontrol": 'if [ "$1" = show ]; then echo node-a; echo node-b; else echo "scontrol $*" >> "$LOG"; fi',
    "srun": 'shift; exec "$@"',
    "torchrun": """
        printf "%s\\n" "$@" > "$LOG.args"
        trap 'echo saved >> "$LOG"; exit 1' TERM  # torchrun hides the exit codes of its ranks
        touch "$LOG.started"
        if [ "${@: -1}" = endless ]; then while true; do sleep 0.02; done; fi
        exit "${CODE:-0}"
    """,
}


def parse_launch(arguments):
    """What torchrun reads, and the options of `regard train` that the module gets."""
    launch = get_args_parser().parse_args(arguments)
    assert launch.module
    assert launch.training_script == "regard"
    verb, task, *rest = launch.training_script_args
    assert verb == "train"
    known = {option_flag(name) for name in options(task, "nanochat", "mini")} | {"-o"}
    flags = {word.partition("=")[0] for word in rest if word.startswith("-")}
    assert flags <= known
    return launch, rest


@pytest.fixture
def sbatch(tmp_path):
    """Starts the script as Slurm would, with stubs of the commands that a cluster has."""
    for name, body in STUBS.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_JOB_NUM_NODES": "2"}
    environment = os.environ | slurm | {"SLURM_GPUS_ON_NODE": "8", "LOG": str(tmp_path / "log")}

    def start(*arguments, **variables):
        command = ["bash", str(SCRIPT), *arguments]
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.Popen(command, env=environment | path | variables, cwd=tmp_path)

    return start


def wait_for_file(file, job):
    while not file.exists():
        assert job.poll() is None
        time.sleep(0.01)


def test_the_slurm_script_starts_all_ranks(sbatch, tmp_path):
    arguments = [
        "write",
        "--data",
        "corpus.txt",
        "--grad-accum",
        "16",
        "--shards",
        "8",
        "--log",
        "wandb",
        "-o",
        "/shared",
    ]
    assert sbatch(*arguments).wait() == 0
    launch, rest = parse_launch((tmp_path / "log.args").read_text().splitlines())
    assert rest == arguments[1:]
    assert (launch.nnodes, launch.nproc_per_node) == ("2", "8")
    assert launch.rdzv_endpoint == "node-a:29500"
    assert not (tmp_path / "log").exists(), "a job that ended is not queued again"


def test_torchrun_passes_every_option_on():
    """Without the -- it would refuse --log, as a prefix of several options of its own."""
    for task, model in (("write", "nanochat"), ("translate", "transformer"), ("classify", "vit")):
        arguments = [option_flag(name) for name in options(task, model, next(iter(MODELS[model].sizes)))]
        launch = get_args_parser().parse_args(
            ["--nproc-per-node", "2", "-m", "--", "regard", "train", task, *arguments]
        )
        assert launch.training_script == "regard"
        assert launch.training_script_args == ["train", task, *arguments]


def test_the_slurm_script_saves_and_queues_the_job_again_before_the_time_limit(sbatch, tmp_path):
    job = sbatch("write", "endless")
    wait_for_file(tmp_path / "log.started", job)
    job.send_signal(signal.SIGUSR1)
    assert job.wait() == 0
    assert (tmp_path / "log").read_text() == "saved\nscontrol requeue 42\n"


def test_the_slurm_script_fails_with_the_training(sbatch, tmp_path):
    assert sbatch("write", CODE="2").wait() == 2
    assert not (tmp_path / "log").exists()


def test_the_slurm_script_warns_the_job_early_enough():
    text = SCRIPT.read_text(encoding="utf-8")
    assert subprocess.run(["bash", "-n", str(SCRIPT)]).returncode == 0
    assert int(text.split("#SBATCH --signal=B:USR1@")[1].split()[0]) > 2 * TORCHRUN_GRACE
    assert "#SBATCH --requeue" in text


def test_the_kubernetes_job_starts_all_ranks_and_grants_nothing():
    yaml = pytest.importorskip("yaml")
    service, job = yaml.safe_load_all(JOB.read_text(encoding="utf-8"))
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    launch, rest = parse_launch(container["args"])
    assert container["command"] == ["torchrun"]
    ranks = int(launch.nnodes) * int(launch.nproc_per_node)
    assert int(launch.nnodes) == job["spec"]["completions"] == job["spec"]["parallelism"]
    assert int(launch.nproc_per_node) == container["resources"]["limits"]["nvidia.com/gpu"]
    [accumulation] = [word.partition("=")[2] for word in rest if word.startswith("--grad-accum=")]
    assert int(accumulation) % ranks == 0
    name, port = job["metadata"]["name"], service["spec"]["ports"][0]["port"]
    assert launch.rdzv_endpoint == f"{name}-0.{pod['subdomain']}:{port}"
    assert service["metadata"]["name"] == pod["subdomain"]
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
    assert job["spec"]["completionMode"] == "Indexed"
    assert pod["restartPolicy"] == "OnFailure"
    assert pod["terminationGracePeriodSeconds"] > TORCHRUN_GRACE
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in pod["volumes"]}
    for flag, volume in (("--output-dir", "runs"), ("--data", "data")):
        [path] = [word.partition("=")[2] for word in rest if word.startswith(f"{flag}=")]
        assert path.startswith(mounts[volume]["mountPath"])
