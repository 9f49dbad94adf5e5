"""What a tracker stored of a run, read back with its own library: {tag: [(step, value), ...]} in stored order.

wandb has no public reader of its offline files: they are a LevelDB log of protobuf records.
"""

import json
import struct

from regard.training.trackers import tracking_id

BLOCK, HEADER = 32768, 7  # of a LevelDB log


def read_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"), {"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def read_mlflow(folder):
    from mlflow import MlflowClient

    client = MlflowClient()
    runs = client.search_runs([client.get_experiment_by_name("regard").experiment_id])
    [run] = [run for run in runs if run.data.tags["regard_id"] == tracking_id(folder)]
    return {
        tag: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, tag)] for tag in run.data.metrics
    }


def read_trackio(folder):
    from trackio import SQLiteStorage

    [name] = [name for name in SQLiteStorage.get_runs("regard") if name.endswith(tracking_id(folder))]
    rows = SQLiteStorage.get_logs("regard", name)
    tags = {tag for row in rows for tag in row}
    return {tag: [(row["step"], row[tag]) for row in rows if tag in row] for tag in tags}


def read_wandb(folder):
    """All offline parts of the run, as `wandb sync` uploads them."""
    from wandb.proto import wandb_internal_pb2

    history = {}
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for content in log_records(file.read_bytes()):
            record = wandb_internal_pb2.Record.FromString(content)
            if record.WhichOneof("record_type") == "history":
                items = {
                    "/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item
                }
                for tag, value in items.items():
                    history.setdefault(tag, []).append((record.history.step.num, value))
    return history


def log_records(data):
    """The records of a LevelDB log after its 7 bytes of file header; a killed process may have cut the last one."""
    position, parts = HEADER, []
    while position + HEADER <= len(data):
        if BLOCK - position % BLOCK < HEADER:
            position += BLOCK - position % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        if position + HEADER + length > len(data):
            return
        parts.append(data[position + HEADER : position + HEADER + length])
        position += HEADER + length
        if kind in (1, 4):  # a whole record, or its last part
            yield b"".join(parts)
            parts = []


READERS = {"tensorboard": read_tensorboard, "wandb": read_wandb, "mlflow": read_mlflow, "trackio": read_trackio}
