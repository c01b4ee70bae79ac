"""Text 003: `pre-` and `post-` functions on every building block, and the order in which inherited ones are heard."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import pytest
import soundfile
import torch
from seed_run import ctc_trainer
from tiny_speech import Utterances, make_batch

from sonosco_like import ModelTrainer, load, save, serializable
from sonosco_like.data import AudioDataLoader, AudioDataset, BucketSampler, write_manifest
from sonosco_like.data.features import LogMel
from sonosco_like.data.text import Alphabet
from sonosco_like.errors import UsageError
from sonosco_like.records import Utterance

logger = logging.getLogger(__name__)


def pre_init_callback(self):
    logger.info(f"{self.__class__.__name__} initializing")


def test_a_function_can_be_heard_before_and_after_the_object_is_initialized(caplog):
    done = []

    class Announced(ModelTrainer):
        class_callbacks: ClassVar[list[Any]] = [
            ("pre-init", pre_init_callback),
            ("post-init", lambda self: done.append(self.global_step)),
        ]

    with caplog.at_level(logging.INFO):
        ctc_trainer(cls=Announced)
    assert caplog.messages == ["Announced initializing"]
    assert done == [0]


def test_pre_functions_take_no_arguments_or_some(capsys):
    def pre_loss_callback_1(self):
        print("Loss callback triggered")

    def pre_loss_callback_2(self, batch):
        print(f"Loss callback triggered with batch {batch.ids}")
        return batch

    pairs = [("pre-loss", pre_loss_callback_1), ("pre-loss", pre_loss_callback_2)]
    ctc_trainer(*pairs, epochs=1, train_data_loader=Utterances(batches=1)).start_training()
    assert capsys.readouterr().out.splitlines() == [
        "Loss callback triggered",
        "Loss callback triggered with batch ['u0-0', 'u0-1']",
    ]


def test_post_functions_take_and_replace_the_return_value():
    def post_loss_callback(self, return_value):
        return 2 * return_value

    def loss_of_the_first_batch(*callbacks):
        trainer = ctc_trainer(*callbacks, max_duration="1ba")
        trainer.start_training()
        return trainer.performance_measures["loss"]

    assert loss_of_the_first_batch(("post-loss", post_loss_callback)) == pytest.approx(2 * loss_of_the_first_batch())


def test_pre_step_functions_replace_the_batch():
    seen = []

    def pre_step_callback(self, batch):
        seen.append(batch.ids[0])
        return make_batch(99)

    look = ("pre-forward", lambda self, batch: seen.append(batch.ids[0]))
    ctc_trainer(("pre-batch", pre_step_callback), look, epochs=1).start_training()
    assert seen == ["u0-0", "u99-0", "u1-0", "u99-0", "u2-0", "u99-0"]


class TrainerA(ModelTrainer):
    """The parent of the text's example, word for word."""

    name = "trainer_a"

    def post_epoch_callback(self):
        print("Trainer A post epoch callback")


class TrainerB(TrainerA):
    """The child: a list, and a method of the same name."""

    name = "trainer_b"

    callbacks = [("post-epoch", lambda self: print("Trainer B post epoch callback 1"))]  # noqa: RUF012

    def post_epoch_callback(self):
        print("Trainer B post epoch callback 2")


class OurTrainerA(ModelTrainer):
    """The same under our names."""

    def on_epoch_end(self, moment):
        print("Trainer A post epoch callback")


class OurTrainerB(OurTrainerA):
    """Its child."""

    class_callbacks: ClassVar[list[Any]] = [("epoch_end", lambda self: print("Trainer B post epoch callback 1"))]

    def on_epoch_end(self, moment):
        print("Trainer B post epoch callback 2")


PRINTED = """\
Trainer A post epoch callback
Trainer B post epoch callback 1
Trainer B post epoch callback 2
"""


@pytest.mark.parametrize("cls", [TrainerB, OurTrainerB])
def test_inherited_callbacks_are_heard_in_the_order_the_text_prints(cls, capsys):
    ctc_trainer(cls=cls, epochs=1).start_training()
    assert capsys.readouterr().out == PRINTED


def pre_step_callback(self, batch):
    print(f"Step callback triggered with batch {batch.ids}")
    return make_batch(99)


