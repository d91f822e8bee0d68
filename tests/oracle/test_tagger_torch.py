"""Gradients of the whole tagger equal PyTorch's, in whatever order the messages arrive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from torch_oracle import torch

from ampsim import Amp, load_model, simulate
from ampsim.data import Sentence
from ampsim.optim import Optimizer, constant

pytestmark = pytest.mark.slow  # PyTorch takes over a second to load

SIZES = {"word_width": 6, "character_width": 3, "hidden": 4, "tanh_units": 5}
ROWS = {"words": 9, "characters": 8, "tags": 4}
WORKERS = 9
NEVER = 10**9
SEEDS = {1: range(2), 8: range(4, 10)}
"""By instances in flight: draws of latencies; one instance alone arrives in few orders."""

SENTENCES = (
    (3,),  # one word, frequent
    ("bcb",),  # one word, rare
    ("bcb", "bddfb", "bcb", "bb"),  # only rare, one of them twice, one without a letter
    (1, 2, 1, 7, 1),  # only frequent, one of them three times
    (5, "bcdefgb"),
    ("bhb", 2),
    (4, "bfegcb", "bdb", 4, 8, "bdb", 1, 1, "bccccccb", 6, 2),
    tuple(1 + i % 8 if i % 5 else "bcdeb" for i in range(31)),
)
"""A frequent word is its number, a rare one is spelled."""


def sentence_of(words: tuple[int | str, ...]) -> Sentence:
    ids = [word if isinstance(word, int) else 0 for word in words]
    spelled = ["b" if isinstance(word, int) else word for word in words]
    return Sentence(
        np.array(ids, np.intp),
        np.array(ids) > 0,
        tuple(np.array([ord(one) - ord("a") for one in word], np.intp) for word in spelled),
        np.arange(len(words)) ** 2 % ROWS["tags"],
    )


@dataclass(frozen=True)
class EverySize:
    """The sentences above, in an order of the seed."""

    name = "every size"
    description = "random words"

    def batch_count(self, split: str) -> int:
        return len(SENTENCES) if split == "train" else 2

    def count(self, split: str) -> int:
        return self.batch_count(split)

    def batches(self, split: str, *, epoch: int, seed: int) -> Iterator[Sentence]:
        order = np.random.default_rng(seed).permutation(len(SENTENCES))
        return (sentence_of(SENTENCES[i]) for i in order[: self.batch_count(split)])


def tagger(cell: str = "fused") -> Any:
    """The shipped model; after a pass, its "parameters" are the gradients it accumulated."""
    model = load_model("bilstm_tagger", **SIZES, **ROWS, cell=cell, dtype="float64")
    keep = Optimizer("keep", constant(1.0), lambda _theta: (), lambda g, s, _theta, _rate: (g, s))
    return replace(model, optimizer=keep, make_data=lambda _seed, _count: EverySize())


def read(p: dict[str, Any], name: str, rows: Any) -> list[Any]:
    """Return h of an LSTM after each row, (1, units)."""
    weight, bias = p[f"{name}.weight"], p[f"{name}.bias"]
    units = bias.shape[0] // 4
    h = c = torch.zeros(1, units, dtype=torch.float64)
    said: list[Any] = []
    for row in rows:
        gates = torch.cat([row[None], h], dim=1) @ weight + bias
        o, i, f, g = gates.split(units, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        said.append(h)
    return said


def loss_of(p: dict[str, Any], sentence: Sentence) -> Any:
    represented: list[Any] = []
    for word, is_frequent, characters in zip(
        sentence.words.tolist(), sentence.frequent.tolist(), sentence.characters, strict=True
    ):
        if is_frequent:
            represented.append(p["word-embedding.weight"][word][None])
            continue
        letters = p["character-embedding.weight"][torch.tensor(characters)]
        ahead, back = (
            read(p, "character-forward", letters),
            read(p, "character-backward", letters.flip(0)),
        )
        represented.append(torch.cat([ahead[-1], back[-1]], dim=1))
    words = torch.cat(represented)
    ahead, back = read(p, "word-forward", words), read(p, "word-backward", words.flip(0))
    both = torch.cat([torch.cat(ahead), torch.cat(back[::-1])], dim=1)
    hidden = torch.tanh(both @ p["hidden.weight"] + p["hidden.bias"])
    logits = hidden @ p["tags.weight"] + p["tags.bias"]
    return torch.nn.functional.cross_entropy(logits, torch.tensor(sentence.tags))


@pytest.fixture(scope="module")
def oracle() -> dict[str, Any]:
    """Sum over sentences of the gradient of each one's loss, by automatic differentiation."""
    p = {name: torch.tensor(v, requires_grad=True) for name, v in tagger().parameters().items()}
    for words in SENTENCES:
        loss_of(p, sentence_of(words)).backward()
    return {name: tensor.grad.numpy() for name, tensor in p.items()}


def order_of(result: Any) -> tuple[Any, ...]:
    products = ["word-forward", "word-forward-o", "character-backward", "character-backward-o"]
    spans = result.spans[result.spans["node"].isin(products)]
    return tuple(zip(spans["node"], spans["direction"], spans["instance"], strict=True))


def close(found: Any, expected: Any) -> None:
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("cell", ["fused", "composed", "by-gate"])
@pytest.mark.parametrize("in_flight", SEEDS)
def test_gradients_equal_automatic_differentiation_for_any_order_of_arrival(
    random_cluster, as_fused, oracle, in_flight, cell
):
    """Of tables, in the rows looked up; the others stay as they were."""
    model, orders = tagger(cell), set()
    initial = as_fused(model.parameters())
    for seed in SEEDS[in_flight]:
        cluster = random_cluster(WORKERS, seed=seed, latency_s_max=1e-7)
        schedule = Amp(max_active_keys=in_flight, min_update_interval=NEVER)
        result = simulate(model, cluster, schedule)
        assert len(result.updates) == (20 if cell == "by-gate" else 8), (
            "each node updates once, after the pass"
        )
        for name, found in as_fused(result.model.parameters()).items():
            if "embedding" in name:
                touched = oracle[name].any(axis=1)
                assert 0 < touched.sum() < len(touched)
                assert (found[~touched] == initial[name][~touched]).all()
                close(found[touched], oracle[name][touched])
            else:
                close(found, oracle[name])
        orders.add(order_of(result))
    if in_flight > 1:
        assert len(orders) > len(SEEDS[in_flight]) / 2, (
            "the latencies hardly changed the order of arrival"
        )
