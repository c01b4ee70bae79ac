"""Copies of a run at a URL: complete or not there, retried, and good to continue the run from."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from tiny import Diary, make_trainer

from sonosco_like import diff, serializable
from sonosco_like.callbacks import MetricsFile, ModelCheckpoint
from sonosco_like.errors import StorageError, UsageError
from sonosco_like.events import AbstractCallback
from sonosco_like.runs.checkpoints import Checkpoints
from sonosco_like.runs.fetching import fetch_run
from sonosco_like.runs.remote_copy import COMPLETE, RemoteCopy
from sonosco_like.training import Experiment, open_run
from sonosco_like.training.experiment import RunFailedError

KEYS = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A real S3 server on this machine; gives its address."""
    moto = pytest.importorskip("moto.server", reason="pip install 'sonosco_like[dev]' brings it")
    pytest.importorskip("s3fs", reason="pip install 'sonosco_like[remote]' brings it")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["memory", "file", "s3"])
def url(request, tmp_path, monkeypatch) -> str:
    """An empty place of every kind."""
    name = uuid.uuid4().hex
    if request.param == "memory":
        return f"memory://{name}/run"
    if request.param == "file":
        return f"file://{tmp_path}/remote/run"
    for key, value in {**KEYS, "AWS_ENDPOINT_URL": request.getfixturevalue("s3")}.items():
        monkeypatch.setenv(key, value)
    fsspec.filesystem("s3", skip_instance_cache=True).mkdir(name)
    return f"s3://{name}/run"


@serializable
class Failing(AbstractCallback):
    """Fails at a step, once: a run that goes on has it behind it."""

    at: int
    order: int = 2000

    def on_batch_end(self, moment):
        if moment.context.global_step == self.at and not moment.context.experiment.is_resumed:
            raise ZeroDivisionError("the machine is gone")


def start(folder: Path, url: str | None, *callbacks) -> Checkpoints:
    policy = ModelCheckpoint(every="3ba", keep_last=2, monitor="val_loss", keep_best=1)
    trainer = make_trainer(callbacks=[Diary(), MetricsFile(), policy, *callbacks])
    Experiment(name="tiny", trainer=trainer, remote=url).start(folder)
    return Checkpoints(folder)


def there(url: str) -> tuple[object, str, list[str]]:
    system, root = fsspec.url_to_fs(url)
    system.invalidate_cache()
    return system, root, sorted(path[path.index(root) + len(root) + 1 :] for path in system.find(root))


def test_a_copy_holds_what_the_run_holds_and_gives_it_back(url, tmp_path):
    run = start(tmp_path / "run", url)
    names = there(url)[2]
    for path in run.all():
        assert sum(name.startswith(f"checkpoints/{path.name}-") for name in names) == 4, "three files and the mark"
    assert sum(name.endswith(COMPLETE) for name in names) == len(run.all()) + 1
    fetched = fetch_run(url, tmp_path / "fetched")
    assert [path.name for path in Checkpoints(fetched).all()] == [path.name for path in run.all()]
    for name in ("final", *(f"checkpoints/{path.name}" for path in run.all())):
        for file in (run.run / name).iterdir():
            assert file.read_bytes() == (fetched / name / file.name).read_bytes()
    for name in ("config.yaml", "environment.yaml", "metrics.jsonl"):
        assert (run.run / name).read_bytes() == (fetched / name).read_bytes()


