"""A model: its graph, its data and how to train it, as a file in ``models/`` builds it."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, cast
from weakref import WeakValueDictionary

import numpy as np

from ampsim.arguments import as_float, check_fields, checked
from ampsim.constant import unmasked
from ampsim.data import Dataset
from ampsim.dataflow.program import Program
from ampsim.errors import FileFormatError, GraphError, OptionError, one_of
from ampsim.files import read_regular
from ampsim.ir import Graph, ParameterizedNode
from ampsim.metric import Kind, Metric
from ampsim.model_parallel import Job, Pump
from ampsim.optim import Optimizer
from ampsim.options import PARAMETERS_MAX, Count
from ampsim.rng import stream
from ampsim.study.process_settings import single_threaded
from ampsim.study.user_data import UserData
from ampsim.text import html_table, short
from ampsim.user_code import user_code

T = TypeVar("T")
_GIVEN: Final = WeakValueDictionary[tuple[int, int], ParameterizedNode]()
"""Nodes that live, by who made them and themselves: a function must give none of its own again."""

_ARGUMENT = re.compile(r"^ {4}(\w+): +(.*(?:\n {6,}.*)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ModelOption:
    """One field of a model's `Config`: name, type, default and what its docstring says of it."""

    name: str
    type: str
    value: Any
    description: str


def docstring_of(path: Path) -> str:
    """Return the docstring of a Python file, which is not executed; empty where it has none.

    Raises:
        FileFormatError: it is no Python.
    """
    try:
        tree = ast.parse(read_regular(path), filename=str(path))
    except (SyntaxError, ValueError) as error:
        raise FileFormatError(f"{path}: is not valid Python: {error}") from error
    return ast.get_docstring(tree) or ""


def options_of(config: Any) -> list[ModelOption]:
    """Return the fields of a model's `Config` with their values, in order."""
    if config is None:
        return []
    kind: Any = config.__class__
    found: dict[str, str] = dict(_ARGUMENT.findall(inspect.getdoc(kind) or ""))
    return [
        ModelOption(
            field.name,
            field.type if isinstance(field.type, str) else inspect.formatannotation(field.type),
            getattr(config, field.name),
            " ".join(found.get(field.name, "").split()),
        )
        for field in dataclasses.fields(kind)
    ]


