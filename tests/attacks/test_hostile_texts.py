"""A text from a stranger builds registered classes or is refused: it runs, imports and writes nothing."""

from __future__ import annotations

import sys
import textwrap

import pytest
from attack_targets import Part, Target, nothing_is_executed_or_written, said_plainly

from sonosco_like.errors import ConfigError
from sonosco_like.serialization import dumps, loads

COMMAND = "touch CANARY"
TARGET = "class: attack_targets.Target\n"
TAGGED = [
    f"!!python/object/apply:os.system ['{COMMAND}']",
    f"!!python/object/apply:subprocess.check_output [['{COMMAND}']]",
    f"!!python/object/new:os.system ['{COMMAND}']",
    f"!!python/object/apply:builtins.eval ['__import__(\"os\").system(\"{COMMAND}\")']",
    "!!python/name:os.system ''", "!!python/name:os.system", "!!python/module:os ''", "!!python/object:os.system {}",
    "!!python/tuple [1]",
    "!!python/str x", "!!python/long 1", "!<tag:yaml.org,2002:python/object/apply:os.system> [x]",
    "!!binary aGVsbG8=", "!!timestamp 2001-01-01",
    "!!set {a}", "!!omap [a: 1]", "!!pairs [a: 1]", "!!merge x", "!!value =", "!!js/function 'x'",
    "!ruby/object:Gem::Requirement {}", "!Ref x", "!ENV HOME",
    "!include /etc/passwd", "!object ''", "!object number", "!tensor x", "!array x", "!class os.system", "!class os",
    "!path [a]", "!dict [a]", "!tuple {a: 1}",
]  # fmt: skip
NAMES = [
    "os.system", "logging.os.system", "builtins.eval", "eval", "subprocess.Popen", "torch.load", "pickle.loads",
    "yaml.unsafe_load", "attack_targets.os.system",
    "attack_targets.sys.exit", "attack_targets.Target.__init__", "attack_targets.Path", "attack_targets.REGISTRY",
    "sonosco_like.cli.main", "sonosco_like.serialization.save",
    "sonosco_like.serialization.folder.Snapshot", "__main__.Target", "__import__", "Target", "Part", "object", "type",
    "dict", "pathlib.Path", "torch.nn.Linear",
    "attack_targets.Target@2", "attack_targets.Target@0", "attack_targets.Target@-1", "attack_targets.Target@1@1",
    "attack_targets.Target\u200b", "' attack_targets.Target'",
    "attack_targets.target", "../attack_targets.Target", "file:///tmp/x.py", "attack_targets", "attack_targets.", "",
    "1", "null", "~", "[os.system]", "{class: x}",
]  # fmt: skip
PLACES = ["{}", TARGET + "name: {}\n", TARGET + "number: {}\n",
TARGET + "listed: [{}]\n",
          TARGET + "mapping: {{k: {}}}\n", TARGET + "function: {}\n",
          TARGET + "anything: {}\n", TARGET + "? {}\n: x\n", "class: {}\n",
          TARGET + "state: {}\n",
          TARGET + "state: {{tensor: {}}}\n", TARGET + "part: {}\n",
          TARGET + "mapping: {{? {} : x}}\n"]  # fmt: skip


def _refused(text: str | bytes) -> str:
    with nothing_is_executed_or_written(), pytest.raises(ConfigError) as caught:
        loads(text)
    return said_plainly(caught.value)


@pytest.fixture(autouse=True)
def canary(tmp_path, monkeypatch):
    """The commands in these texts would leave a file in the current folder."""
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tagged", TAGGED)
def test_tags_of_other_formats_build_nothing_anywhere(tagged):
    for place in PLACES:
        _refused(place.format(tagged))


@pytest.mark.parametrize("name", NAMES)
def test_only_registered_names_are_classes_and_functions(name):
    _refused(f"class: {name}\n")
    _refused(f"- class: {name}\n  args: ['{COMMAND}']\n")
    _refused(f"function: {name}\n")
    _refused(TARGET + f"function: {name if name not in ('null', '~', '') else 'os.system'}\n")
    _refused(TARGET + f"function: {{function: {name}, command: '{COMMAND}'}}\n")
    _refused(TARGET + f"part: {{class: {name}}}\n")
    _refused(TARGET + f"anything: {{class: {name}}}\n")


@pytest.mark.parametrize("name", NAMES)
def test_no_tag_gives_a_class_as_value(name):
    _refused(TARGET + f"anything: !class {name}\n")


