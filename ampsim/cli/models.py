"""`ampsim models`: list the models, or show one."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ampsim
from ampsim import assets
from ampsim.cli import options
from ampsim.cli.console import Code, answer, hold, in_columns, object_of, width
from ampsim.errors import OptionError
from ampsim.files import prepared_file, write_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsim.ir import Graph, Node


def models(
    name: str | None = None,
    *,
    settings: list[str] | None = None,
    graph: Path | None = None,
    json: str | None = None,
) -> Code:
    """List the shipped models, or show one: what it is, its options and the nodes of its graph.

    The object of --json: ampsim, models (a list: name, description, options, nodes, parameters,
    cc_ratio; the last four are null unless one model is named). CC ratio: FLOP of a forward pass,
    an item of the first batch in the mean, over parameters; null where the data are not there.
    """
    if name is None:
        if graph is not None or settings:
            raise OptionError("--graph and --set belong to one model; name it, as in: models rnn")
        rows = [(one, _first_line(one)) for one in assets.names("models")]
        answer(
            json,
            lambda: object_of(models=[_plain(*row) for row in rows]),
            lambda: in_columns(rows),
        )
        return Code.FINE
    if graph is not None:
        if graph.suffix.lower() != ".dot":
            raise OptionError(
                f"cannot write a graph to {str(graph)!r}: its suffix must be .dot, got "
                f"{graph.suffix or 'none'!r}; Graphviz makes a picture of that: dot -Tsvg -O "
                "FILE.dot"
            )
        hold(prepared_file(graph))
    model = options.make_model(name, settings)
    built = model.graph()
    if graph is not None:
        model.require_graph("--graph", "leave it out, and see its layers and options")
        from ampsim.report.dot import dot

        write_text(graph, dot(built.to_networkx()))
    answer(
        json,
        lambda: object_of(models=[_plain(name, _first_line(name), model, built)]),
        lambda: _text(name, model, built) if graph is None else f"wrote {graph}",
    )
    return Code.FINE


def parameter_count(graph: Graph) -> int:
    """Numbers that the graph learns, those of all replicas."""
    return sum(node.theta.size for node in graph.parameterized)


def _docstring(name: str) -> str:
    from ampsim.study.model import docstring_of

    return docstring_of(assets.locate("models", name))


def _first_line(name: str) -> str:
    return _docstring(name).partition("\n")[0]


def _in_lines(text: str) -> str:
    """Paragraphs and points of a docstring, in lines as wide as the output, at most 100."""
    joined = re.sub(r"(?<=\S)\n {0,2}(?=[^\s*])", " ", text)
    room = min(width(), 100)
    return "\n".join(
        textwrap.fill(line, room, subsequent_indent="  " * line.startswith("* "))
        for line in joined.split("\n")
    )


def _plain(
    name: str, description: str, model: ampsim.Model | None = None, graph: Graph | None = None
) -> dict[str, Any]:
    """A model as plain values; what is not known without building it is None."""
    from ampsim.forecasting.forecast import cc_ratio
    from ampsim.study.model import options_of

    of_option, of_node = ("name", "type", "value", "description"), ("name", "type", "parameters")
    fields = None if model is None else options_of(model.config)
    nodes = None if model is None or graph is None else map(_node_row, _shown(model, graph))
    return {
        "name": name,
        "description": description,
        "options": fields
        and [{key: str(getattr(one, key)) for key in of_option} for one in fields],
        "nodes": nodes and [dict(zip(of_node, node, strict=True)) for node in nodes],
        "parameters": None if graph is None else parameter_count(graph),
        "cc_ratio": None if model is None else cc_ratio(model),
    }


def _text(name: str, model: ampsim.Model, graph: Graph) -> str:
    from ampsim.dataflow import PROGRAMS
    from ampsim.study.loading import types_in_words
    from ampsim.study.model import options_of

    types = types_in_words(model.config)
    fields = [
        (one.name, types.get(one.name, one.type), f"= {one.value}", one.description)
        for one in options_of(model.config)
    ]
    shown = _shown(model, graph)
    nodes = [_node_row(node) for node in shown]
    kind, noun = ("Program", "layer") if model.is_program_only else ("Graph", "node")
    has_both = model.make_program is not None and not model.is_program_only
    what = f"{kind}: {len(shown)} {noun}{'s' * (len(shown) != 1)}"
    return "\n".join(
        [
            _in_lines(_docstring(name)),
            "",
            "Options, for --set KEY=VALUE:",
            in_columns(fields, indent="  "),
            "",
            f"{what}, {parameter_count(graph):,} parameters; CC ratio {_ratio(model)}",
            in_columns(nodes, indent="  "),
            *[f"Also a program of the same parameters: --schedule {','.join(PROGRAMS)}"] * has_both,
        ]
    )


def _ratio(model: ampsim.Model) -> str:
    from ampsim.forecasting.forecast import cc_ratio

    ratio = cc_ratio(model)
    if ratio is not None:
        return f"{ratio:.3g}"
    has_own = model.is_program_only and model.program.train is not None
    return (
        "unknown, as it trains by a program of its own" if has_own else "unknown without the data"
    )


def _shown(model: ampsim.Model, graph: Graph) -> Sequence[Node]:
    """The nodes that are shown: of a program only, its layers."""
    return graph.parameterized if model.is_program_only else graph.nodes


def _node_row(node: Any) -> tuple[str, str, str]:
    shapes = getattr(node, "parameter_shapes", {})
    texts = [f"{key} {' x '.join(map(str, shape))}" for key, shape in shapes.items()]
    return node.name, type(node).__name__, ", ".join(texts)