def test_a_run_whose_machine_is_gone_goes_on_elsewhere_as_if_nothing_had_happened(url, tmp_path):
    whole = start(tmp_path / "whole", None, Failing(at=99))
    with pytest.raises(RunFailedError, match="the machine is gone"):
        start(tmp_path / "run", url, Failing(at=13))
    shutil.rmtree(tmp_path / "run")
    experiment, step = open_run(url, into=tmp_path / "elsewhere")
    assert step >= 12
    experiment.trainer.callbacks[-1].at = 99
    assert experiment.resume() == 0
    found = Checkpoints(tmp_path / "elsewhere")
    assert [path.name for path in found.all()] == [path.name for path in whole.all()]
    assert (found.run / "best").read_text() == (whole.run / "best").read_text()
    ignored = ("seconds", "heard")
    differences = [str(each) for each in diff(whole.run / "final", found.run / "final")]
    assert [each for each in differences if not any(word in each for word in ignored)] == []
    copied = {name.split("/")[1].rpartition("-")[0] for name in there(url)[2] if name.startswith("checkpoints/")}
    assert copied == {path.name for path in found.all()}, "what is not wanted any more is deleted there too"


def test_a_folder_that_fell_behind_its_copy_takes_over_all_of_it(tmp_path):
    url = f"memory://{uuid.uuid4().hex}/run"
    with pytest.raises(RunFailedError, match="the machine is gone"):
        start(tmp_path / "first", url, Failing(at=7))
    behind = fetch_run(url, tmp_path / "behind")
    experiment, _ = open_run(url, into=tmp_path / "ahead")
    experiment.trainer.callbacks[-1].at = 99
    experiment.resume()
    assert fetch_run(url, behind) == behind
    for name in ("metrics.jsonl", "status.yaml", "final/tensors.safetensors"):
        assert (behind / name).read_bytes() == (tmp_path / "ahead" / name).read_bytes(), name


def test_a_folder_that_is_ahead_of_its_copy_stays_as_it_is(tmp_path):
    url = f"memory://{uuid.uuid4().hex}/run"
    run = start(tmp_path / "run", url).run
    with (run / "metrics.jsonl").open("a") as file:
        file.write("written after the last copy\n")
    before = (run / "metrics.jsonl").read_bytes()
    fetch_run(url, run)
    assert (run / "metrics.jsonl").read_bytes() == before


@pytest.fixture
def copy(tmp_path) -> tuple[str, Checkpoints]:
    url = f"memory://{uuid.uuid4().hex}/run"
    return url, start(tmp_path / "run", url)


def test_an_incomplete_copy_is_not_there(copy, tmp_path):
    url, run = copy
    system, root, names = there(url)
    newest = run.all()[-1].name
    system.rm_file(next(f"{root}/{n}" for n in names if newest in n and n.endswith(COMPLETE)))
    fetched = Checkpoints(fetch_run(url, tmp_path / "fetched"))
    assert fetched.newest() == fetched.path_of(18)


@pytest.mark.parametrize("file", ["trainer.yaml", "state.yaml", "tensors.safetensors"])
def test_a_damaged_copy_is_passed_over_and_named(copy, tmp_path, file, caplog):
    url, run = copy
    system, root, names = there(url)
    newest = run.all()[-1].name
    path = next(f"{root}/{name}" for name in names if newest in name and name.endswith(file))
    system.pipe_file(path, system.cat_file(path)[:-1])
    fetched = Checkpoints(fetch_run(url, tmp_path / "fetched"))
    assert fetched.newest() == fetched.path_of(18)
    assert f"The remote checkpoint {newest} is damaged" in caplog.text
    assert not [path for path in fetched.folder.iterdir() if path.name.startswith(".")]


def test_names_that_lead_out_of_the_folder_are_left_alone(copy, tmp_path):
    url, _ = copy
    system, root, _ = there(url)
    for name in ("../outside", "logs/../../outside", ".hidden", "a\\b"):
        system.store[f"{root}/{name}"] = system.store[f"{root}/config.yaml"]
    fetch_run(url, tmp_path / "into" / "fetched")
    assert [path.name for path in (tmp_path / "into").iterdir()] == ["fetched"]
    assert {path.name for path in (tmp_path / "into" / "fetched").iterdir()}.isdisjoint({".hidden", "outside", "a\\b"})


def put(url: str, names: dict[str, bytes]) -> None:
    system, root, _ = there(url)
    for name, content in names.items():
        system.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
        system.pipe_file(f"{root}/{name}", content)


