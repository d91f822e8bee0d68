"""What to try instead of operators for which there is no rule."""

from __future__ import annotations

from typing import Final

_LAYER_NORM: Final = "take nn.LayerNorm, or nothing"

_MASK: Final = "give batches of one length, and attention no mask but the causal one"

REMEDIES: Final[dict[str, str]] = {
    "batch_norm": "statistics of a batch mean something else while several are in flight; "
    + _LAYER_NORM
    + "; fold one whose statistics are fixed into the layer before",
    "group_norm": _LAYER_NORM,
    "instance_norm": _LAYER_NORM,
    "avg_pool2d": "take nn.MaxPool2d, or nn.AdaptiveAvgPool2d(1)",
    "eq": _MASK,
    "ne": _MASK,
    "masked_fill": _MASK,
    "embedding_renorm": "leave max_norm out",
    "baddbmm": "pass need_weights=False to nn.MultiheadAttention",
    "bmm": "take F.scaled_dot_product_attention; pass need_weights=False to nn.MultiheadAttention",
    "matmul": "take nn.Linear, or F.scaled_dot_product_attention",
    "softmax": "take F.scaled_dot_product_attention; nn.CrossEntropyLoss has a softmax of its own",
    "binary_cross_entropy_with_logits": "take nn.CrossEntropyLoss() and two classes",
    "cond": "compute both branches, or choose in a model file with Cond",
    "conv3d": "take nn.Conv2d",
    "repeat": "take expand, which holds no copies",
    "detach": "let gradients pass, or leave that part out",
    "elu": "take nn.ReLU, nn.Tanh, nn.Sigmoid or nn.SiLU",
    "gelu": "take nn.ReLU, nn.Tanh, nn.Sigmoid or nn.SiLU",
    "leaky_relu": "take nn.ReLU, nn.Tanh, nn.Sigmoid or nn.SiLU",
    "lstm": "give sequences of one length instead of packed ones",
    "gru": "give sequences of one length instead of packed ones",
    "rnn_relu": "take nn.GRU or nn.LSTM",
    "rnn_tanh": "take nn.GRU or nn.LSTM",
    "rnn_tanh_cell": "take nn.GRUCell or nn.LSTMCell",
    "scan": "write the loop in Python, or as nn.LSTM or nn.GRU",
    "while_loop": "write the loop in Python, or in a model file with Phi and Cond",
    "mean": "leave the mean over the batch to the loss",
    "wrap_with_set_grad_enabled": "let gradients pass, without torch.no_grad()",
    "index_put": "join parts with torch.cat",
    "copy": "join parts with torch.cat",
}
"""What to try instead of an operator for which there is no rule, by its name without overload."""
