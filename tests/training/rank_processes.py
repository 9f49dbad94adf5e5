"""Runs Python code in several processes that form the ranks of one run, as torchrun starts them."""

import os
import socket
import subprocess
import sys


def run_ranks(size, code, *args, timeout=120, check=True):
    """The output of every rank. `code` is the source of a script, `args` become its sys.argv[1:]."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *map(str, args)]
    processes = [
        subprocess.Popen(
            command,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        outputs = [process.communicate(timeout=timeout)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    if check:
        assert not any(process.returncode for process in processes), "\n".join(outputs)
    return outputs