class Listing(ModelTrainer):
    """The text's pre-step callback in the list of the class."""

    name = "my_trainer"
    callbacks = [("pre-step", pre_step_callback)]  # noqa: RUF012


class Defining(ModelTrainer):
    """The equivalent callback as a method."""

    name = "my_trainer"

    def pre_step_callback(self, batch):
        print(f"Step callback triggered with batch {batch.ids}")
        return make_batch(99)


@serializable
class SerializableListing(ModelTrainer):
    """The list in a class that is saved by its name."""

    callbacks = [("pre-step", pre_step_callback)]  # noqa: RUF012


@serializable
class Annotated(ModelTrainer):
    """The list with a type."""

    callbacks: ClassVar[list[Any]] = [("pre-step", pre_step_callback)]


@pytest.mark.parametrize("cls", [Listing, Defining, SerializableListing, Annotated])
def test_a_callback_in_the_class_as_the_text_writes_it_replaces_the_batch(cls, capsys):
    seen = []
    look = ("pre-forward", lambda self, batch: seen.append(batch.ids[0]))
    trainer = ctc_trainer(look, cls=cls, epochs=1, train_data_loader=Utterances(batches=2))
    trainer.start_training()
    said = "Step callback triggered with batch"
    assert capsys.readouterr().out.splitlines() == [f"{said} ['u0-0', 'u0-1']", f"{said} ['u1-0', 'u1-1']"]
    assert seen == ["u99-0", "u99-0"]
    assert trainer.callbacks == [look]  # those of the instance are an argument as before