def test_classes_and_functions_do_not_stand_in_for_each_other():
    _refused("function: attack_targets.Part\n")
    _refused("class: attack_targets.harmless\n")
    _refused(TARGET + "part: {class: attack_targets.Target}\n")
    _refused(TARGET + "function: {function: attack_targets.harmless, command: x}\n")


@pytest.mark.parametrize(
    "entry",
    [
        f"_target_: os.system\n_args_: ['{COMMAND}']", "_partial_: true", "__class__: os.system",
        "__init__: {number: 1}", "__dict__: {number: 1}", "__reduce__: [os.system, [x]]",
        "__post_init__: x", "__module__: os", "py/object: os.system", "$type: System.Diagnostics.Process",
        "'@type': x", "'()': os.system", "self: 1", "args: [1]", "kwargs: {number: 1}",
        "<<: {number: 1}", "<<: [{number: 1}]", "1: x", "null: x", "true: x", "[a, b]: x", "{a: b}: x",
        "? {class: attack_targets.Part}\n: x", "'': x", "seen: 3", "Number: 1", "number : {}",
        "state: {__class__: x}", "state: {number: 1}", "state: {state_dict: {}}", "state: {class: os.system}",
        "state: [seen]", "state: {seen: 1, seen: 2}", "state: {<<: {seen: 1}}",
    ],
)  # fmt: skip
def test_keys_that_are_not_fields_are_refused(entry):
    _refused(TARGET + f"{entry}\n")
    inner = textwrap.indent(TARGET + entry, "    ")
    _refused(f"- class: attack_targets.Target\n  listed:\n  -\n{inner}\n")


@pytest.mark.parametrize(
    "text",
    [
        TARGET + "number: 1\nnumber: 2\n",
        TARGET + "class: attack_targets.Part\n",
        "class: attack_targets.Part\nclass: attack_targets.Part\n",
        TARGET + "number: 1\n'number': 2\n",
        TARGET + 'number: 1\n"n\\x75mber": 2\n',
        TARGET + "mapping: {a: 1, b: 2, a: 3}\n",
        TARGET + "mapping: {a: 1, 'a': 1}\n",
        TARGET + "anything: {1: a, 0x1: b}\n",
        TARGET + "anything: {1: a, 1.0: b}\n",
        TARGET + "anything: !set [a, a]\n",
        TARGET + "function: {function: attack_targets.harmless, function: attack_targets.harmless}\n",
        TARGET + "function: {function: attack_targets.harmless, value: 1, value: 2}\n",
        TARGET + "state: {seen: 1}\nstate: {seen: 2}\n",
        "!x class: attack_targets.Part\n", "!x function: attack_targets.harmless\n",
        "!!int class: attack_targets.Part\n", "!!int function: attack_targets.harmless\n",
    ],
)  # fmt: skip
def test_keys_given_twice_or_in_disguise_are_refused(text):
    _refused(text)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "\n\n", "# only a comment\n", "---\n---\n", "...\n",
        "class: attack_targets.Part\n---\nclass: attack_targets.Part\n", "--- a\n--- b\n", "%YAML 3.0\n---\na\n",
        "%TAG !! tag:yaml.org,2002:python/\n---\n!!object/apply:os.system [x]\n",
        "%TAG ! tag:yaml.org,2002:python/object/apply:\n---\n!os.system [x]\n", "%FOO bar\n---\n!x a\n", "\x00",
        "class: attack_targets.Part\x00\n", "class: attack_targets.Part\nlabel: a\x00b\n", "label: \x07\n",
        "class: attack_targets.Part\nlabel: '\ufffe'\n", "class: attack_targets.Part\nlabel: \ud800\n",
        b"class: attack_targets.Part\nlabel: \xff\n", b"class: attack_targets.Part\nlabel: \xed\xa0\x80\n",
        b"class: attack_targets.Part\nlabel: \xc0\xaf\n", b"\xff\xfe", b"\xfe\xff\x00a",
        "class: attack_targets.Part\n".encode("utf-16"), "class: attack_targets.Part\n".encode("utf-16-be"),
        "class: attack_targets.Part\n".encode("utf-32"),
        b"\x80\x04\x95\x15\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.", b"PK\x03\x04",
        b"\x1f\x8b\x08", "\ta: b", "a: b: c", "[", "}", "*a", "a: *b", "'", '"\\x"',
        "class: attack_targets.Part\nlabel: \"\\ud800\"\n", "class: attack_targets.Part\nlabel: \"\\U00110000\"\n",
        "!<>", "&a &b c", "@", "`", "%",
    ],
    ids=lambda text: ascii(text)[:50],
)  # fmt: skip
def test_what_is_not_one_document_of_utf_8_is_refused(text):
    _refused(text)


