"""Which of our events is meant by the name another system has for it: `eval_step_end` is `validation_batch_end`.

A name is read word by word. One with a word that nobody uses for a point of a loop is taken for a misspelling.
"""

from __future__ import annotations

from collections.abc import Collection

from sonosco_like.errors import did_you_mean

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
