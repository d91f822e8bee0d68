"""PyTorch's optimizers as ours: the same method with the same numbers, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from ampsim.errors import OptionError
from ampsim.optim import Optimizer, adam, momentum, nesterov, sgd

Method: TypeAlias = "partial[Optimizer]"
"""A maker of `ampsim.optim` with its options."""


def _sgd(group: dict[str, Any]) -> Method:
    options = {"rate": float(group["lr"])}
    if group["momentum"]:
        options["momentum"] = group["momentum"]
    if group["weight_decay"]:
        options["weight_decay"] = group["weight_decay"]
    ahead = nesterov if group["nesterov"] else momentum
    return partial(ahead if group["momentum"] else sgd, **options)


def _adam(group: dict[str, Any]) -> Method:
    beta1, beta2 = group["betas"]
    options = {"rate": float(group["lr"]), "beta1": beta1, "beta2": beta2, "epsilon": group["eps"]}
    if group["weight_decay"]:
        options["weight_decay"] = group["weight_decay"]
    return partial(adam, **options)


_METHODS: Final[dict[str, tuple[Callable[[dict[str, Any]], Method], dict[str, Any]]]] = {
    "SGD": (_sgd, {"dampening": 0, "maximize": False}),
    "Adam": (_adam, {"amsgrad": False, "maximize": False, "decoupled_weight_decay": False}),
}
"""By the names of PyTorch's classes: what makes ours, and options that must be as usual."""


def method_of(given: Any, parameters: int) -> Method | Optimizer:
    """Our optimizer of the same method and numbers.

    Args:
        given: one of `torch.optim`, or one of `ampsim.optim`, which is returned.
        parameters: how many parameters the module has, all of which it must train.

    Raises:
        OptionError: there is none.
    """
    if isinstance(given, Optimizer):
        return given
    kind = type(given).__name__
    if not hasattr(given, "param_groups") or kind not in _METHODS:
        raise OptionError(
            f"optimizer must be one of torch.optim's {' or '.join(_METHODS)}, or of ampsim.optim, "
            f"got {kind}; try torch.optim.Adam(module.parameters(), 1e-3)"
        )
    groups = given.param_groups
    if len(groups) != 1 or len(groups[0]["params"]) != parameters:
        trained = sum(len(one["params"]) for one in groups)
        raise OptionError(
            f"optimizer must train all {parameters} parameters of the module in one group, got "
            f"{trained} in {len(groups)}; give it module.parameters()"
        )
    if given.state:
        raise OptionError(
            "optimizer must have taken no step, for what it keeps of gradients is not taken over; "
            f"give a new {kind}(module.parameters(), ...)"
        )
    make, usual = _METHODS[kind]
    for option, expected in usual.items():
        if groups[0].get(option, expected) != expected:
            raise OptionError(
                f"optimizer {kind}: {option} must be {expected}, got {groups[0][option]}; leave it "
                "out"
            )
    return make(groups[0])
