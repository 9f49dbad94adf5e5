"""The state of a training under FSDP2 and HSDP, saved and loaded on other numbers of ranks; published weights."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

sys.path.append(str(Path(__file__).parent))
from test_checkpoint import KINDS, every_failure  # noqa: E402
from test_loop import PAIRS, make, restore  # noqa: E402
from test_sharded_state import parts_of  # noqa: E402
from thread_ranks import on_forks, on_threads  # noqa: E402

from regard.atomic import replace_file  # noqa: E402
from regard.hub.folder import find_family_map, read_config, read_weights, write_config, write_weights  # noqa: E402
from regard.hub.match_state_dict import unique_state_dict  # noqa: E402
from regard.hub.tensor_slices import local_part, slice_of, whole_tensor  # noqa: E402
from regard.hub.weights import SAFE_INDEX, SAFE_WEIGHTS, read_headers, read_index, read_tensors  # noqa: E402
from regard.training.checkpoint import find_damage  # noqa: E402
from regard.training.loop import Progress, train_steps  # noqa: E402
from regard.training.publish import name_shards, publish_weights  # noqa: E402
from regard.training.rank_checkpoint import save_on_ranks  # noqa: E402
from regard.training.run_folder import RunFolder  # noqa: E402
from regard.training.sharded_state import STATE, STATE_INDEX, state_files  # noqa: E402
from regard.training.train import train  # noqa: E402
from regard.training.training_state import state_slices  # noqa: E402

MAX_SHARD = 9000  # bytes of a file of published weights, here
LAYOUTS = {"shards": (4,), "replicas of shards": (2, 2)}


def device_mesh(*sizes):
    return init_device_mesh("cpu", sizes, mesh_dim_names=("replicate", "shard")[-len(sizes) :])


def trained():
    """A training after three steps, the same in every process."""
    progress, task, examples, train_options = make(steps=3)
    for _ in train_steps(progress, task, examples, train_options):
        pass
    return progress, train_options


def shard(progress, train_options, mesh):
    """The same state divided over a mesh, the EMA as plain tensors of this rank's size."""
    names = dict(progress.model.named_parameters())
    states = {
        name: {kind: value for optimizer in progress.optimizers for kind, value in optimizer.state[weight].items()}
        for name, weight in names.items()
    }
    means = progress.ema.means
    fully_shard(progress.model, mesh=mesh)
    sharded = Progress.new(progress.model, train_options)
    sharded.step, sharded.position = progress.step, progress.position
    for i, (name, weight) in enumerate(progress.model.named_parameters()):
        assert isinstance(weight, DTensor)

        def divided(value, weight=weight):
            if value.shape != weight.shape:
                return value
            return distribute_tensor(value, mesh, weight.placements, src_data_rank=None)

        for optimizer in sharded.optimizers:
            if any(weight is w for group in optimizer.param_groups for w in group["params"]):
                optimizer.state[weight] = {kind: divided(value) for kind, value in states[name].items()}
        sharded.ema.means[i] = local_part(divided(means[i])).clone()
    return sharded


def whole_state(progress):
    return {part.name: part.tensor.clone() for part in state_slices(progress)}


def differing(progress, expected):
    """The names of the parts that this rank holds and that differ from the whole state."""
    parts = state_slices(progress)
    assert {part.name for part in parts} == {*expected}
    return [part.name for part in parts if not torch.equal(part.tensor, part.of(expected[part.name]))]


