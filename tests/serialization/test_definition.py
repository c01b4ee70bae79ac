"""What `@serializable` makes of a class, and what it refuses."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

import pytest
import torch
from torch import nn

from sonosco_like import dumps, loads, serializable, state
from sonosco_like.errors import DefinitionError


@serializable
class Patience:
    """A small record."""

    UNIT: ClassVar[str] = "epochs"
    monitor: str = "val_loss"
    patience: int = 3
    waited: int = state(0)
    history: list[float] = state([])

    def __post_init__(self):
        self.limit = self.patience + 1


@serializable
class Encoder(nn.Module):
    size: int = 4

    def __post_init__(self):
        self.linear = nn.Linear(self.size, self.size)


@serializable
class Model(nn.Module):
    encoder: Encoder
    dropout: float = 0.1


def test_fields_are_keyword_arguments_with_defaults():
    record = Patience(patience=5)
    assert (record.monitor, record.patience, record.limit) == ("val_loss", 5, 6)
    with pytest.raises(TypeError):
        Patience("val_loss")


def test_state_is_not_an_argument_and_is_not_shared_between_instances():
    with pytest.raises(TypeError, match="waited"):
        Patience(waited=2)
    first, second = Patience(), Patience()
    first.history.append(1.0)
    assert second.history == []


def test_objects_are_equal_only_to_themselves_and_hashable():
    first, second = Patience(), Patience()
    assert first != second
    assert {first: 1, second: 2}[first] == 1


def test_a_module_takes_modules_as_fields_and_registers_their_parameters():
    model = Model(encoder=Encoder(size=3))
    assert [name for name, _ in model.named_parameters()] == ["encoder.linear.weight", "encoder.linear.bias"]
    assert len({*model.parameters()}) == 2
    assert "Encoder" in repr(model)


def test_a_module_can_be_copied():
    model = Model(encoder=Encoder())
    twin = copy.deepcopy(model)
    assert twin.encoder.linear.weight is not model.encoder.linear.weight
    assert torch.equal(twin.encoder.linear.weight, model.encoder.linear.weight)


def test_fields_are_inherited():
    @serializable
    class Strict(Patience):
        strictness: float = 0.5

    assert Strict(patience=7, strictness=1.0).patience == 7


def test_own_init_is_refused_with_the_remedy():
    with pytest.raises(DefinitionError, match=r"own __init__.*__post_init__"):

        @serializable
        class WithInit:
            def __init__(self, size):
                self.size = size


def test_an_inherited_init_with_arguments_is_refused():
    with pytest.raises(DefinitionError, match="inherits the __init__ of Linear"):

        @serializable
        class MyLinear(nn.Linear):
            size: int = 3


@pytest.mark.parametrize("name", ["class", "state"])
def test_reserved_names_are_refused(name):
    namespace = {"__annotations__": {name: int}, "__module__": __name__, name: 3}
    with pytest.raises(DefinitionError, match="reserved"):
        serializable(type("Reserved", (), namespace))


def test_a_field_without_type_is_refused_with_the_three_ways_out():
    with pytest.raises(DefinitionError, match=r"patience: int = .*state\(.*ClassVar"):

        @serializable
        class Untyped:
            patience = 3


def test_an_init_only_argument_is_refused():
    with pytest.raises(DefinitionError, match="InitVar"):

        @serializable
        class Forgetful:
            secret: dataclasses.InitVar[int] = 3


def test_a_field_that_would_be_lost_is_refused():
    with pytest.raises(DefinitionError, match="would be lost"):

        @serializable
        class Losing:
            counted: int = dataclasses.field(init=False, default=0)


def test_one_default_object_for_all_instances_is_refused():
    shared = Patience()
    with pytest.raises(DefinitionError, match="default_factory"):

        @serializable
        class Sharing:
            patience: Patience = shared


def test_two_classes_under_one_name_are_refused():
    @serializable
    class Twin:
        a: int = 1

    with pytest.raises(DefinitionError, match="Two definitions under one name"):

        @serializable
        class Twin:
            b: int = 2


def test_the_same_definition_executed_again_replaces_the_former():
    def define():
        @serializable
        class Again:
            a: int = 1

        return Again

    first, second = define(), define()
    assert type(loads(dumps(second()))) is second
    with pytest.raises(ValueError, match="not serializable"):
        dumps(first())


def test_a_lambda_has_no_name_and_is_refused():
    with pytest.raises(DefinitionError, match="lambda"):
        serializable(lambda x: x)


@pytest.mark.parametrize("thing", [3, "text", object()])
def test_only_classes_and_functions_can_be_serializable(thing):
    with pytest.raises(DefinitionError, match="goes on a class or a function"):
        serializable(thing)


def test_a_version_without_upgrade_is_refused():
    with pytest.raises(DefinitionError, match="neither `upgrade"):

        @serializable(version=2)
        class Bumped:
            a: int = 1


def test_state_needs_exactly_one_beginning():
    with pytest.raises(DefinitionError, match="either a default or factory"):
        state()
    with pytest.raises(DefinitionError, match="either a default or factory"):
        state(3, factory=int)


def test_abstract_bases_and_protocols_are_fine_but_cannot_be_built_from_a_file():
    class Speaks(Protocol):
        def speak(self) -> str: ...

    @serializable
    class Animal(ABC):
        name: str = "x"

        @abstractmethod
        def speak(self) -> str: ...

    @serializable
    class Dog(Animal, Speaks):
        def speak(self) -> str:
            return "wuff"

    assert loads(dumps(Dog(name="rex")), Animal).name == "rex"
    with pytest.raises(ValueError, match="abstract"):
        loads(dumps(Dog()).replace("Dog", "Animal"), Animal)


def test_types_may_refer_to_classes_defined_later_in_the_module():
    assert loads(dumps(Early(later=Late(x=3)))).later.x == 3


@serializable
class Early:
    later: Late


@serializable
class Late:
    x: int = 1


def test_unresolvable_types_are_named():
    @serializable
    class Dangling:
        other: NoSuchClassAnywhere  # noqa: F821

    with pytest.raises(DefinitionError, match="NoSuchClassAnywhere"):
        dumps(Dangling(other=3))
    globals()["NoSuchClassAnywhere"] = int
    assert "other: 3" in dumps(Dangling(other=3))


def test_a_type_that_cannot_be_restored_is_refused():
    with pytest.raises(DefinitionError, match=r"Raw.content cannot have the type .*bytes"):

        @serializable
        class Raw:
            content: list[bytes | None]
