"""The settings of optimizers and learning-rate schedules; torch's objects are built when there are parameters."""

from sonosco_like.optim.optimizers import (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    Optimizer,
    ParameterGroup,
    RAdam,
    RMSprop,
    Rprop,
)  # fmt: skip
from sonosco_like.optim.schedulers import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    Noam,
    OneCycleLR,
    PolynomialLR,
    Schedule,
    Scheduler,
    SequentialLR,
    StepLR,
    WarmupHoldDecay,
)  # fmt: skip

__all__ = [
    "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ChainedScheduler", "ConstantLR", "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "NAdam", "Noam", "OneCycleLR", "Optimizer", "ParameterGroup", "PolynomialLR",
    "RAdam", "RMSprop", "Rprop", "Schedule", "Scheduler", "SequentialLR", "StepLR", "WarmupHoldDecay",
]  # fmt: skip
