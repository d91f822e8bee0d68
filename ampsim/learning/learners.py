"""Operations of the nodes that learn."""

from __future__ import annotations

import numpy as np

from ampsim.learning.operation import OfLearner, needing
from ampsim.learning.rows import Item
from ampsim.nodes.embedding import require_places
from ampsim.nodes.linear import product_of_few


class OfLinear(OfLearner):
    """x W + b."""

    def forward(self, items: list[Item]) -> None:
        """Compute what items give, and in training keep what is needed."""
        (x,) = self.inputs(items)
        output = product_of_few(x, self.node.weight)
        output += self.node.bias
        self.give(items, output)

    def backward(self, items: list[Item]) -> None:
        """Accumulate, and give inputs their gradients."""
        items, count, rows = needing(items)
        gradient = self.gradient(items)
        (x,) = self.inputs(items)
        self.node.accumulate(items[0].state, x.copy() if len(items) == 1 else x, gradient)
        self.count(items)
        if count:
            self.give_back(items[:count], 0, self.node.back(gradient[:rows]))


class OfLstm(OfLearner):
    """A cell of `ampsim.nodes.lstm_cells`."""

    def forward(self, items: list[Item]) -> None:
        """Compute what items give, and in training keep what is needed."""
        node, payloads, mask = self.node, self.inputs(items), None
        joined = node.joined(payloads)
        if self.is_training and node.dropout:
            mask = np.concatenate([node.mask(item.state, item.rows) for item in items])
        output, kept = node.step(payloads, joined, product_of_few(joined, node.weight), mask)
        factors = node.factors(kept) if self.is_training else None
        self.give(items, output)
        if factors is not None:
            self.keep(items, factors)

    def backward(self, items: list[Item]) -> None:
        """Accumulate, and give inputs their gradients."""
        items, count, rows = needing(items)
        gradient, factors = self.gradient(items), self.of_kept(items)
        slopes, through = self.node.back_by_factors(items[0].state, factors, gradient)
        self.count(items)
        if count:
            backs = self.node.backs_by_factors(factors[:rows], slopes[:rows], through[:rows])
            self.give_all_back(items[:count], backs)


class OfGru(OfLearner):
    """A GRU cell."""

    def forward(self, items: list[Item]) -> None:
        """Compute what items give, and in training keep what is needed."""
        output, kept = self.node.step(self.inputs(items))
        factors = self.node.factors(kept) if self.is_training else None
        self.give(items, output)
        if factors is not None:
            self.keep(items, factors)

    def backward(self, items: list[Item]) -> None:
        """Accumulate, and give inputs their gradients."""
        items, count, rows = needing(items)
        gradient, payloads = self.gradient(items), self.inputs(items)
        if len(items) == 1:
            payloads = [one.copy() for one in payloads]
        slopes = self.node.back_by_factors(items[0].state, payloads, self.of_kept(items), gradient)
        self.count(items)
        if count:
            self.give_all_back(items[:count], self.node.backs_by_factors(slopes[:, :rows]))


class OfEmbedding(OfLearner):
    """Rows of a table."""

    def forward(self, items: list[Item]) -> None:
        """Compute what items give, and in training keep what is needed."""
        (indices,) = self.inputs(items)
        require_places(indices)
        self.give(items, self.node.weight[indices])

    def backward(self, items: list[Item]) -> None:
        """Accumulate, and give inputs their gradients."""
        (indices,) = self.inputs(items)
        self.node.accumulate(items[0].state, indices.copy(), self.gradient(items))
        self.count(items)
