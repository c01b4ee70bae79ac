"""The events of a run, and which of them another system means: `eval_step_end` is our `validation_batch_end`.

A name of another system is read word by word. A name with a word that no system uses for a point of its loop is taken
for a misspelling.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from sonosco_like.errors import did_you_mean


class Event(str, Enum):
    """The points of a run, in the order of this loop. A stage is a method of the trainer; it has a start and an end.

    ```
    init                                       only the trainer's own hooks are called
    build_model, build_optimizer,
    build_scheduler                            _start and _end, as all that follow
    attach                                     the callback learns whom it listens to
    build_data                                 for each loader by its name: train, val, test
        load_data                              its manifest is read; this and two more of our own datasets only
        process_data                           utterances of a wrong length are left out
        split_data                             it keeps its part of the manifest, or all
    create_loader                              for each: of several processes each gets its share
    build_tokenizer
    training_start
        epoch_start
            fetch_start .. fetch_end           the next batch is awaited
            batch_start
                forward_start .. forward_end
                loss_start .. loss_end
                backward_start .. backward_end
                optimizer_step_start .. _end   every `accumulate_gradients` batches, in it
                    clip_gradients_start .. _end       before and after they are limited
                validation_start .. _end       every `test_step` batches, with one
                    validation_batch_start .. _end     for each batch
                    prediction_start .. _end           where something is decoded
            batch_end                          here `callback(epoch, step, performance_measures, context)`
            checkpoint_start .. checkpoint_end when one was asked for
        epoch_end
    training_end
    close()                                    a method, called always and once
    ```

    | the run | starts | ends | `error` | `close()` |
    |---|---|---|---|---|
    | goes to its end | all | all | - | yes |
    | is stopped (`raise Stop`, `stop_training()`) | all so far | of every stage under way | - | yes |
    | fails | all so far | of the stages that were done | yes | yes |

    Every listener is called for an event before a Stop or an error of one of them takes effect.

    `log` carries named values to the callbacks that write them. `error` comes when an exception ends the run.
    """

    INIT_START = "init_start"
    INIT_END = "init_end"
    ATTACH = "attach"
    BUILD_MODEL_START = "build_model_start"
    BUILD_MODEL_END = "build_model_end"
    BUILD_OPTIMIZER_START = "build_optimizer_start"
    BUILD_OPTIMIZER_END = "build_optimizer_end"
    BUILD_SCHEDULER_START = "build_scheduler_start"
    BUILD_SCHEDULER_END = "build_scheduler_end"
    BUILD_DATA_START = "build_data_start"
    LOAD_DATA_START = "load_data_start"
    LOAD_DATA_END = "load_data_end"
    PROCESS_DATA_START = "process_data_start"
    PROCESS_DATA_END = "process_data_end"
    SPLIT_DATA_START = "split_data_start"
    SPLIT_DATA_END = "split_data_end"
    BUILD_DATA_END = "build_data_end"
    CREATE_LOADER_START = "create_loader_start"
    CREATE_LOADER_END = "create_loader_end"
    BUILD_TOKENIZER_START = "build_tokenizer_start"
    BUILD_TOKENIZER_END = "build_tokenizer_end"
    TRAINING_START = "training_start"
    EPOCH_START = "epoch_start"
    FETCH_START = "fetch_start"
    FETCH_END = "fetch_end"
    BATCH_START = "batch_start"
    FORWARD_START = "forward_start"
    FORWARD_END = "forward_end"
    LOSS_START = "loss_start"
    LOSS_END = "loss_end"
    BACKWARD_START = "backward_start"
    BACKWARD_END = "backward_end"
    OPTIMIZER_STEP_START = "optimizer_step_start"
    CLIP_GRADIENTS_START = "clip_gradients_start"
    CLIP_GRADIENTS_END = "clip_gradients_end"
    OPTIMIZER_STEP_END = "optimizer_step_end"
    VALIDATION_START = "validation_start"
    VALIDATION_BATCH_START = "validation_batch_start"
    VALIDATION_BATCH_END = "validation_batch_end"
    PREDICTION_START = "prediction_start"
    PREDICTION_END = "prediction_end"
    VALIDATION_END = "validation_end"
    BATCH_END = "batch_end"
    CHECKPOINT_START = "checkpoint_start"
    CHECKPOINT_END = "checkpoint_end"
    EPOCH_END = "epoch_end"
    TRAINING_END = "training_end"
    LOG = "log"
    ERROR = "error"


_WORDS = {  # our word: what others say
    "start": "start begin beginning before pre",
    "end": "end after post finish finished done",
    "validation": "validation validate val valid eval evaluate evaluation test",
    "batch": "batch step iteration iter minibatch substep",
    "training": "training train run fit loop",
    "fetch": "fetch dataloader loader",
    "forward": "forward model",
    "loss": "loss criterion objective",
    "backward": "backward backprop",
    "optimizer": "optimizer optimiser optim",
    "gradients": "gradients gradient grads grad update",
    "clip": "clip clipping",
    "prediction": "prediction predictions predict",
    "checkpoint": "checkpoint save saving",
    "epoch": "epoch",
    "error": "error exception failure",
    "stop": "stop",
    "attach": "attach init setup registration register multiprocess load",
    "log": "log logging",
    "build": "build create make configure",
    "scheduler": "scheduler schedulers",
    "tokenizer": "tokenizer",
    "": "on all standalone optimizers zero",  # words that add nothing
}
_MEANING = {word: ours for ours, theirs in _WORDS.items() for word in theirs.split()}
_STAGES = [  # the words that make a stage; the first line that fits is taken
    ({"stop", "error"}, "training"),
    ({"error"}, "error"),
    ({"build", "forward"}, "build_model"),
    ({"build", "optimizer"}, "build_optimizer"),
    ({"build", "scheduler"}, "build_scheduler"),
    ({"build", "tokenizer"}, "build_tokenizer"),
    ({"build", "fetch"}, "create_loader"),
    ({"attach"}, "attach"),
    ({"log"}, "log"),
    ({"fetch"}, "fetch"),
    ({"checkpoint"}, "checkpoint"),
    ({"validation", "prediction"}, "prediction"),
    ({"validation", "batch"}, "validation_batch"),
    ({"validation", "forward"}, "validation_batch"),
    ({"validation"}, "validation"),
    ({"prediction"}, "prediction"),
    ({"forward"}, "forward"),
    ({"loss"}, "loss"),
    ({"backward"}, "backward"),
    ({"clip"}, "clip_gradients"),
    ({"optimizer"}, "optimizer_step"),
    ({"gradients"}, "backward"),
    ({"epoch"}, "epoch"),
    ({"batch"}, "batch"),
    ({"training"}, "training"),
]
_OF_THEIR_OWN = {  # where the words of a system say less than its loop does
    "after_train_batch": "optimizer_step_end",
    "eval_after_forward": "prediction_start",
    "after_batch_prediction": "forward_end",
    "before_zero_grad": "optimizer_step_end",
}
STAGES_OF_OTHERS = {  # what ArcticTraining's methods, named in `pre-<method>`, are here
    "train": "training",
    "step": "batch",
    "evaluate": "validation",
    "save": "checkpoint",
    "load": "load_data",
    "process": "process_data",
    "split": "split_data",
    "create_dataloader": "create_loader",
    "create_model": "build_model",
    "create_optimizer": "build_optimizer",
    "create_scheduler": "build_scheduler",
    "create_tokenizer": "build_tokenizer",
}


def near_event(name: str, events: Collection[str]) -> str:
    """A remedy to append to a message: the event of the same meaning, else the one of the most similar spelling."""
    meant = meant_event(name, events)
    return f"; did you mean {meant!r}?" if meant is not None else did_you_mean(name, events)


def meant_event(name: str, events: Collection[str]) -> str | None:
    """The event that a name of another system means, or None if it has a word that says nothing."""
    name = name.casefold().replace("-", "_").removeprefix("on_")
    words = name.split("_")
    if name in _OF_THEIR_OWN:
        return _OF_THEIR_OWN[name] if _OF_THEIR_OWN[name] in events else None
    if any(word not in _MEANING for word in words):
        return None
    meaning = {_MEANING[word] for word in words}
    stage = next((ours for needed, ours in _STAGES if needed <= meaning), "")
    found = [stage, f"{stage}_start" if "start" in meaning else f"{stage}_end"]
    return next((event for event in found if event in events), None)