def test_the_list_of_a_serializable_trainer_survives_a_save(tmp_path, capsys):
    save(ctc_trainer(cls=SerializableListing, epochs=1), tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.callbacks == []
    again.start_training()
    assert capsys.readouterr().out.count("Step callback triggered") == 3


def test_a_callback_of_the_instance_comes_last_and_the_parent_is_left_alone(capsys):
    trainer = ctc_trainer(cls=TrainerB, epochs=1)
    trainer.callbacks.append(("post-epoch", lambda self: print("instance")))
    trainer.start_training()
    assert capsys.readouterr().out == PRINTED + "instance\n"
    ctc_trainer(cls=TrainerA, epochs=1).start_training()
    assert capsys.readouterr().out == "Trainer A post epoch callback\n"


def test_a_pre_init_function_on_an_instance_is_refused_with_the_way_that_works():
    trainer = ctc_trainer()
    trainer.callbacks.append(("pre-init", pre_init_callback))
    with pytest.raises(UsageError, match=r"The function at 'pre-init' would never be called.*Use 'attach' instead, or"):
        trainer.start_training()


STAGES = {  # blocks of the text -> our stages, each with an argument that a function may take and hand back
    "trainer": {
        "training": None, "epoch": "epoch", "batch": "batch", "forward": "batch", "loss": "output", "backward": "loss",
        "optimizer_step": None, "validation": "loader", "validation_batch": "batch",
    },
    "data": {
        "load_data": "dataset", "process_data": "dataset", "split_data": "rows", "create_loader": "loader",
        "build_data": "loader", "fetch": "batches",
    },
    "model": {"build_model": "model"},
    "optimizer": {"build_optimizer": "parameters"},
    "scheduler": {"build_scheduler": "optimizer"},
    "tokenizer": {"build_tokenizer": None, "prediction": "output"},
}  # fmt: skip
BLOCKS = [(stage, argument) for stages in STAGES.values() for stage, argument in stages.items()]


@pytest.mark.parametrize(("stage", "argument"), BLOCKS, ids=[stage for stage, _ in BLOCKS])
def test_every_building_block_has_pre_and_post_functions(stage, argument, tmp_path):
    heard = []
    pairs = [
        (f"pre-{stage}", lambda self: heard.append("pre")),
        (f"pre-{stage}", taking(argument, heard)),
        (f"post-{stage}", lambda self, return_value: heard.append("post") or return_value),
    ]
    own_data = {"val_data_loader": recordings(tmp_path)} if stage in ("load_data", "process_data", "split_data") else {}
    ctc_trainer(*pairs, **own_data).start_training()
    assert heard[:2] == ["pre", argument]
    assert heard.count("post") == heard.count("pre") == heard.count(argument) > 0


def recordings(folder):
    """A loader of our own with two recordings in a manifest."""
    for name in ("a", "b"):
        soundfile.write(folder / f"{name}.wav", torch.randn(3200).numpy() * 0.1, 16000)
    rows = [Utterance(name, f"{folder}/{name}.wav", 0.2, name) for name in ("a", "b")]
    dataset = AudioDataset(
        manifest=write_manifest(folder / "two.jsonl", rows),
        features=LogMel(mels=6),
        tokenizer=Alphabet(characters="ab "),
    )
    return AudioDataLoader(dataset=dataset, sampler=BucketSampler(batch_size=2))


def taking(argument, heard):
    """A function that takes an argument by its name, and hands it back."""
    if argument is None:
        return lambda self: heard.append(None)
    scope: dict[str, Any] = {"heard": heard}
    exec(f"def look(self, {argument}):\n    heard.append({argument!r})\n    return {argument}", scope)
    return scope["look"]


def test_a_model_can_be_replaced_after_it_was_built():
    halved = []

    def halve(self, return_value):
        with torch.no_grad():
            for parameter in return_value.parameters():
                parameter.mul_(0.5)
        halved.append(next(return_value.parameters()).clone())
        return return_value

    before = next(ctc_trainer().model.parameters()).clone()
    ctc_trainer(("post-build_model", halve), epochs=1).start_training()
    assert torch.equal(halved[0], before / 2)


def test_parameters_and_optimizer_can_be_replaced():
    def only_two(self, parameters):
        return list(parameters)[:2]

    def faster(self, return_value):
        return_value.param_groups[0]["lr"] = 0.5
        return return_value

    trainer = ctc_trainer(("pre-build_optimizer", only_two), ("post-build_optimizer", faster), scheduler=None)
    trainer.start_training()
    assert len(trainer.optimizer.param_groups[0]["params"]) == 2
    assert trainer.optimizer.param_groups[0]["lr"] == 0.5


def test_a_scheduler_can_be_replaced():
    def constant(self, return_value):
        return torch.optim.lr_scheduler.ConstantLR(self.optimizer, factor=1.0)

    trainer = ctc_trainer(("post-build_scheduler", constant))
    trainer.start_training()
    assert type(trainer.scheduler) is torch.optim.lr_scheduler.ConstantLR


def test_data_can_be_replaced_before_and_after_it_is_prepared():
    names = []

    def smaller(self, name, loader):
        names.append(name)
        return name, Utterances(batches=1) if name == "train" else loader

    trainer = ctc_trainer(("pre-build_data", smaller))
    trainer.start_training()
    assert names == ["train", "val", "test"]
    assert trainer.global_step == 2  # one batch in each of two epochs


def test_a_tokenizer_can_be_replaced():
    def capitals(self, return_value):
        return Alphabet(characters="AB ")

    trainer = ctc_trainer(("post-build_tokenizer", capitals), epochs=1)
    trainer.start_training()
    heard = "".join(each.hypothesis for each in trainer.predict(trainer.train_data_loader))
    assert heard
    assert heard == heard.upper()
    assert trainer.vocabulary.characters == "AB "


@serializable
def elsewhere(self, path):
    return path.with_name("elsewhere")


@serializable
def say_where(self, return_value):
    print("saved", return_value.name)
    return return_value


@serializable
def save_after_epoch(moment):
    moment.context.save_checkpoint(moment.context.place / "here")


def test_a_checkpoint_goes_where_a_function_says_and_functions_are_saved_with_it(tmp_path, capsys):
    trainer = ctc_trainer(
        ("pre-checkpoint", elsewhere), ("post-checkpoint", say_where), ("epoch_end", save_after_epoch), epochs=1
    )
    trainer.place = tmp_path
    trainer.start_training()
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]
    assert capsys.readouterr().out == "saved elsewhere\n"
    assert load(tmp_path / "elsewhere").callbacks == trainer.callbacks


def test_a_function_that_takes_what_the_method_does_not_have_is_refused_before_the_first_batch():
    with pytest.raises(UsageError, match="takes 'batches', but the stage 'loss' has output, batch"):
        ctc_trainer(("pre-loss", lambda self, batches: batches)).start_training()