Parameters = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Model:
    """A network to train, with its data and its optimizer: `build(config)` of a model file.

    Args:
        name: as in reports.
        config: the options it was built with, a frozen dataclass; None where there are none.
        make_graph: builds the graph anew; called once for each run, so that runs share nothing;
            None of a model that is a program only.
        make_data: ``make_data(seed, train_count)`` gives the data set; `train_count` None for all.
        pump: brings one batch into the graph as one instance; None where there is no graph.
        optimizer: method and learning rate.
        target: value of the metric at which a forecast stops unless told otherwise.
        min_update_interval: gradients between updates of a node, where a schedule leaves that
            to the model.
        node_update_intervals: exceptions to `min_update_interval`, by node.
        replicas: copies of the replicated part, for reports.
        dtype: of parameters and activations.
        metric: what validation measures: "accuracy", or "error", the mean absolute error of a
            regression, which is reached at or below its target.
        error_unit: what an error of 1 is, as it stands behind a number.
        error_scale: how many `error_unit` are in one unit of the loss's target; where that depends
            on the data, a function of the data set.
        items: what an epoch counts and throughput is of, in the plural, such as "images".
        origin: file and hash, those of a user's modules that it imports, and of `given`, if there
            are any, as `load_model` fills in.
        make_program: builds the same network as a program (docs/dataflow.md), with variables of the
            parameters' names; None where there is none.
        make_layers: of a model that is a program only, the nodes of its parameters, such as
            ``[nodes.Linear("gate", 8, 4)]``: they say names, shapes and what these start from, and
            no message comes to them.
        given: parameters to start from instead of drawing them; see `set_parameters`. Copied, so
            that two models share none.

    Attributes:
        is_as_loaded: whether its file builds it of its `config`; `dataclasses.replace` ends that.
    """

    name: str
    config: Any
    make_graph: Callable[[], Graph] | None
    make_data: Callable[[int, int | None], Dataset[Any]]
    pump: Pump | None
    optimizer: Optimizer
    target: float | None = None
    min_update_interval: Count = 1
    node_update_intervals: Mapping[str, Count] = field(default_factory=dict[str, int])
    replicas: Count = 1
    dtype: str = "float32"
    metric: Kind = "accuracy"
    error_unit: str = ""
    error_scale: float | Callable[[Any], float] = 1.0
    items: str = "items"
    origin: Mapping[str, str] = field(default_factory=dict[str, str])
    make_program: Callable[[], Program] | None = None
    make_layers: Callable[[], Sequence[ParameterizedNode]] | None = None
    given: Parameters = field(default_factory=dict[str, np.ndarray])
    is_as_loaded: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            OptionError: `config` has no fields, an interval or `replicas` is below 1, the metric is
                unknown, the target is no value of it, the data type is neither "float32" nor
                "float64", or there is no whole graph, nor a program with layers and no intervals.
        """
        check_fields(self)
        wanted, is_whole = "pump, and no make_layers", self.pump and not self.make_layers
        if self.make_graph is None:
            wanted = "make_program and make_layers, and no pump"
            is_whole = self.make_program and self.make_layers and not self.pump
            if self.min_update_interval != 1 or self.node_update_intervals:
                raise OptionError(f"program {self.name} has no use for intervals; leave them out")
        if not is_whole:
            which = "without" if self.make_graph is None else "with"
            raise OptionError(f"model {self.name} {which} make_graph must have {wanted}")
        if self.config is not None and not is_dataclass(self.config):
            raise OptionError(
                f"config of model {self.name} must be a dataclass's instance or None, got a "
                f"{type(self.config).__name__}"
            )
        self.measure.require_target(self.target)
        given = {name: np.array(values) for name, values in self.given.items()}
        object.__setattr__(self, "given", given)  # frozen, and yet nobody else's
        if self.dtype not in ("float32", "float64"):
            raise OptionError(f"dtype must be float32 or float64, got {self.dtype!r}")

    @property
    def is_program_only(self) -> bool:
        """Whether there is no graph of messages, so that schedules of programs alone run it."""
        return self.make_graph is None

    def require_graph(
        self, what: str, remedy: str = "take the schedule dataflow or out-of-graph"
    ) -> None:
        """Check that there is a graph of messages.

        Args:
            what: needs it, such as "schedule amp".
            remedy: what to try.

        Raises:
            OptionError: the model is a program only.
        """
        if self.is_program_only:
            raise OptionError(
                f"{what} needs a graph of messages, and model {self.name} is a program only; "
                f"{remedy}"
            )

    def __repr__(self) -> str:
        """Name the model, its options that are not as usual, its optimizer and target."""
        options = fields(self.config) if self.config is not None else ()
        told = [
            f"{one.name}={short(value)}"
            for one in options
            if one.repr and short(value := getattr(self.config, one.name)) != short(one.default)
        ]
        parts = [", ".join(told) or "options as usual", self.optimizer.name, self.dtype]
        if self.target is not None:
            parts.append(f"target {self.measure.target_text(self.target)}")
        return f"Model({self.name!r}: {'; '.join(parts)})"

    @property
    def measure(self) -> Metric:
        """The quantity that validation measures, with its unit."""
        return Metric(self.metric, self.error_unit)

    def data(self, seed: int, train_count: int | None = None) -> UserData:
        """Read or generate the data set of `seed`, with `train_count` training items or all.

        What its code raises is told as the user's.

        Raises:
            OptionError: `make_data` returned no data set, or another number of items.
            SimulationError: it failed.
        """
        with single_threaded(), user_code(f"make_data of model {self.name} failed"):
            given = self.make_data(seed, train_count)
        data = UserData(self.name, given)
        if train_count is not None and (count := data.count("train")) > train_count:
            raise OptionError(
                f"make_data of model {self.name} must heed train_count, {train_count}, gave {count}"
            )
        return data

    def error_scale_of(self, data: Dataset[Any]) -> float:
        """Units of error in one unit of the loss's target.

        Raises:
            OptionError: `error_scale` is, or gives, no number above 0.
            SimulationError: it failed.
        """
        scale: Any = self.error_scale
        if callable(scale):
            with single_threaded(), user_code(f"error_scale of model {self.name} failed"):
                scale = scale(data)
        number = as_float(scale)
        if not 0 < number < math.inf:
            raise OptionError(
                f"error_scale of model {self.name} must be above 0, got {short(scale)}"
            )
        return number

    def graph(self, seed: int = 0) -> Graph:
        """Build and verify the graph, with parameters as given or drawn from `seed`.

        Raises:
            GraphError: the graph breaks a rule.
        """
        with single_threaded():
            graph = self.bare_graph()
            for node in graph.parameterized:
                with user_code(f"{node.describe()} has no first weights", GraphError):
                    drawn = node.initialise(stream(seed, f"initialise/{node.seed_name}"))
                    node.adopt_first(drawn, self.dtype)
        if self.given:
            _adopt(graph, self.given, self.dtype)
        return graph

    def bare_graph(self) -> Graph:
        """Build and verify the graph, without parameters; of a program only, its layers alone.

        Raises:
            GraphError: the graph breaks a rule, or has been there before.
        """
        make = self._layers if self.make_graph is None else self.make_graph
        graph = self._made("make_graph", make, Graph, "an ampsim.ir.Graph")
        for node in graph.parameterized:
            of_both = id(self.make_graph or self.make_layers), id(node)
            if of_both in _GIVEN:
                raise GraphError(
                    f"make_graph of model {self.name} must build every node anew whenever it is "
                    f"called; it gave {node.describe()} again, which runs would share"
                )
            _GIVEN[of_both] = node
        with user_code(f"the graph of model {self.name} failed its check", GraphError):
            if self.make_graph is not None:
                graph.verify()
        learners = [node.name for node in graph.parameterized]
        for name in self.node_update_intervals:
            if name not in learners:
                raise OptionError(one_of("learning node in node_update_intervals", name, learners))
        count = sum(node.parameter_count for node in graph.parameterized)
        element_bytes = np.dtype(self.dtype).itemsize
        if count > PARAMETERS_MAX:
            raise OptionError(
                f"model {self.name} has {count:,} parameters, which take "
                f"{count * element_bytes / 1e9:,.0f} GB; take at most {PARAMETERS_MAX:,}"
            )
        for node in graph.nodes:
            node.element_bytes = element_bytes
        return graph

    def _layers(self) -> Graph:
        """The nodes of a program's parameters, which nothing joins."""
        assert self.make_layers is not None, "what has no graph has layers"
        graph = Graph(self.name)
        graph.controller()
        with user_code(f"make_layers of model {self.name} failed", GraphError):
            for node in self.make_layers():
                if not isinstance(cast("object", node), ParameterizedNode):
                    raise GraphError(
                        f"make_layers of model {self.name} must return nodes with parameters, such "
                        f"as ampsim.nodes.Linear, got {short(node)}"
                    )
                graph.branch(node)  # whose ports nothing joins
        return graph

    @property
    def program(self) -> Program:
        """The model as a program.

        Raises:
            OptionError: its file has none.
            GraphError: `make_program` failed, or gave something else.
        """
        if self.make_program is None:
            raise OptionError(
                f"model {self.name} has no program; give make_program in its file "
                "(docs/dataflow.md), or take another schedule, such as sequential"
            )
        return self._made("make_program", self.make_program, Program, "a flow.Program")

    def _made(self, what: str, make: Callable[[], T], kind: type[T], wanted: str) -> T:
        """Call a function of the model's file, which must give something of a kind."""
        with user_code(f"{what} of model {self.name} failed", GraphError):
            made = make()
        if not isinstance(cast("object", made), kind):
            got = type(made).__name__
            raise GraphError(f"{what} of model {self.name} must return {wanted}, got {got}")
        return made

    @checked
    def update_interval(self, node: str) -> int:
        """Gradients between updates that the model prefers for `node`."""
        return self.node_update_intervals.get(node, self.min_update_interval)

    def parameters(self) -> Parameters:
        """Return copies of all parameters as ``{"linear-1.weight": array, …}``.

        A model that was just loaded has those that a run with seed 0 starts from; the model of
        a result has those that its run ended with.
        """
        return parameters_of(self.graph())

    @checked
    def set_parameters(
        self, parameters: Annotated[Mapping[str, Any], "a mapping of names to arrays"]
    ) -> Model:
        """Return this model with every run starting from `parameters`, whatever its seed.

        This model itself is not changed; `parameters` is the inverse.

        Args:
            parameters: an array for each name that `parameters()` has, of the same shape.

        Raises:
            OptionError: a name is missing or unknown, or a shape or number does not fit.
        """
        graph = self.graph()
        _adopt(graph, parameters, self.dtype)
        return self.told_by_config(given=parameters_of(graph))

    def _repr_html_(self) -> str:
        """The options that it was built with, and how it is trained and measured."""
        target = "none" if self.target is None else self.measure.target_text(self.target)
        rows = [
            *([one.name, str(one.value)] for one in options_of(self.config)),
            ["optimizer", self.optimizer.name],
            ["measured by", f"validation {self.metric}, target {target}"],
        ]
        return html_table(f"model {self.name}", rows)

    def told_by_config(self, **fields: Any) -> Model:
        """Return this model with other fields, which are those of its file's `config` still."""
        made = replace(self, **fields)
        object.__setattr__(made, "is_as_loaded", self.is_as_loaded)
        return made


