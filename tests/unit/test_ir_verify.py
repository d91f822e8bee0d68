"""The rules of the representation: each broken rule names the nodes, ports and shapes."""

import re

import pytest

from ampsim.errors import GraphError
from ampsim.ir import Cond, Graph, Isu, Phi
from ampsim.nodes import Concat, Embedding, Linear, ReLU, SoftmaxCrossEntropy, Ungroup


def same(state):
    return state


def numbered(state, i):
    return (*state, i)


def started(**shapes):
    graph = Graph("g")
    return graph, *graph.controller(**(shapes or {"x": ("rows", 4), "label": ("rows",)}))


def refused(text):
    return pytest.raises(GraphError, match=f"^{re.escape(text)}$")


def test_an_input_without_producer_is_named_with_what_to_do():
    graph, x, label = started()
    loop = Phi("phi", ("start", "again"))
    graph.end(SoftmaxCrossEntropy("loss"), graph.add(loop, x), label)
    with refused("g: input port 'again' of phi (Phi) is not connected; feed it with connect()"):
        graph.verify()


def test_an_output_without_consumer_is_named_with_what_to_do():
    graph, x, label = started()
    yes, _no = graph.branch(Cond("cond", str, ("yes", "no")), x)
    graph.end(SoftmaxCrossEntropy("loss"), yes, label)
    with refused("g: output port 'no' of cond (Cond) is not connected; give its wire to a node"):
        graph.verify()


def test_two_producers_of_one_port_are_both_named():
    graph, x, label = started()
    relu = ReLU("relu")
    out = graph.add(relu, graph.add(ReLU("first"), x))
    graph.connect(graph.add(ReLU("second"), x), relu, "input")
    graph.end(SoftmaxCrossEntropy("loss"), out, label)
    text = (
        "g: input port 'input' of relu (ReLU) has two producers, first and second; "
        "join them with a Phi"
    )
    with refused(text):
        graph.verify()


def looped(join):
    """A loop through `join`, a node with inputs of both kinds; the way out is a Cond's."""
    graph, x, label = started()
    again, last = graph.branch(
        Cond("cond", str, ("again", "last")), graph.add(ReLU("relu"), graph.add(join, x))
    )
    graph.connect(again, join, join.inputs[1])
    graph.end(SoftmaxCrossEntropy("loss"), last, label)
    return graph


def test_a_loop_through_a_phi_is_fine():
    looped(Phi("phi", ("start", "again"))).verify()


def test_a_loop_without_phi_is_spelled_out():
    text = (
        "g: the loop concat -> relu -> cond -> concat has no Phi; "
        "a loop starts at a Phi that joins its first input and what comes around"
    )
    with refused(text):
        looped(Concat("concat", (4, 4))).verify()


def test_a_loop_that_changes_a_shape_is_told_at_its_phi():
    graph, x, label = started()
    phi = Phi("phi", ("start", "again"))
    wide = graph.add(Linear("wider", 4, 5), graph.add(phi, x))
    again, last = graph.branch(Cond("cond", str, ("again", "last")), wide)
    graph.connect(again, phi, "again")
    graph.end(SoftmaxCrossEntropy("loss"), last, label)
    text = (
        "g: phi (Phi) expects one shape at all inputs, got (rows, 4) and (rows, 5) "
        "(fed by controller, cond)"
    )
    with refused(text):
        graph.verify()


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (Linear("n", 3, 2), "n (Linear) expects (rows, 3), got (rows, 4) (fed by before)"),
        (
            Concat("n", (4, 5)),
            "n (Concat) expects (rows, 4) and (rows, 5), got (rows, 4) and (rows, 4) "
            "(fed by before-bcast, before-bcast)",
        ),
        (Ungroup("n", numbered), None),
    ],
)
def test_shapes_that_do_not_fit_are_named_with_their_producers(node, text):
    graph, x, label = started()
    before = graph.add(ReLU("before"), x)
    out = graph.add(node, *[before] * len(node.inputs))
    if text is None:  # one axis less, which the loss then refuses
        text = (
            "loss (SoftmaxCrossEntropy) expects (rows, classes) and (rows,), got (4,) and (rows,) "
            "(fed by n, controller)"
        )
    graph.end(SoftmaxCrossEntropy("loss"), out, label)
    with refused(f"g: {text}"):
        graph.verify()


def test_a_vector_has_no_slices_of_its_own():
    graph, x, label = started(x=("rows",), label=("rows",))
    graph.end(SoftmaxCrossEntropy("loss"), graph.add(Ungroup("cut", numbered), x), label)
    text = "g: cut (Ungroup) expects at least two axes, got (rows,) (fed by controller)"
    with refused(text):
        graph.verify()


def test_a_number_is_no_array_of_indices():
    graph, x, label = started(x=(), label=("rows",))
    graph.end(SoftmaxCrossEntropy("loss"), graph.add(Embedding("e", 3, 2), x), label)
    text = "g: e (Embedding) expects an array of indices, got () (fed by controller)"
    with refused(text):
        graph.verify()


def test_a_number_passes_through_a_phi():
    graph, x, label = started(x=(), label=("rows",))
    phi = Phi("phi", ("only",))
    graph.end(SoftmaxCrossEntropy("loss"), graph.add(phi, x), label)
    with pytest.raises(GraphError, match=r"^g: loss .* got \(\) and \(rows,\)"):
        graph.verify()


def test_a_node_that_nothing_reaches_is_named():
    graph, x, label = started()
    phi = Phi("phi", ("again",))
    round_ = graph.add(Isu("isu", same, same), graph.add(phi))
    graph.connect(round_, phi, "again")
    graph.end(SoftmaxCrossEntropy("loss"), x, label)
    text = (
        "g: no message ever reaches phi (Phi); "
        "follow its inputs back, one of them must come from the controller"
    )
    with refused(text):
        graph.verify()


def test_gradients_are_needed_only_below_something_that_learns():
    graph, x, label = started()
    first = graph.add(Linear("first", 4, 4), graph.add(ReLU("before"), x))
    second = graph.add(Linear("second", 4, 2), graph.add(ReLU("between"), first))
    graph.end(SoftmaxCrossEntropy("loss"), second, label)
    graph.verify()
    needed = {node.name: node.input_needs_gradient for node in graph.nodes}
    assert needed["before"] == needed["first"] == (False,)
    assert needed["between"] == needed["second"] == (True,)
    assert needed["loss"] == (True, False)


def test_a_gradient_needed_in_a_loop_is_needed_all_around_it():
    graph, x, label = started()
    phi = Phi("phi", ("start", "again"))
    again, last = graph.branch(
        Cond("cond", str, ("again", "last")),
        graph.add(Linear("linear", 4, 4), graph.add(phi, x)),
    )
    graph.connect(again, phi, "again")
    graph.end(SoftmaxCrossEntropy("loss"), last, label)
    graph.verify()
    assert phi.input_needs_gradient == (False, True)
    assert graph["linear"].input_needs_gradient == (True,)