@pytest.fixture(scope="module")
def expected():
    return whole_state(trained()[0])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Run folders of one process, of shards and of replicas of shards, each with its published weights."""
    folder = tmp_path_factory.mktemp("saved")
    one = RunFolder.new(folder / "one process")
    progress, _ = trained()
    one.save(progress, {}, 1, {"extra.txt": lambda file: file.write_text("extra")})
    one.max_shard = MAX_SHARD
    one.publish(progress.model)

    def act(ranks):
        for name, sizes in LAYOUTS.items():
            progress = shard(*trained(), device_mesh(*sizes))
            run = RunFolder(folder / name, ranks)
            run.folder.mkdir(exist_ok=True)
            run.save(progress, {}, 1, {"extra.txt": lambda file: file.write_text("extra")})
            run.max_shard = MAX_SHARD
            run.publish(progress.model)

    assert on_forks(4, act, tmp_path_factory.mktemp("results")) == [None] * 4
    return folder


def test_ranks_write_their_slices_and_one_process_the_same_file_as_ever(saved):
    names = [f"state-{rank:05d}-of-00004.safetensors" for rank in (1, 2, 3, 4)]
    for layout in LAYOUTS:
        files = {file.name for file in (saved / layout / "step-3").iterdir()}
        assert files == {*names, STATE_INDEX, "state.json", "manifest.json", "extra.txt"}
        assert not find_damage(saved / layout / "step-3")
        sizes = [(saved / layout / "step-3" / name).stat().st_size for name in names]
        assert max(sizes) < 1.3 * min(sizes)
    assert (saved / "one process" / "step-3" / STATE).exists()


@pytest.mark.parametrize("layout", ["one process", *LAYOUTS])
def test_one_process_resumes_from_any_checkpoint(layout, saved, expected):
    progress, *_ = make(seed=99)
    assert restore(RunFolder(saved / layout), progress) == []
    assert progress.step == 3
    assert differing(progress, expected) == []


@pytest.mark.parametrize("sizes", [(2,), (4,), (2, 2)])
def test_ranks_resume_from_any_checkpoint(sizes, saved, expected, tmp_path):
    def act(ranks):
        results = []
        for name in ["one process", *LAYOUTS]:
            progress, _, _, train_options = make(seed=99)
            fully_shard(progress.model, mesh=device_mesh(*sizes))
            progress = Progress.new(progress.model, train_options)
            before = differing(progress, {part.name: expected[part.name] for part in state_slices(progress)})
            assert len(before) > 10
            restore(RunFolder(saved / name, ranks), progress)
            results += differing(progress, expected)
            assert all(isinstance(o.state[w]["momentum"], DTensor) for o in progress.optimizers[1:] for w in o.state)
        return results

    ranks = 4 if sizes != (2,) else 2
    assert on_forks(ranks, act, tmp_path) == [[]] * ranks


def test_ranks_read_only_their_slice_of_published_weights(saved, tmp_path):
    progress, *_ = trained()
    weights = {name: weight.detach().clone() for name, weight in progress.model.named_parameters()}

    def act(ranks):
        model = make(seed=99)[0].model
        fully_shard(model, mesh=device_mesh(2))
        if ranks.is_first:
            write_config(saved / "shards", progress.model)
        ranks.wait()
        read_weights(saved / "shards", find_family_map(model.body), model)
        assert all(torch.equal(local_part(w), slice_of(n, w).of(weights[n])) for n, w in model.named_parameters())
        return all(torch.equal(whole_tensor(w), weights[n]) for n, w in model.named_parameters())

    assert on_forks(2, act, tmp_path) == [True, True]


def test_the_mean_of_checkpoints_is_the_same_from_any_format(saved, expected):
    means = []
    for layout in "one process", "shards":
        progress, *_ = make(seed=99)
        RunFolder(saved / layout).load_average(progress.model, 3, 1)
        means.append(unique_state_dict(progress.model))
    assert all(torch.equal(means[0][name], means[1][name]) for name in means[0])
    assert all(torch.equal(tensor, expected[f"weights/{name}"]) for name, tensor in means[0].items())


def test_published_files_are_the_same_from_ranks_and_from_one_process(saved):
    def files(layout):
        return {f.name: f.read_bytes() for f in (saved / layout).glob("model*")}

    one = files("one process")
    assert len(one) >= 3
    assert sum(map(len, one.values())) > MAX_SHARD
    for layout in LAYOUTS:
        assert files(layout) == one


def written_by_ranks(checkpoint, size):
    """Replace the file of a checkpoint of one process by the files that ranks would write."""
    state = load_file(checkpoint / STATE)
    others = {f.name: f.read_bytes() for f in checkpoint.iterdir() if f.name not in (STATE, "manifest.json")}

    def act(ranks):
        files, room = state_files(parts_of(state, ranks.rank, size), ranks)
        copies = {name: partial(replace_file, content=content) for name, content in others.items()}
        files = {**files, **(copies if ranks.is_first else {})}
        return save_on_ranks(ranks, checkpoint.parent, checkpoint.name, files, room)

    assert {*on_threads(size, act)} == {checkpoint}
    assert not (checkpoint / STATE).exists()


def test_a_run_resumes_from_checkpoints_of_ranks_with_the_same_bits(tmp_path):
    """At its end it evaluates the mean of checkpoints of both formats."""
    options = {"steps": 8, "evals": 4, "device": "cpu", "data": [str(tmp_path / "data.tsv")], "dropout": 0.2}
    options |= {"dim": 12, "heads": 2, "hidden": 16, "encoder_layers": 1, "decoder_layers": 1, "batch_tokens": 200}
    options |= {"average_checkpoints": 3, "tokenizer": "characters", "valid_share": 0.2}
    (tmp_path / "data.tsv").write_text("".join(f"{source}\t{target} {i}\n" for i, (source, target) in enumerate(PAIRS)))
    for _ in train("translate", output_dir=tmp_path / "whole", **options):
        pass
    steps = train("translate", output_dir=tmp_path / "ranks", **options)
    assert next(step for step in steps if step.number == 6)
    steps.close()
    for number in 4, 6:
        written_by_ranks(tmp_path / "ranks" / f"step-{number}", 3)
    assert [step.number for step in train("translate", resume=True, output_dir=tmp_path / "ranks")] == [7, 8]
    for file in SAFE_WEIGHTS, f"step-8/{STATE}":
        assert (tmp_path / "ranks" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    damaged = tmp_path / "ranks" / "step-6" / "state-00002-of-00003.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert "step-6/state-00002-of-00003.safetensors differs" in find_damage(damaged.parent)


def content(folder):
    return {name: tensor.clone() for name, tensor in read_tensors(read_headers(folder)).items()}


def equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_one_small_file_is_written_as_before(tmp_path):
    model = make()[0].model
    publish_weights(tmp_path, model)
    write_weights(tmp_path / "expected", model)
    assert (tmp_path / SAFE_WEIGHTS).read_bytes() == (tmp_path / "expected").read_bytes()


def test_no_two_sets_share_a_name_until_the_run_ends(tmp_path):
    models, sets = [make(seed=seed)[0].model for seed in (1, 2, 3)], []
    for model in models:
        publish_weights(tmp_path, model, max_shard=MAX_SHARD)
        sets.append({*read_index(tmp_path / SAFE_INDEX).values()})
        assert {file.name for file in tmp_path.iterdir()} == {*sets[-1], SAFE_INDEX}
    assert not sets[0] & sets[1]
    assert not sets[1] & sets[2]
    last = content(tmp_path)
    name_shards(tmp_path)
    name_shards(tmp_path)
    count = len(sets[-1])
    names = {f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)}
    assert {file.name for file in tmp_path.iterdir()} == {*names, SAFE_INDEX}
    assert equal(content(tmp_path), last)
    publish_weights(tmp_path, models[0], max_shard=MAX_SHARD)
    assert not {*read_index(tmp_path / SAFE_INDEX).values()} & names
    publish_weights(tmp_path, models[1])
    assert {file.name for file in tmp_path.iterdir()} == {SAFE_WEIGHTS}
    publish_weights(tmp_path, models[1], max_shard=MAX_SHARD)
    assert SAFE_WEIGHTS not in {file.name for file in tmp_path.iterdir()}
    assert equal(content(tmp_path), last) is False


@KINDS
@pytest.mark.parametrize("before", [MAX_SHARD, 10**9])
def test_whatever_call_fails_readers_see_the_old_or_the_new_weights(kind, before, tmp_path):
    models = [make(seed=seed)[0].model for seed in (1, 2)]
    old, new = (tmp_path / "old", tmp_path / "new")
    for folder, model in zip((old, new), models, strict=True):
        folder.mkdir()
        publish_weights(folder, model)
    states = [content(old), content(new)]

    def act(parent):
        publish_weights(parent, models[1], max_shard=12_000)
        name_shards(parent)

    for parent in every_failure(tmp_path, lambda p: publish_weights(p, models[0], max_shard=before), act, kind):
        assert any(equal(content(parent), state) for state in states)
    assert equal(content(parent), states[1])


def test_a_full_disk_while_weights_are_published_ends_all_ranks(tmp_path, monkeypatch):
    models = [make(seed=seed)[0].model for seed in (1, 2)]
    publish_weights(tmp_path, models[0], max_shard=MAX_SHARD)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    from regard.training import publish

    write_shard, written = publish.write_shard, []

    def full(tensors, file):
        write_shard(tensors, file)
        written.append(file)
        if len(written) == 2:
            raise OSError(28, "No space left on device", str(file))

    monkeypatch.setattr(publish, "write_shard", full)
    errors = on_threads(2, lambda ranks: publish_weights(tmp_path, models[1], ranks, MAX_SHARD))
    assert all("No space left on device" in str(error) for error in errors)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_transformers_reads_files_and_index(saved, tmp_path):
    import transformers

    run = RunFolder(saved / "shards")
    progress, *_ = trained()
    write_config(run.folder, progress.model)
    run.finish_weights()
    count = len({*read_index(run.folder / SAFE_INDEX).values()})
    assert {file.name for file in run.folder.glob("model*")} == {
        *(f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)),
        SAFE_INDEX,
    }
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(run.folder)
    theirs.save_pretrained(tmp_path, max_shard_size=MAX_SHARD)
    stored = content(run.folder)
    state = theirs.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in stored.items())
    index = json.loads((run.folder / SAFE_INDEX).read_bytes())
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in stored.values())
    family_map, _ = read_config(run.folder)
    model = make(seed=99)[0].model
    read_weights(run.folder, family_map, model)
    expected = unique_state_dict(progress.model)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in unique_state_dict(model).items())
    for file in run.folder.glob("model*.safetensors"):
        assert load_file(file)