def job_of(model: Model, graph: Graph) -> Job:
    """Return what an engine of messages runs: the model on one of its graphs."""
    assert model.pump is not None, f"model {model.name} is a program only"
    return Job(graph, model.pump, model.optimizer, model.update_interval)


def parameters_of(graph: Graph) -> Parameters:
    """Return copies of all parameters of a graph, by ``NODE.PARAMETER``."""
    return {
        f"{node.name}.{name}": view.copy()
        for node in graph.parameterized
        for name, view in node.views(node.theta).items()
    }


def digest_of(parameters: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over names, data types and numbers."""
    hasher = hashlib.sha256()
    for name in sorted(parameters):
        hasher.update(f"\0{name} {parameters[name].dtype}".encode())
        hasher.update(np.ascontiguousarray(parameters[name]).data)
    return hasher.hexdigest()


def variables_of(graph: Graph) -> Parameters:
    """The parameters of a graph as variables of a program: of replicas, which are alike, once."""
    return {
        f"{layer}.{name}": view
        for layer, node in reversed(_layers_of(graph))
        for name, view in node.views(node.theta).items()
    }


def adopt_variables(graph: Graph, values: Mapping[str, np.ndarray]) -> None:
    """Give a graph what the variables of its program have; replicas get the same."""
    for layer, node in _layers_of(graph):
        parts = [
            values.get(f"{layer}.{name}", view).reshape(-1)
            for name, view in node.views(node.theta).items()
        ]
        node.adopt(np.concatenate(parts))


def _layers_of(graph: Graph) -> list[tuple[str, ParameterizedNode]]:
    """Each node with its layer, which is that of all replicas, or the node's own name."""
    layers = {copy: copy.seed_name for copies in graph.replica_groups for copy in copies}
    return [(layers.get(node, node.name), node) for node in graph.parameterized]


def _adopt(graph: Graph, parameters: Mapping[str, Any], dtype: str) -> None:
    known = [
        f"{node.name}.{name}" for node in graph.parameterized for name in node.parameter_shapes
    ]
    for name in sorted(set(known) ^ set(parameters)):
        what = "is missing" if name in known else "belongs to no node"
        raise OptionError(f"parameter {name!r} {what}; expected: {', '.join(known)}")
    for node in graph.parameterized:
        parts = [
            _fitting(f"{node.name}.{name}", parameters[f"{node.name}.{name}"], shape, dtype)
            for name, shape in node.parameter_shapes.items()
        ]
        node.adopt(np.concatenate(parts))


def _fitting(name: str, value: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    try:
        with np.errstate(over="ignore"):  # what overflows becomes infinite, and is refused
            array = np.array(unmasked(f"parameter {name!r}", value), dtype=dtype)
    except (TypeError, ValueError) as error:
        raise OptionError(f"parameter {name!r} must be an array of numbers: {error}") from None
    if array.shape != shape:
        raise OptionError(f"parameter {name!r} must have shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        raise OptionError(f"parameter {name!r} must be finite in {dtype}, got NaN or infinity")
    return array.reshape(-1)
