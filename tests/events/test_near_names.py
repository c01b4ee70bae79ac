"""The hooks of other systems lead to ours of the same meaning; a misspelling leads to what is spelt alike."""

from __future__ import annotations

import pytest
from tiny import short_trainer

from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Event, known_events
from sonosco_like.events.event import STAGES_OF_OTHERS, near_event
from sonosco_like.training import ModelTrainer

EVENTS = known_events(ModelTrainer)

PYTORCH_ACCELERATED = {
    "training_run_start": "training_start",
    "train_epoch_start": "epoch_start",
    "train_step_start": "batch_start",
    "train_step_end": "batch_end",
    "train_epoch_end": "epoch_end",
    "eval_epoch_start": "validation_start",
    "eval_step_start": "validation_batch_start",
    "eval_step_end": "validation_batch_end",
    "eval_epoch_end": "validation_end",
    "evaluation_run_start": "validation_start",
    "evaluation_run_end": "validation_end",
    "training_run_end": "training_end",
    "training_run_epoch_end": "epoch_end",
    "stop_training_error": "training_end",
}
AITOOLBOX = {
    "train_begin": "training_start",
    "epoch_begin": "epoch_start",
    "batch_begin": "batch_start",
    "after_gradient_update": "backward_end",
    "after_optimizer_step": "optimizer_step_end",
    "after_batch_prediction": "forward_end",
    "train_end": "training_end",
    "train_loop_registration": "attach",
    "multiprocess_start": "attach",
}
COMPOSER = {
    "init": "attach",
    "before_load": "attach",
    "after_load": "attach",
    "fit_start": "training_start",
    "before_dataloader": "fetch_start",
    "after_dataloader": "fetch_end",
    "before_train_batch": "batch_start",
    "before_forward": "forward_start",
    "after_forward": "forward_end",
    "before_loss": "loss_start",
    "after_loss": "loss_end",
    "before_backward": "backward_start",
    "after_backward": "backward_end",
    "after_train_batch": "optimizer_step_end",
    "batch_checkpoint": "checkpoint_end",
    "epoch_checkpoint": "checkpoint_end",
    "iteration_start": "batch_start",
    "eval_before_all": "validation_start",
    "eval_start": "validation_start",
    "eval_batch_start": "validation_batch_start",
    "eval_before_forward": "validation_batch_start",
    "eval_after_forward": "prediction_start",
    "eval_batch_end": "validation_batch_end",
    "eval_end": "validation_end",
    "eval_after_all": "validation_end",
    "eval_standalone_start": "validation_start",
    "predict_start": "prediction_start",
    "predict_batch_end": "prediction_end",
    "fit_end": "training_end",
}
LIGHTNING_AND_OTHERS = {
    "train_start": "training_start",
    "train_batch_start": "batch_start",
    "train_batch_end": "batch_end",
    "validation_epoch_end": "validation_end",
    "validation_step_end": "validation_batch_end",
    "before_optimizer_step": "optimizer_step_start",
    "before_zero_grad": "optimizer_step_end",
    "save_checkpoint": "checkpoint_end",
    "exception": "error",
    "setup": "attach",
    "step_begin": "batch_start",
    "substep_end": "batch_end",
    "evaluate": "validation_end",
    "save": "checkpoint_end",
    "predict": "prediction_end",
    "iteration_completed": None,
}
ALL = {**PYTORCH_ACCELERATED, **AITOOLBOX, **COMPOSER, **LIGHTNING_AND_OTHERS}


@pytest.mark.parametrize(("name", "ours"), [(name, ours) for name, ours in ALL.items() if ours is not None])
def test_a_hook_of_another_system_leads_to_ours_of_the_same_meaning(name, ours):
    assert near_event(name, EVENTS) == f"; did you mean {ours!r}?"


def test_the_message_of_an_attached_callback_says_so():
    class Foreign(AbstractCallback):
        def on_eval_step_end(self, trainer, batch, batch_output, **kwargs):
            pass

    with pytest.raises(UsageError, match=r"there is no event 'eval_step_end'; did you mean 'validation_batch_end'\?"):
        short_trainer(Foreign()).start_training()


@pytest.mark.parametrize(("name", "ours"), STAGES_OF_OTHERS.items())
def test_the_methods_of_arctictraining_name_stages_of_ours(name, ours):
    short_trainer((f"pre-{name}", lambda self: None), (f"post-{name}", lambda self: None)).start_training()
    assert {f"{ours}_start", f"{ours}_end"} <= EVENTS


@pytest.mark.parametrize(
    ("name", "ours"), [("epoch_ende", "epoch_end"), ("validaton_end", "validation_end"), ("batch_strat", "batch_start")]
)
def test_a_misspelling_leads_to_what_is_spelt_alike(name, ours):
    assert near_event(name, EVENTS) == f"; did you mean {ours!r}?"


def test_nothing_is_suggested_that_the_host_does_not_have():
    assert near_event("eval_step_end", {"outer_start"}) == ""


def test_every_event_of_ours_is_known():
    assert {event.value for event in Event} <= EVENTS
