"""What is wrong with a run is said before its first batch, by `train` and by `check`, and costs nothing."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

import pytest
import torch
import yaml
from tiny import Net, Sums, make_trainer, squared_error, tiny_config
from torch import nn

from sonosco_like.cli import run
from sonosco_like.data.manifest import Manifest
from sonosco_like.data.normalization import GlobalNormalization
from sonosco_like.errors import UsageError
from sonosco_like.losses import CTCLoss
from sonosco_like.optim import AdamW, LinearLR, SequentialLR, StepLR
from sonosco_like.records import Batch, Output
from sonosco_like.training import ModelTrainer, read_experiment

sys.path.insert(0, str(Path(__file__).parent))
import matrix_parts

pytestmark = pytest.mark.usefixtures("elsewhere")

VAL, TEST = "trainer.val_data_loader", "trainer.test_data_loader"


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder of its own to run in; the logging of the process as it was before."""
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


@pytest.fixture
def config(tmp_path):
    """A config with real audio, of one epoch, and with all three sets of data."""
    matrix_parts.make_corpus(tmp_path / "noise")
    content = yaml.safe_load(matrix_parts.config_text(tmp_path / "noise", "deepspeech2"))
    trainer = content["trainer"]
    trainer["epochs"] = 1
    trainer["callbacks"] = [{"class": "MetricsFile"}]
    trainer["test_data_loader"] = trainer["val_data_loader"]
    path = tmp_path / "config.yaml"
    path.write_text(yaml.dump(content, Dumper=_WithoutAliases))
    return path


class _WithoutAliases(yaml.SafeDumper):
    def ignore_aliases(self, data):
        return True


def refused(capsys, config: Path, *overrides: str, imports: str = "matrix_parts") -> list[str]:
    """What `check` and `train` say of a config that neither takes; the folder is free for the corrected one."""
    sets = [part for override in overrides for part in ("--set", override)]
    said = []
    for command in (["check"], ["train", "--run-dir", "run"]):
        assert run([*command, "--config", str(config), "--import", imports, *sets]) == 2, command
        said.append(capsys.readouterr().err)
    assert not Path("run/config.yaml").exists()
    metrics = Path("run/metrics.jsonl")
    assert not metrics.exists() or metrics.read_text() == ""
    return said


def test_a_model_with_more_outputs_than_labels_is_refused_before_its_first_validation(config, capsys):
    for said in refused(capsys, config, "trainer.model.vocabulary_size=9"):
        assert re.search(rf"{config}:\d+\), but the model", said)
        assert (
            "), but the model writes 9 (--set "
            "trainer.model.vocabulary_size): leave `model.vocabulary_size` out, or set it to 7."
        ) in said


def test_a_model_for_other_features_than_those_of_the_data_is_refused_before_a_batch_is_tried(config, capsys):
    for said in refused(capsys, config, "trainer.model.features=9"):
        assert "but the model takes 9 (--set trainer.model.features): leave `model.features` out, or set it to " in said


def test_more_loader_workers_than_any_machine_has_are_refused(config, capsys):
    for said in refused(capsys, config, "trainer.train_data_loader.num_workers=100000"):
        assert "`num_workers` must be at most 1024, each is a process; got 100000." in said


@pytest.mark.parametrize("size", [5, 6])
def test_a_model_with_fewer_outputs_than_labels_is_refused_before_a_batch_is_tried(size, config, capsys, monkeypatch):
    monkeypatch.setattr(CTCLoss, "__call__", lambda *_: pytest.fail("a loss was computed"))
    for said in refused(capsys, config, f"trainer.model.vocabulary_size={size}"):
        assert f"but the model writes {size} (--set trainer.model.vocabulary_size): leave `model.vocab" in said


def test_a_validation_set_with_more_labels_than_the_model_is_refused(config, capsys):
    for said in refused(capsys, config, f"{VAL}.dataset.tokenizer.characters='abcd '"):
        assert "The tokenizer has 9 labels, but the model writes 7" in said


@pytest.mark.parametrize("label", [6, 1_000_000, -1])
def test_ctc_refuses_a_label_that_the_model_does_not_have_instead_of_reading_other_memory(label):
    batch = Batch(
        features_BTF=torch.zeros(2, 1, 1),
        feature_lengths_B=torch.ones(2, dtype=torch.int64),
        labels_BU=torch.tensor([[5, 0], [4, label]]),
        label_lengths_B=torch.tensor([1, 2]),
        ids=["first", "second"],
    )
    output = Output(torch.zeros(2, 4, 1), torch.tensor([4, 4]), ctc_logits_BSV=torch.zeros(2, 4, 6))
    with pytest.raises(UsageError, match=f"Utterance second has the label {label}, but the model writes 6 labels"):
        CTCLoss()(output, batch)
    batch.label_lengths_B = torch.tensor([1, 1])  # then it is padding, whatever it is
    assert torch.isfinite(CTCLoss()(output, batch))


@pytest.mark.parametrize("loader", [VAL, TEST])
@pytest.mark.parametrize(
    ("content", "reason"), [(None, "does not exist"), ("", "odd.jsonl"), ('{"text": "a b"}\n', "audio_filepath")]
)
def test_a_manifest_that_cannot_be_used_is_found_before_the_first_batch(loader, content, reason, config, capsys):
    if content is not None:
        Path("odd.jsonl").write_text(content)
    for said in refused(capsys, config, f"{loader}.dataset.manifest=odd.jsonl"):
        assert "odd.jsonl" in said
        assert reason in said


