"""Hooks that a class has for itself: the list of its body, methods `on_<event>` and `pre_<stage>_callback`.

Every class's own hooks are heard, those of base classes first, each once: so none of them calls another through
`super()`.
"""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from sonosco_like.errors import UsageError
from sonosco_like.events.moment import Moment
from sonosco_like.events.overriding import stages_of
from sonosco_like.events.pairs import check_pair, event_of_pair, hook_of_pair
from sonosco_like.events.signatures import check_hook, refuse_assigned, refuse_bound_otherwise

_PAIR_METHOD = re.compile(r"(pre|post)_(.+)_callback")


class ListsCallbacks:
    """Lets subclasses list callbacks in their body, as `callbacks = [("pre-batch", function)]`.

    The list becomes the class's `class_callbacks`, which is heard before the `callbacks` of an instance.
    """

    class_callbacks: ClassVar[list[Any]] = []

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        listed = vars(cls).get("callbacks")
        if isinstance(listed, (list, tuple)):
            cls.class_callbacks = [*vars(cls).get("class_callbacks", ()), *listed]
            del cls.callbacks  # type: ignore[attr-defined]
            annotations = inspect.get_annotations(cls)
            if annotations.pop("callbacks", None) is not None:
                cls.__annotations__ = annotations


def own_hooks(host: Any, events: set[str]) -> Iterator[tuple[str, Callable[[Moment], Any]]]:
    """Hooks a class defines for itself: base first, and in each class its list before its methods, each once."""
    stages = stages_of(host)
    refuse_assigned(host, events)
    for cls in reversed(type(host).__mro__):
        for pair in vars(cls).get("class_callbacks", ()):
            check_pair(pair, f"The list `callbacks` of the class {cls.__qualname__}")
            event = event_of_pair(pair, events)
            yield event, hook_of_pair(pair, event, stages)
        for name, method in vars(cls).items():
            place = f"{cls.__qualname__}.{name}"
            if not inspect.isfunction(method):
                if (name.startswith("on_") and name[3:] in events) or _PAIR_METHOD.fullmatch(name):
                    refuse_bound_otherwise(place, method)
                continue
            if name.startswith("on_"):
                check_hook(place, name, method, events)
                _refuse_call_of_parent(place, name, method, type(host))
                yield name.removeprefix("on_"), method.__get__(host)
            elif match := _PAIR_METHOD.fullmatch(name):
                _refuse_call_of_parent(place, name, method, type(host))
                pair = (f"{match[1]}-{match[2]}", method)
                event = event_of_pair(pair, events)
                yield event, hook_of_pair(pair, event, stages)


def _refuse_call_of_parent(place: str, name: str, method: Any, host: type) -> None:
    if _calls_parent(method, name, {cls.__name__ for cls in host.__mro__}):
        raise UsageError(
            f"{place} calls {name} of a base class, which would then be heard twice: every class's own hook is called, "
            f"those of base classes first. Leave that call out."
        )


def _calls_parent(method: Any, name: str, classes: set[str]) -> bool:
    """Whether a method reads its own name from `super()` or from a class that is named."""
    code = [each for each in dis.get_instructions(method) if each.opname not in ("PRECALL", "CACHE", "PUSH_NULL")]
    for place, instruction in enumerate(code):
        if instruction.argval != name or not instruction.opname.startswith("LOAD_") or place == 0:
            continue
        before = code[place - 1]
        if instruction.opname == "LOAD_SUPER_ATTR" or _gives_super(code, place) or before.argval in classes:
            return True
        kept = before.argval if before.opname.startswith("LOAD_FAST") else None
        if any(
            each.opname == "STORE_FAST" and each.argval == kept and _gives_super(code, where)
            for where, each in enumerate(code[:place])
        ):
            return True
    return False


def _gives_super(code: list[dis.Instruction], place: int) -> bool:
    """Whether what an instruction works with is the result of calling `super`."""
    before = code[max(0, place - 5) : place]
    return bool(before) and before[-1].opname.startswith("CALL") and "super" in [each.argval for each in before]
