"""The numbers of AMPNet's Appendix C on the shipped device, exactly."""

import pytest

from ampsim.hardware import load_device, occupancy_s
from ampsim.ir.work import Work


@pytest.mark.parametrize(
    ("rows", "d_in", "d_out", "step_s", "update_s"),
    [
        # The list-reduction RNN: bucket of 100, hidden 128, embedding and state concatenated.
        (100, 256, 128, 6.5536e-6, 3.2768e-8),
        # Its last layer: ten classes.
        (100, 128, 10, 2.56e-7, 1.28e-9),
        # The perceptron on MNIST: batch of 100, 784 inputs, 784 hidden units.
        (100, 784, 784, 1.229312e-4, 6.14656e-7),
        (1, 1, 1, 2e-12, 1e-12),
    ],
)
def test_steps_of_a_linear_layer_last_what_the_paper_says(rows, d_in, d_out, step_s, update_s):
    device = load_device("tflops-1")
    step, update = Work(flop=2 * rows * d_in * d_out), Work(flop=d_in * d_out)
    assert occupancy_s(device, step, is_light=False) == step_s
    assert occupancy_s(device, update, is_light=False) == update_s