def contents(url: str) -> dict[str, bytes]:
    system, root, names = there(url)
    return {name: system.cat_file(f"{root}/{name}") for name in names}


FOREIGN = {
    "a file": {"thesis.txt": b"years of work"},
    "folders of ours in name": {"checkpoints/best/model.pt": b"weights", "final-report/a.tex": b"text"},
    "a config": {"config.yaml": b"name: another\n"},
    "names of our form": {"checkpoints/step-00000003-0123456789ab/state.yaml": b"another's"},
    "another run's id": {"run_id": b"0" * 32 + b"\n", "config.yaml": b"name: another\n"},
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_place_that_holds_anything_else_is_refused_and_left_as_it_is(url, tmp_path, kind):
    put(url, FOREIGN[kind])
    with pytest.raises(UsageError, match=r"does not hold this run|holds another run"):
        start(tmp_path / "run", url)
    assert contents(url) == FOREIGN[kind]
    start(tmp_path / "run", f"file://{tmp_path}/free")
    assert fetch_run(f"file://{tmp_path}/free", tmp_path / "fetched").is_dir(), (
        "with another place the folder may be used"
    )


@pytest.mark.parametrize("place", ["run", "run/copy", "run/final"])
def test_a_place_in_the_run_folder_is_refused(tmp_path, place):
    with pytest.raises(UsageError, match="inside the run folder"):
        start(tmp_path / "run", f"file://{tmp_path}/{place}")
    start(tmp_path / "run", f"file://{tmp_path}/running")


def test_what_others_put_into_the_place_later_stays(url, tmp_path):
    with pytest.raises(RunFailedError, match="the machine is gone"):
        start(tmp_path / "run", url, Failing(at=7))
    later = {
        "thesis.txt": b"x", "checkpoints/mine/model.pt": b"x", "checkpoints/step-00000003-0123456789ab/notes.txt": b"x",
        "checkpoints/step-00000004-0123456789ab/complete.json": b'{"run": "another"}', "final-report/a.tex": b"x",
    }  # fmt: skip
    put(url, later)
    experiment, _ = open_run(tmp_path / "run")
    experiment.trainer.callbacks[-1].at = 99
    experiment.resume()
    found = contents(url)
    assert {name: found.get(name) for name in later} == later
    own = {
        name.split("/")[1].rpartition("-")[0]
        for name in found
        if name.endswith("tensors.safetensors") and "/step-" in name
    }
    assert own == {path.name for path in experiment.checkpoints.all()}, "its own old ones are deleted all the same"


def test_a_copy_that_was_cut_short_is_cleared_away(tmp_path):
    url = f"memory://{uuid.uuid4().hex}/run"
    run = start(tmp_path / "run", url)
    put(url, {"checkpoints/step-00000003-0123456789ab/state.yaml": b"torn", "final-0123456789ab/trainer.yaml": b"x"})
    with RemoteCopy(run.run, url, pauses=()):
        pass
    assert not [name for name in there(url)[2] if "0123456789ab" in name]


def test_a_run_begun_anew_elsewhere_or_in_the_same_folder_does_not_take_the_place(url, tmp_path):
    start(tmp_path / "run", url)
    before = contents(url)
    with pytest.raises(UsageError, match="holds another run"):
        start(tmp_path / "again", url)
    for name in ("config.yaml", "environment.yaml", "status.yaml", "latest", "best"):
        (tmp_path / "run" / name).unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    shutil.rmtree(tmp_path / "run" / "final")
    with pytest.raises(UsageError, match="has come further with this run"):
        start(tmp_path / "run", url)
    assert contents(url) == before


def test_a_folder_that_is_behind_its_copy_does_not_delete_what_is_newer_there(tmp_path):
    url = f"memory://{uuid.uuid4().hex}/run"
    run = start(tmp_path / "run", url).run
    behind = Path(shutil.copytree(run, tmp_path / "behind"))
    shutil.rmtree(behind / "final")
    shutil.rmtree(behind / "checkpoints" / "step-00000020")
    before = contents(url)
    with pytest.raises(UsageError, match=f"step 20.*sonosco resume {url}"):
        open_run(behind)[0].resume()
    assert contents(url) == before


def test_a_copy_of_an_older_version_is_taken_over_if_it_is_of_this_run(url, tmp_path, caplog):
    caplog.set_level("INFO")
    with pytest.raises(RunFailedError, match="the machine is gone"):
        start(tmp_path / "run", url, Failing(at=13))
    system, root, names = there(url)
    system.rm_file(f"{root}/run_id")
    for name in names:
        if name.endswith(COMPLETE):
            system.pipe_file(f"{root}/{name}", b'{"files": {}, "time": 0}')
    experiment, _ = open_run(tmp_path / "run")
    experiment.trainer.callbacks[-1].at = 99
    experiment.resume()
    assert "its config.yaml and checkpoints/step-" in caplog.text
    assert contents(url)["run_id"] == (tmp_path / "run" / "run_id").read_bytes()
    copied = {name.split("/")[1].rpartition("-")[0] for name in there(url)[2] if name.startswith("checkpoints/")}
    assert copied == {path.name for path in experiment.checkpoints.all()}


def test_a_place_that_cannot_be_reached_at_first_is_looked_at_before_anything_is_written(tmp_path, caplog):
    run = start(tmp_path / "run", None)
    (tmp_path / "remote").touch()
    with RemoteCopy(run.run, f"file://{tmp_path}/remote/run", pauses=()):
        (tmp_path / "remote").unlink()
        (tmp_path / "remote" / "run").mkdir(parents=True)
        (tmp_path / "remote" / "run" / "thesis.txt").write_text("years of work")
    assert "cannot be reached now" in caplog.text
    assert "This run is not copied" in caplog.text
    assert [path.name for path in (tmp_path / "remote" / "run").iterdir()] == ["thesis.txt"]


def test_a_store_that_fails_is_tried_again_and_a_warning_at_most(tmp_path, caplog, monkeypatch):
    """The store is a folder that is a file at first: a real error of a real file system."""
    run = start(tmp_path / "run", None)
    (tmp_path / "remote").touch()
    url = f"file://{tmp_path}/remote/run"
    with RemoteCopy(run.run, url, pauses=(0.0, 0.0)):
        pass
    assert caplog.text.count("is not up to date") == 1
    (tmp_path / "remote").unlink()
    with RemoteCopy(run.run, url, pauses=(0.0,)):
        pass
    assert fetch_run(url, tmp_path / "fetched").is_dir()


def test_another_run_is_neither_overwritten_nor_mixed_in(copy, tmp_path):
    url, _ = copy
    before = there(url)[2]
    with pytest.raises(UsageError, match="holds another run"):
        start(tmp_path / "other", url)
    assert there(url)[2] == before
    start(tmp_path / "third", None)
    with pytest.raises(UsageError, match="holds another run than"):
        fetch_run(url, tmp_path / "third")


@pytest.mark.parametrize(
    ("url", "error", "said"),
    [
        ("memory://nowhere/run", UsageError, "There is no run at memory://nowhere/run"),
        (
            "ftp://me:hunter2@127.0.0.1:9/x",
            StorageError,
            r"ftp://me:\*\*\*@127.0.0.1:9/x cannot be reached: C",
        ),
        ("nonsense://x/y", UsageError, "nonsense://x/y is not a URL that fsspec can open"),
    ],
)
def test_what_is_not_there_is_said(url, error, said, tmp_path):
    with pytest.raises(error, match=said):
        open_run(url, into=tmp_path / "x")


def test_a_package_that_is_missing_is_named(tmp_path, run_python):
    code = "import sys; sys.modules['fsspec'] = None\nfrom sonosco_like.runs.remote_copy import open_url\nopen_url('s3://a/b')"
    assert "pip install 'sonosco_like[remote]'" in run_python(code).stderr
