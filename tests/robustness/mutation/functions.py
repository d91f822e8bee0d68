"""Calls of what is public in Python, with one or two arguments of a wrong type or value."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from mutation import bases
from mutation.case import Call, Function, Place, shown
from mutation.values import python_values

_MODULES = {
    "ampsim": "ampsim",
    "ampsim.figures": "ampsim.figures",
    "ampsim.optim": "ampsim.optim",
    "ampsim.nodes": "ampsim.nodes",
    "ampsim.clock": "ampsim.clock",
    "ampsim.data": "ampsim.data",
}
"""Where public names are looked for, by what a user calls the module."""

_LEFT_OUT = {"fetch", "compose", "pump_arrays"} | {
    *("ListOperation", "Operation", "reduce_list", "Tree", "Vocabulary", "figures"),
}
"""What asks the network, and what only models of ours call."""

_ENDLESS = {"epochs", "max_epochs", "repeats"}
"""Counts that are done one after the other, so that a large one only takes long."""


class _Bases:
    """Right arguments, by the name of the parameter; made when first asked for."""

    def __init__(self) -> None:
        import ampsim

        self.ampsim = ampsim
        self.model = ampsim.load_model("model.py")
        self.cluster = ampsim.load_cluster("tflops-1", workers=2)
        self.schedule = ampsim.Amp(max_active_keys=2)

    @property
    def result(self) -> Any:
        return self.ampsim.simulate(self.model, self.cluster, self.schedule, instances=2)

    @property
    def forecast(self) -> Any:
        return self.ampsim.forecast(
            self.model, self.cluster, [self.schedule], max_epochs=1, instances=2
        )

    @property
    def schedules(self) -> Any:
        return [self.schedule]

    @property
    def devices(self) -> Any:
        return self.cluster.devices

    @property
    def figure(self) -> Any:
        return self.ampsim.figures.utilisation(self.result)

    @property
    def vocabulary(self) -> Any:
        from ampsim.data import Vocabulary

        return Vocabulary.of(["good", "a"])

    @property
    def parameters(self) -> Any:
        return self.model.parameters()


_RIGHT: dict[str, Any] = {
    "name_or_path": "tflops-1", "name": "node", "config": None, "d_in": 2, "d_out": 3, "rows": 3,
    "width": 2, "widths": (2, 2), "learning_rate": 0.1, "rate": 0.1, "decay": 0.9, "seed": 0,
    "folder": "data", "train_count": 2, "valid_count": 2, "batch": 2, "dtype": "float32",
    "path": "x.png", "window_s": (0.0, 1e-6), "target": 0.9, "instances": 2, "epochs": 1,
    "max_epochs": 1, "repeats": 1, "jobs": 1, "mode": "numeric", "placement": "paper",
    "clock": None, "workers": 2, "latency_s": 0.0, "bandwidth_bytes_per_s": 1e9, "flop_per_s": 1e9,
    "max_active_keys": 2, "min_update_interval": 1, "parameters": {}, "count": 2, "ports": 2,
    "units": 3, "hidden": 2, "words": ["a"], "vocabulary": None, "on_progress": None,
    "dataset": "mnist", "part": "train-images", "explicit": "data", "parts": 2, "start": 0,
    "stop": 1, "inputs": ("a", "b"), "outputs": ("a", "b"), "initial": 0.1, "query": len,
    "text": "x", "kind": "assumed",
}  # fmt: skip

_RIGHT_OF = {
    "ampsim.nodes.Embedding": {"vocabulary": 3},
    "ampsim.figures.of": {"name": "utilisation"},
}
"""Those that mean something else in one function."""


@cache
def public() -> dict[str, Callable[..., Any]]:
    """Everything public that can be called, by its full name."""
    found: dict[str, Callable[..., Any]] = {}
    for module_name, home in _MODULES.items():
        module = importlib.import_module(home)
        for name in module.__all__:
            target = getattr(module, name)
            if name in _LEFT_OUT or not callable(target) or _is_type_alone(target):
                continue
            found[f"{module_name}.{name}"] = target
            if inspect.isclass(target):
                found |= _class_methods(f"{module_name}.{name}", target)
    return found


def _is_type_alone(target: Any) -> bool:
    """Whether it only describes, such as an exception, a protocol or an alias."""
    if not inspect.isclass(target):
        return not inspect.isroutine(target)
    return issubclass(target, BaseException) or bool(getattr(target, "_is_protocol", False))


def _class_methods(name: str, target: type) -> dict[str, Callable[..., Any]]:
    methods = {
        key: getattr(target, key)
        for key, value in vars(target).items()
        if isinstance(value, classmethod | staticmethod) and not key.startswith("_")
    }
    return {f"{name}.{key}": method for key, method in methods.items()}


_METHODS = {
    "model": ("graph", "set_parameters", "update_interval", "error_scale_of", "parameters"),
    "cluster": ("link_between",),
    "result": ("save", "outline"),
    "forecast": ("save",),
}
"""Methods that a user calls on what the functions give."""

_SHORT = {
    "ampsim.forecast": {"instances": 200, "max_epochs": 1, "repeats": 1},
    "ampsim.simulate": {"instances": 200},
}
"""What keeps a call short that is right after all: a model's name alone trains on all its data."""


