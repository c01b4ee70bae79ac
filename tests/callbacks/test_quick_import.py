"""Naming callbacks is quick: what only some of them need is imported when it is used."""

from __future__ import annotations


def test_importing_the_callbacks_imports_nothing_that_only_some_need(run_python):
    heavy = {"matplotlib", "wandb", "mlflow"}
    done = run_python(f"import sys, sonosco_like.callbacks; print(sorted({heavy} & set(sys.modules)))")
    assert done.stdout.strip() == "[]", done.stderr
