"""Text 002: ten positions, the demo report with predictions, experiment details, callbacks of one process only."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import torch
from seed_run import ctc_trainer
from warm import warm_python

from sonosco_like import AbstractCallback, Experiment, serializable, state
from sonosco_like.callbacks import AllPredictionsSame, EarlyStopping, TerminateOnNaN
from sonosco_like.events import Moment


@serializable
class TenPositions(AbstractCallback):
    """The ten positions of the text under our names, each noted when it is first heard."""

    heard: list[str] = state([])

    def _note(self, position: str) -> None:
        if position not in self.heard:
            self.heard.append(position)

    def on_attach(self, moment: Moment) -> None:
        self._note("train loop registration")
        self._note("multiprocess start")  # callbacks are attached in each process, when it starts

    def on_training_start(self, moment: Moment) -> None:
        self._note("train begin")

    def on_epoch_start(self, moment: Moment) -> None:
        self._note("epoch begin")

    def on_batch_start(self, moment: Moment) -> None:
        self._note("batch begin")

    def on_backward_end(self, moment: Moment) -> None:
        assert any(parameter.grad is not None for parameter in moment.context.model.parameters())
        self._note("after gradient update")

    def on_optimizer_step_end(self, moment: Moment) -> None:
        self._note("after optimizer step")

    def on_batch_end(self, moment: Moment) -> None:
        self._note("batch end")

    def on_epoch_end(self, moment: Moment) -> None:
        self._note("epoch end")

    def on_training_end(self, moment: Moment) -> None:
        self._note("train end")


def test_the_ten_positions_are_heard_in_their_order():
    ctc_trainer(positions := TenPositions()).start_training()
    assert positions.heard == [
        "train loop registration", "multiprocess start", "train begin", "epoch begin", "batch begin",
        "after gradient update", "after optimizer step", "batch end", "epoch end", "train end",
    ]  # fmt: skip


@serializable
class MyDemoTrainingReport(AbstractCallback):
    """The callback of the text, word for word what it prints."""

    def on_training_start(self, moment: Moment) -> None:
        print(f"Starting the training! Experiment started at: {moment.context.experiment.started}")

    def on_epoch_start(self, moment: Moment) -> None:
        print(f"Starting new epoch num {moment.context.epoch}")

    def on_epoch_end(self, moment: Moment) -> None:
        print("Model predictions:")
        print(moment.context.predict(moment.context.val_data_loader))

    def on_training_end(self, moment: Moment) -> None:
        print(f"End of training! Stopped at epoch {moment.context.epoch}")
        print("Model predictions:")
        print(moment.context.predict(moment.context.test_data_loader))


def test_the_demo_report_prints_predictions_on_validation_and_test_sets(tmp_path, capsys):
    callbacks = [MyDemoTrainingReport(), EarlyStopping(patience=3), TerminateOnNaN(), AllPredictionsSame()]
    experiment = Experiment(name="demo", trainer=ctc_trainer(*callbacks))
    experiment.start(tmp_path / "run")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Starting the training! Experiment started at: {experiment.run.started}"
    texts = ["Starting new epoch num 0", "Model predictions:", "Starting new epoch num 1", "Model predictions:"]
    assert [lines[1], lines[2], lines[4], lines[5]] == texts
    assert lines[7:9] == ["End of training! Stopped at epoch 2", "Model predictions:"]
    validation, test = experiment.trainer.val_data_loader, experiment.trainer.test_data_loader
    assert lines[6] == str(experiment.trainer.predict(validation))
    assert lines[9] == str(experiment.trainer.predict(test))
    assert [each.id for each in experiment.trainer.predict(test)] == ["u70-0", "u70-1", "u71-0", "u71-1"]


def test_predictions_change_nothing_of_the_training():
    def trained(*callbacks):
        trainer = ctc_trainer(*callbacks, ("epoch_end", lambda moment: None))
        trainer.start_training()
        return trainer

    plain, predicting = trained(), trained(("epoch_end", predict_everything))
    assert all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), predicting.model.parameters(), strict=True))
    assert dict(plain.performance_measures) == dict(predicting.performance_measures)


def predict_everything(moment: Moment) -> None:
    for loader in (moment.context.train_data_loader, moment.context.val_data_loader, moment.context.test_data_loader):
        assert moment.context.predict(loader)


def test_predictions_wanted_by_several_are_made_once():
    forwards = []

    def count(module, args, output):
        forwards.append(1)

    def report(moment):
        first, second = (moment.context.predict(moment.context.test_data_loader) for _ in range(2))
        assert first == second

    trainer = ctc_trainer(("epoch_end", report), epochs=1, val_data_loader=None)
    trainer.model.register_forward_hook(count)
    trainer.start_training()
    assert len(forwards) == 3 + 2  # three batches of training, two of the test set


@serializable
class KnowsItsExperiment(AbstractCallback):
    """Learns by itself where it is."""

    name: str = state("")
    place: str = state("")

    def on_attach(self, moment: Moment) -> None:
        self.name = moment.context.experiment.name
        self.place = str(moment.context.experiment.folder)


def test_a_callback_learns_name_and_folder_of_the_experiment_when_it_is_attached(tmp_path):
    Experiment(name="demo", trainer=ctc_trainer(knows := KnowsItsExperiment())).start(tmp_path / "run")
    assert (knows.name, Path(knows.place)) == ("demo", tmp_path / "run")


PROCESS = """
import sys
from pathlib import Path
import torch
from seed_run import ctc_trainer
from sonosco_like import AbstractCallback, serializable

@serializable
class Says(AbstractCallback):
    word: str = ""
    def on_training_start(self, moment):
        print(self.word, torch.distributed.get_rank(), flush=True)

rank, store = int(sys.argv[1]), Path(sys.argv[2]).as_uri()
torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
trainer = ctc_trainer(Says(word="first", ranks=[0]), Says(word="everywhere"), epochs=1)
trainer.start_training()
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


def test_a_callback_for_the_first_process_is_heard_there_only(tmp_path):
    here = Path(__file__).parent
    paths = os.pathsep.join(map(str, (here, here.parent)))
    command = [*warm_python(), "-W", "ignore", "-c", PROCESS]
    started = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")],
            env={"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    outputs = [process.communicate(timeout=600) for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert [out.split("\n")[:-1] for out, _ in outputs] == [["first 0", "everywhere 0"], ["everywhere 1"]]


def test_execution_order_is_the_order_of_the_callbacks():
    heard = []

    @serializable
    class Ordered(AbstractCallback):
        name: str = ""

        def on_epoch_start(self, moment: Moment) -> None:
            heard.append(self.name)

    callbacks = [Ordered(name="late", order=5), Ordered(name="early", order=-5), Ordered(name="between")]
    ctc_trainer(*callbacks, epochs=1).start_training()
    assert heard == ["early", "between", "late"]
