"""An update in blocks, as long vectors have it, has the bits of an update at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ampsim
from ampsim.optim import OPTIMIZERS, base

PARAMETERS = 784 * 7 + 7


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
@pytest.mark.parametrize("block", [PARAMETERS - 1, 1000, 64])
def test_blocks_do_not_change_the_bits_of_an_update(
    optimizer: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ampsim.load_model("mlp", data="synthetic", hidden=7, layers=2, batch=20)
    model = replace(model, optimizer=OPTIMIZERS[optimizer](0.05))
    cluster = ampsim.load_cluster("tflops-1", workers=2)

    def losses() -> np.ndarray:
        result = ampsim.simulate(model, cluster, ampsim.Sequential(), epochs=2, instances=200)
        return result.epochs[["loss", "valid_loss"]].to_numpy()

    whole = losses()
    monkeypatch.setattr(base, "BLOCK", block)
    np.testing.assert_array_equal(losses(), whole)
    assert np.isfinite(whole).all()
