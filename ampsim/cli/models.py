"""ampsim models: what there is to train, its options and its graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ampsim.cli import options
from ampsim.cli.say import Code, in_columns, write
from ampsim.errors import OptionError

if TYPE_CHECKING:
    from ampsim.ir import Graph
    from ampsim.study import Model

NameArgument = Annotated[
    str | None,
    typer.Argument(metavar="[NAME|FILE]", help="A shipped name, or a .py file of your own."),
]
GraphOption = Annotated[
    Path | None,
    typer.Option("--graph", metavar="FILE", help="Draw the graph: .png, .svg, .pdf or .dot."),
]


def models(
    name: NameArgument = None,
    *,
    settings: options.SetOption = None,
    graph: GraphOption = None,
) -> Code:
    """List the shipped models, or show one: what it is, its options and the nodes of its graph."""
    if name is None:
        if graph is not None or settings:
            raise OptionError("--graph and --set belong to one model; name it, as in: models rnn")
        write(in_columns(_rows()))
        return Code.FINE
    if graph is not None:
        _prepare(graph)
    model = options.make_model(name, settings)
    built = model.graph()
    if graph is not None:
        _save(built, graph)
        write(f"wrote {graph}")
        return Code.FINE
    write(_text(name, model, built))
    return Code.FINE


def parameter_count(graph: Graph) -> int:
    """Numbers that the graph learns, those of all replicas."""
    return sum(node.theta.size for node in graph.parameterized)


def _rows() -> list[tuple[str, str]]:
    """Name and first line of each shipped model, read without executing it."""
    from ampsim import assets
    from ampsim.study.model_text import docstring_of

    names = assets.names("models")
    texts = [docstring_of(assets.named("models", name)) for name in names]
    return [(name, text.partition("\n")[0]) for name, text in zip(names, texts, strict=True)]


def _text(name: str, model: Model, graph: Graph) -> str:
    from ampsim import assets
    from ampsim.cli.type_words import types_in_words
    from ampsim.study.model_text import docstring_of, options_of

    types = types_in_words(model.config)
    fields = [
        (one.name, types.get(one.name, one.type), f"= {one.value}", one.description)
        for one in options_of(model.config)
    ]
    nodes = [_node_row(node) for node in graph.nodes]
    return "\n".join(
        [
            docstring_of(assets.locate("models", name)),
            "",
            "Options, for --set KEY=VALUE:",
            in_columns(fields, indent="  "),
            "",
            f"Graph: {len(graph.nodes)} nodes, {parameter_count(graph):,} parameters",
            in_columns(nodes, indent="  "),
        ]
    )


def _node_row(node: Any) -> tuple[str, str, str]:
    shapes = getattr(node, "parameter_shapes", {})
    texts = [f"{key} {' x '.join(map(str, shape))}" for key, shape in shapes.items()]
    return node.name, type(node).__name__, ", ".join(texts)


def _prepare(path: Path) -> None:
    """Try the file before any work."""
    from ampsim.files import prepare_file
    from ampsim.report.saving import KNOWN_SUFFIXES

    known = (*KNOWN_SUFFIXES, ".dot")
    if path.suffix.lower() not in known:
        raise OptionError(
            f"cannot draw a graph to {str(path)!r}: its suffix must be one of {', '.join(known)}, "
            f"got {repr(path.suffix) if path.suffix else 'none'}"
        )
    prepare_file(path)


def _save(graph: Graph, path: Path) -> None:
    drawn = graph.to_networkx()
    if path.suffix.lower() == ".dot":
        from ampsim.files import write_text
        from ampsim.report.graph_dot import dot

        write_text(path, dot(drawn))
    else:
        from ampsim.report.graph_picture import draw_graph
        from ampsim.report.saving import save

        save(draw_graph(drawn), path)
