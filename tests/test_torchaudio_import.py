"""`import torchaudio` in the three situations a machine can be in. Each in a fresh process: imports are remembered."""

from __future__ import annotations

import textwrap

import pytest


def _package(folder, extension: str) -> None:
    package = folder / "torchaudio"
    package.mkdir()
    (package / "__init__.py").write_text("from . import _extension\nfrom . import functional\n")
    (package / "functional.py").write_text(
        "from torchaudio._extension import _IS_TORCHAUDIO_EXT_AVAILABLE as compiled, fail_if_no_align\n"
        "@fail_if_no_align\ndef forced_align():\n    return 'aligned'\n"
    )
    (package / "_extension.py").write_text(extension)


def _run(run_python, folder, code: str):
    head = f"import sys; sys.path.insert(0, {str(folder)!r})\n" if folder else ""
    return run_python(head + textwrap.dedent(code))


def test_the_real_extension_is_used_when_it_loads(tmp_path, run_python):
    _package(tmp_path, "_IS_TORCHAUDIO_EXT_AVAILABLE = True\nfail_if_no_align = lambda function: function\n")
    done = _run(
        run_python,
        tmp_path,
        """
        from sonosco_like.torchaudio_import import import_torchaudio
        torchaudio = import_torchaudio()
        print(torchaudio.functional.compiled, torchaudio.functional.forced_align())
        """,
    )
    assert done.stdout.split() == ["True", "aligned"], done.stderr


def test_a_stand_in_takes_over_when_it_fails_and_says_so_once(tmp_path, run_python):
    _package(tmp_path, "raise OSError('libc10_cuda.so: cannot open shared object file')\n")
    done = _run(
        run_python,
        tmp_path,
        """
        import logging; logging.basicConfig(level=logging.INFO)
        from sonosco_like.torchaudio_import import import_torchaudio
        torchaudio = import_torchaudio(); import_torchaudio()
        import torchaudio as again
        print(torchaudio is again, torchaudio.functional.compiled)
        try: torchaudio.functional.forced_align()
        except ImportError as error: print(error)
        """,
    )
    assert done.stdout.splitlines()[0] == "True False", done.stderr
    assert "forced_align needs torchaudio's compiled part" in done.stdout
    assert done.stderr.count("libc10_cuda.so") == 1


@pytest.mark.parametrize(
    "failure",
    [
        "raise OSError('libc10_cuda.so: cannot open shared object file')",
        "raise RuntimeError('Detected that PyTorch and torchaudio were compiled with different CUDA versions.')",
        "from . import compiled",
    ],
)
@pytest.mark.parametrize("before", ["", "try: import torchaudio\nexcept (ImportError, OSError, RuntimeError): pass"])
def test_another_package_can_import_torchaudio_after_ours(failure, before, tmp_path, run_python):
    _package(tmp_path, failure + "\n")
    (tmp_path / "neighbour.py").write_text("import torchaudio.functional\nfrom torchaudio import functional\n")
    done = _run(run_python, tmp_path, f"{before}\nimport sonosco_like, neighbour; print(neighbour.functional.compiled)")
    assert done.stdout.split() == ["False"], done.stderr


def test_the_installed_torchaudio_can_be_imported_by_anybody_after_ours(run_python):
    done = _run(run_python, None, "import sonosco_like, torchaudio; print(torchaudio.transforms.Resample.__name__)")
    assert done.stdout.split() == ["Resample"], done.stderr


def test_importing_ours_imports_neither_torch_nor_torchaudio(run_python):
    done = _run(run_python, None, "import sys, sonosco_like; print({'torch', 'torchaudio'} & set(sys.modules))")
    assert done.stdout.strip() == "set()", done.stderr


def test_without_torchaudio_the_error_says_what_to_install(run_python):
    done = _run(
        run_python,
        None,
        """
        import sys; sys.modules["torchaudio"] = None
        from sonosco_like.torchaudio_import import import_torchaudio
        from sonosco_like.errors import MissingPackageError
        try: import_torchaudio()
        except MissingPackageError as error: print(error)
        """,
    )
    assert "pip install torchaudio" in done.stdout, done.stderr


def test_the_parts_we_need_work_with_the_installed_torchaudio(run_python):
    done = _run(
        run_python,
        None,
        """
        import torch
        from sonosco_like.torchaudio_import import import_torchaudio
        torchaudio = import_torchaudio()
        print(tuple(torchaudio.compliance.kaldi.fbank(torch.zeros(1, 16000)).shape))
        print(tuple(torchaudio.functional.resample(torch.zeros(1, 8000), 8000, 16000).shape))
        """,
    )
    assert done.stdout.splitlines() == ["(98, 23)", "(1, 16000)"], done.stderr
