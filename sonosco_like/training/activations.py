"""Memory for time: activations that are computed again instead of kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from sonosco_like.errors import UsageError, did_you_mean


def recompute_activations(model: nn.Module, patterns: Sequence[str]) -> None:
    """Have the modules whose names match a pattern forget their activations until the backward pass needs them.

    Of modules within each other only the outermost does: it keeps nothing of those inside. A list of modules, which is
    never called itself, stands for its members. Random numbers are drawn again as they were, and statistics that a
    module gathers in its buffers, such as those of batch normalisation, are gathered once: the gradients and the model
    are the same as without.
    """
    modules = {name: module for name, module in model.named_modules() if name}
    matching: list[nn.Module] = []
    for pattern in patterns:
        found = [module for name, module in modules.items() if fnmatchcase(name, pattern)]
        if not found:
            raise UsageError(
                f"`gradient_checkpointing` pattern {pattern!r} matches no part of {type(model).__name__}"
                f"{did_you_mean(pattern, modules)}."
            )
        matching += [part for module in found for part in _called(module)]
    for module in _outermost(matching):
        module.forward = _Recomputed(module)


class _Recomputed:
    """The forward pass of a module, whose activations are computed again in the backward pass."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._forward = module.forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(self._forward, *args, use_reentrant=False, context_fn=self._contexts, **kwargs)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _held(self._module)


@contextmanager
def _held(module: nn.Module) -> Iterator[None]:
    """A module that works with copies of its buffers, so that a second forward pass leaves nothing in them."""
    own = [(part, dict(part._buffers)) for part in module.modules() if part._buffers]
    for part, buffers in own:
        part._buffers = {name: None if each is None else each.clone() for name, each in buffers.items()}
    try:
        yield
    finally:
        for part, buffers in own:
            part._buffers = buffers


def _called(module: nn.Module) -> Iterator[nn.Module]:
    """A module, or the members of one that only holds others and is never called."""
    if type(module).forward is not nn.Module.forward:
        yield module
        return
    for member in module.children():
        yield from _called(member)


def _outermost(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """Modules that are in none of the others, each once."""
    once = list(dict.fromkeys(modules))
    inner = {part for module in once for part in module.modules() if part is not module}
    return [module for module in once if module not in inner]