@pytest.mark.parametrize(
    "value",
    [
        "_inductor",
        "onnx",
        "_dynamo",
        "compile",
        "load",
        "nn",
        "Tensor",
        "dtype",
        "__builtins__",
        "float32.itemsize",
        "torch.float32;",
        "",
        "é",
        "distributed",
    ],
)
def test_a_tensor_type_is_looked_up_and_never_imported(value):
    "".encode("utf-8-sig")  # Python imports this codec when a file is first read
    loaded = set(sys.modules)
    _refused(TARGET + f"dtype: '{value}'\n")
    _refused(TARGET + f"anything: !dtype '{value}'\n")
    assert set(sys.modules) == loaded


@pytest.mark.parametrize(
    "value",
    [
        "",
        "cpu:",
        "gpu",
        "cuda:-1",
        "cuda:99999999999999999999",
        "cuda:0x1",
        "cpu; touch CANARY",
        "privateuseone:é",
        "CPU",
        "cuda:01",
    ],
)
def test_a_device_that_is_none_is_refused(value):
    _refused(TARGET + f"device: '{value}'\n")


@pytest.mark.parametrize(
    "text",
    [
        "${oc.env:HOME}",
        "${HOME}",
        "$HOME",
        "%(HOME)s",
        "{{ lookup('env', 'HOME') }}",
        "~/x",
        "`id`",
        "$(id)",
        "!ENV HOME",
        "../../etc/passwd",
        "/etc/passwd",
    ],
)
def test_environment_files_and_time_are_never_consulted(text):
    with nothing_is_executed_or_written():
        target = loads(TARGET + f'name: "{text}"\nplace: "{text}"\n')
    assert target.name == text
    assert target.place.as_posix() == text


def test_a_merge_key_merges_nothing():
    assert loads("!dict {<<: {a: 1}, b: 2}\n") == {"<<": {"a": 1}, "b": 2}


@pytest.mark.parametrize(
    "text",
    [
        "&a [*a]", "- &a {k: *a}", "&a {*a : b}", "--- &a\nclass: attack_targets.Target\nanything: *a\n",
        "class: attack_targets.Renewed@1\ncontent: &c [*c]\n", TARGET + "listed: &a [[[*a]]]\n",
        TARGET + "part: &p {class: attack_targets.Part, label: *p}\n", TARGET + "state: &s {tensor: *s}\n",
        TARGET + "mapping: &m {k: {l: *m}}\n", TARGET + "choice: &c {k: *c}\n",
        TARGET + "function: &f {function: attack_targets.harmless, value: *f}\n",
    ],
)  # fmt: skip
def test_what_contains_itself_is_refused(text):
    _refused(text)


def test_a_value_that_failed_in_one_place_is_not_smuggled_into_another():
    text = TARGET + "choice: &n {class: attack_targets.Part, size: wrong}\nanything: *n\n"
    try:
        target = loads(text)
    except ConfigError as error:
        said_plainly(error)
    else:
        assert isinstance(target.anything, (dict, Part))
        assert dumps(target)


def test_names_and_tags_cannot_write_to_the_terminal():
    for odd in ("\\e[31m", "\\n", "\\r", "\\u202e", "\\x9b"):
        _refused(f'"{odd}": 1\n')
        _refused(f'class: "{odd}"\n')
        _refused(TARGET + f'number: "{odd}"\n"{odd}": 3\ndtype: "{odd}"\n')
        _refused(TARGET + f'function: "{odd}"\nmapping: {{"{odd}": !x 1}}\n')
    _refused(TARGET + "number: !%1b%5b31m%0aroot 1\nlisted: [!%0a x]\nanything: !%1b {a: 1}\n")


def test_all_that_is_wrong_is_said_at_once_but_not_without_end():
    lines = [f"wrong_{index}: 1" for index in range(50)]
    assert _refused(TARGET + "\n".join(lines)).count("wrong_") >= 50
    with pytest.raises(ConfigError) as caught:
        loads(TARGET + "\n".join(f"wrong_{index}: 1" for index in range(20_000)))
    assert len(str(caught.value)) < 200_000


def test_the_targets_can_be_built_at_all():
    text = TARGET + "number: 3\npart: {size: 2}\nfunction: attack_targets.harmless\n"
    assert isinstance(loads(text), Target)
