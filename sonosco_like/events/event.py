"""Every point of a run at which a callback may be heard."""

from __future__ import annotations

from enum import Enum


class Event(str, Enum):
    """The points of a run, in the order of this loop. A stage is a method of the trainer; it has a start and an end.

    ```
    init                                       heard by the trainer's own hooks only
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
            checkpoint_start .. checkpoint_end when somebody asks for one
        epoch_end
    training_end
    close()                                    a method, called always and once
    ```

    | the run | starts | ends | `error` | `close()` |
    |---|---|---|---|---|
    | goes to its end | all | all | - | yes |
    | is stopped (`raise Stop`, `stop_training()`) | all so far | of every stage under way | - | yes |
    | fails | all so far | of the stages that were done | yes | yes |

    Every listener hears an event before a Stop or an error of one of them takes effect.

    `log` carries named values to whoever writes them down. `error` comes when an exception ends the run.
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
