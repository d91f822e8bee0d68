"""Numbers as arrays: of the type asked for, made once, and nobody can change them."""

import numpy as np
import pytest

from ampsim.constant import constant


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_constant_keeps_the_type_of_what_it_multiplies(dtype):
    array = np.ones(3, dtype)
    assert (array * constant(0.5, array.dtype)).dtype == dtype
    assert constant(0.1, array.dtype) == np.dtype(dtype).type(0.1)


def test_a_constant_is_made_once_for_each_type_and_is_read_only():
    single, double = np.dtype("float32"), np.dtype("float64")
    assert constant(0.5, single) is constant(0.5, single)
    assert constant(0.5, single) is not constant(0.5, double)
    with pytest.raises(ValueError, match="read-only"):
        constant(0.5, single)[...] = 1