def function(place: Place) -> Call:
    """A call with wrong arguments."""
    random = place.random
    place.write("model.py", bases.MODEL)
    names = [*public(), *(f"{holder}.{name}" for holder in _METHODS for name in _METHODS[holder])]
    important = [name for name in names if name.startswith("ampsim.") and name.count(".") == 1]
    name = random.choice((*names, *important, *important))
    wrong = [random.choice(python_values()) for _ in range(3)]
    picks = [random.random() for _ in range(4)]
    target = _target(name)
    if target is None:
        return Function(name, lambda: None, "not there yet")
    chosen = _chosen(target, picks, wrong)
    text = ", ".join(f"{key}={shown(value)}" for key, value in chosen.items())
    return Function(name, lambda: _call(name, target, chosen), text)


def _target(name: str) -> Any:
    holder, _, method = name.partition(".")
    if holder not in _METHODS:
        return public()[name]
    import ampsim

    kind = getattr(
        ampsim,
        {"model": "Model", "cluster": "Cluster", "result": "Result", "forecast": "Forecast"}[
            holder
        ],
    )
    return getattr(kind, method, None)


def _parameters(target: Any) -> list[inspect.Parameter]:
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return []
    kept = [one for one in signature.parameters.values() if one.name != "self"]
    return [one for one in kept if one.kind is not inspect.Parameter.VAR_KEYWORD]


def _chosen(target: Any, picks: list[float], wrong: list[Any]) -> dict[str, Any]:
    """Wrong values for one or two parameters."""
    parameters = _parameters(target)
    if not parameters:
        return {}
    count = 1 if picks[0] < 0.75 else 2
    chosen: dict[str, Any] = {}
    for pick, value in zip(picks[1 : 1 + count], wrong, strict=False):
        name = parameters[int(pick * len(parameters))].name
        is_long = type(value) is int and value > 1000
        is_raising = value is object and name == "on_progress"  # the error is then the caller's own
        chosen[name] = -1 if is_raising or (is_long and name in _ENDLESS) else value
    return chosen


def _call(name: str, target: Any, chosen: dict[str, Any]) -> Any:
    """Call with right arguments but the chosen ones."""
    right = _Bases()
    if name.partition(".")[0] in _METHODS:
        target = getattr(getattr(right, name.partition(".")[0]), name.partition(".")[2])
    positional: list[Any] = []
    keywords: dict[str, Any] = {
        key: value for key, value in _SHORT.get(name, {}).items() if key not in chosen
    }
    for one in _parameters(target):
        if one.name not in chosen and one.default is not inspect.Parameter.empty:
            continue
        value = chosen[one.name] if one.name in chosen else _right(one, name, right)
        if one.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            keywords[one.name] = value
        else:
            positional.append(value)
    return target(*positional, **keywords)


def _right(parameter: inspect.Parameter, name: str, right: _Bases) -> Any:
    """A right value for a parameter that has no default."""
    if parameter.name == "name_or_path" and "model" in name:
        return "model.py"
    if parameter.name == "results":
        return right.result
    if parameter.name in _RIGHT_OF.get(name, {}):
        return _RIGHT_OF[name][parameter.name]
    if hasattr(_Bases, parameter.name) or parameter.name in vars(right):
        return getattr(right, parameter.name)
    return _RIGHT.get(parameter.name)
