"""Optimizers and learning-rate schedules of torch, as records that are built when the parameters are there."""

from sonosco_like.optim.groups import ParameterGroup, check_patterns
from sonosco_like.optim.optimizers import (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    Optimizer,
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
    OneCycleLR,
    PolynomialLR,
    Scheduler,
    SequentialLR,
    StepLR,
)  # fmt: skip
from sonosco_like.optim.schedules import Noam, Schedule, WarmupHoldDecay

__all__ = [
    "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ChainedScheduler", "ConstantLR", "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "NAdam", "Noam", "OneCycleLR", "Optimizer", "ParameterGroup", "PolynomialLR",
    "RAdam", "RMSprop", "Rprop", "Schedule", "Scheduler", "SequentialLR", "StepLR", "WarmupHoldDecay", "check_patterns",
]  # fmt: skip
