"""Each optional package, where it is installed: its adapter runs, and what is known of it shows."""

import pytest
from tests.oracle.crosscheck.stand_ins import COUNT

from guarded_moments.oracle.crosscheck import ADAPTERS, Measured
from guarded_moments.oracle.crosscheck.report import CrossCheck
from guarded_moments.reference.implementations import capability_of_this_machine

pytestmark = [
    pytest.mark.filterwarnings("default"),  # the packages' own
    pytest.mark.timeout(600),  # some compile C++
]
OTHERS = [name for name, adapter in ADAPTERS.items() if adapter.packages != ("torch",)]


@pytest.fixture(scope="module")
def check() -> CrossCheck:
    return CrossCheck(count=COUNT)


def measured(check: CrossCheck, name: str) -> Measured:
    """What was seen of an adapter, if its packages are here."""
    for package in ADAPTERS[name].packages:
        pytest.importorskip(package, reason=f"{package} is in the extra `crosscheck`, which is not installed")
    result = check.measure(ADAPTERS[name])
    assert isinstance(result, Measured), result
    return result


@pytest.mark.parametrize("name", OTHERS)
def test_none_follows_an_op_model_but_all_are_close(check: CrossCheck, name: str) -> None:
    result = measured(check, name)

    assert result.trained.followed == ()
    assert all(found.percentile < 2e-3 for found in result.first_update.values())
    assert all(quantity.nearest.unlike == 0 for quantity in result.trained.quantities)
    assert len(result.codec) == (3 if result.adapter.quantised else 0)


@pytest.mark.parametrize("name", [name for name in OTHERS if "optax" in name])
def test_jax_flushes_subnormals_and_contracts_only_what_it_compiles(check: CrossCheck, name: str) -> None:
    result = measured(check, name)

    assert result.special is not None
    for quantity in result.special.quantities:  # but where only another order of operations makes them subnormal
        assert quantity.flushed >= 0.98 * quantity.subnormal > 100
    rounded = "once (fma)" if "jit" in name else "twice"
    assert result.observations[0].startswith(f"a*b + c is rounded {rounded}")
    assert result.observations[1:] == ("a subnormal result is flushed to zero", "a subnormal operand is taken as zero")


@pytest.mark.parametrize("name", [name for name in OTHERS if "torchao" in name])
def test_torchao_forms_the_first_moment_as_the_compiled_step_does(check: CrossCheck, name: str) -> None:
    if capability_of_this_machine() != "avx2":
        pytest.skip("the compiled step is known for AVX2 only")
    m, v, _ = measured(check, name).trained.quantities

    assert "torch-2.13-cpu-avx2/compiled" in m.followed
    assert v.followed == ()  # an interpolation between v and g*g, which no op model has


@pytest.mark.parametrize("name", [name for name in OTHERS if "bitsandbytes" in name])
def test_bitsandbytes_forms_the_second_moment_as_torch_does(check: CrossCheck, name: str) -> None:
    m, v, _ = measured(check, name).trained.quantities

    assert f"torch-2.13-cpu-{capability_of_this_machine()}/single" in v.followed
    assert m.followed == ()  # two products, no difference


@pytest.mark.parametrize("name", [name for name, adapter in ADAPTERS.items() if adapter.quantised])
def test_every_unguarded_format_exceeds_one_learning_rate_somewhere(check: CrossCheck, name: str) -> None:
    result = measured(check, name)

    assert max(found.probed.largest for found in result.codec) > 1
    assert all(found.probed.beyond > 0.3 for found in result.codec)