def test_each_manifest_is_read_once_and_statistics_are_those_of_the_training_data(config, monkeypatch):
    read, fitted = [], []
    original = Manifest.read
    monkeypatch.setattr(Manifest, "read", lambda path: read.append(Path(path).name) or original(path))
    fit = GlobalNormalization.fit
    monkeypatch.setattr(GlobalNormalization, "fit", lambda self, some: fitted.append(self) or fit(self, some))
    own = "_data_loader.dataset.normalization={class: GlobalNormalization}"  # test data is read, but not measured
    sets = [f"trainer.{name}{own}" for name in ("train", "test")]
    experiment = read_experiment(config, sets)
    experiment.start("run")
    assert sorted(read) == ["train.jsonl", "val.jsonl", "val.jsonl"]  # the last one as test data
    assert fitted == [experiment.trainer.train_data_loader.dataset.normalization]


def test_a_mapping_in_the_place_of_a_loader_is_refused(config, capsys):
    for said in refused(capsys, config, f"{TEST}={{dataset: {{manifest: x.jsonl}}}}"):
        assert "The test data is a mapping and no loader: it lacks `class: AudioDataLoader`." in said
    for said in refused(capsys, config, f"{VAL}={{dataset: {{manifest: x.jsonl}}}}"):
        assert "The val dataset data is a mapping and no loader" in said


def test_a_path_in_the_place_of_a_loader_is_refused(config, capsys):
    for said in refused(capsys, config, f"{VAL}=val.jsonl"):
        assert "The val data is 'val.jsonl' and no loader: give an AudioDataLoader" in said


def test_a_trainer_without_training_data_is_refused(config, capsys):
    for said in refused(capsys, config, "trainer.train_data_loader=null"):
        assert "There is no train data: the trainer needs a `train_data_loader`." in said


def test_plain_lists_of_batches_are_data_as_before():
    batches = list(Sums())
    trainer = make_trainer(train_data_loader=batches, val_data_loader={"a": batches, "b": batches}, epochs=1)
    trainer.start_training()
    assert trainer.global_step == len(batches)
    assert {"val_a_loss", "val_b_loss"} <= set(trainer.performance_measures)


def test_what_cannot_be_saved_is_one_warning_at_the_start(caplog):
    callbacks = [("batch_end", lambda moment: None) for _ in range(100)]
    with caplog.at_level(logging.WARNING):
        ModelTrainer(nn.Linear(4, 1), squared_error, 1, list(Sums()), callbacks=callbacks).start_training()
    (said,) = [record.getMessage() for record in caplog.records if "cannot be saved" in record.getMessage()]
    assert said.startswith("This trainer cannot be saved, so checkpoints will be refused: ")
    assert said.count("; ") == 2, "three are named"
    assert said.endswith(" and 98 more")


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("trainer.optimizer.lr=-1", "The optimizer AdamW cannot be built from its settings: Invalid learning rate: -1"),
        ("trainer.optimizer.betas=[2, 0.9]", "The optimizer AdamW cannot be built from its settings: Invalid beta"),
        ("trainer.scheduler={class: LinearLR, start_factor: 7}", "The scheduler LinearLR cannot be built from its "),
        ("trainer.scheduler={class: OneCycleLR, max_lr: 1}", "The scheduler OneCycleLR cannot be built from its "),
    ],
)
def test_settings_that_torch_refuses_are_a_problem_and_not_a_failed_run(override, reason, tmp_path, capsys):
    (tmp_path / "tiny.yaml").write_text(tiny_config(""))
    for said in refused(capsys, tmp_path / "tiny.yaml", override, imports="tiny"):
        assert reason in said
        assert "should not have happened" not in said


def test_of_schedules_within_a_schedule_the_wrong_one_is_named():
    optimizer = AdamW().build(Net().parameters())
    sequence = SequentialLR(schedulers=[LinearLR(start_factor=7.0), StepLR(step_size=3)], milestones=[5])
    with pytest.raises(UsageError, match=r"^The scheduler LinearLR cannot be built from its settings: Starting"):
        sequence.build(optimizer)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"optimizer": torch.optim.Adam}, "`optimizer` must be an optimizer .*, got the class Adam"),
        ({"optimizer": AdamW}, "`optimizer` must be an optimizer .*, got the class AdamW"),
        ({"optimizer": "AdamW"}, "`optimizer` must be an optimizer .*, got 'AdamW'"),
        ({"model": None}, "`model` must be a torch.nn.Module, got None"),
        ({"model": Net}, "`model` must be a torch.nn.Module, got the class Net"),
    ],
)
def test_what_is_no_model_or_no_optimizer_is_refused_in_words(fields, said):
    with pytest.raises(UsageError, match=said):
        make_trainer(**fields).start_training()


@pytest.mark.parametrize("minutes", ["2", "2.0", "2e0"])
def test_the_command_that_began_a_run_continues_it_however_its_numbers_are_written(minutes, tmp_path, capsys):
    (tmp_path / "tiny.yaml").write_text(
        tiny_config("  callbacks: [{class: ModelCheckpoint, every: 3ba}]\n", epochs=1)
        + "corpus: {class: SyntheticCorpus, folder: corpus, minutes: 0.05}\n"
    )
    command = ["train", "--config", "tiny.yaml", "--run-dir", "run", "--import", "tiny"]
    first = [*command, "--set", "corpus.minutes=2"]
    assert run(first) == 0
    assert run([*command, "--set", f"corpus.minutes={minutes}", "--set", "seed=0x7", "--resume", "auto"]) == 0
    assert run([*command, "--set", "corpus.minutes=3", "--resume", "auto"]) == 2
    assert "corpus.minutes: the number 2.0 -> the number 3.0" in capsys.readouterr().err
