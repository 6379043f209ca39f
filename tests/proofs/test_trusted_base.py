"""The trusted base: the document in docs is what the code says, and no precondition is without its reason."""

from pathlib import Path

from tests.oracle.cli.running import run_well

from guarded_moments.proofs.statement import families, preconditions
from guarded_moments.proofs.trusted_base import PRECONDITIONS, trusted_base

DOCUMENT = Path(__file__).parents[2] / "docs" / "trusted-base.md"


def test_the_document_is_what_the_code_says() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == trusted_base(versions=False), (
        "regenerate it: python -c 'from guarded_moments.proofs.trusted_base import trusted_base; "
        'print(trusted_base(versions=False), end="")\' > docs/trusted-base.md'
    )


def test_every_precondition_has_a_reason() -> None:
    for family in (*families(), *families(amsgrad=True)):
        assert set(preconditions(family)) <= PRECONDITIONS.keys()


def test_the_command_prints_it_with_versions() -> None:
    printed = run_well("prove", "--trusted-base").out
    assert printed.startswith(trusted_base(versions=False).rstrip())
    assert "- z3-solver " in printed
