"""The steps of an estimator as ONNX graphs: embedding, one layer, head, tagger.

The graphs are the arithmetic alone, a few kilobytes. Their weights are named but lie in the safetensors file
of the model folder, and the same graph serves every layer. Sequences of a batch have one length, so that
there is no padding and no mask: what a row gets does not depend on its neighbours, to the last bit.

Quantised matrix products scale each token by its own largest number, for the same reason. Weights and tokens
are bytes, sums are whole numbers, and the two scales are multiplied back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from doubtless.errors import InputError
from doubtless.neural.config import ModelConfig
from doubtless.neural.stepper import Array

Inputs = Mapping[str, tuple[int, Sequence[Any]]]

_MICROSOFT = "com.microsoft"
_TINY = 1e-12

_LOWEST_GELU = 0.17
"""Gaussian error linear units are never below -0.16998: most of a byte is left for what is above zero."""

_ACTIVATIONS = {
    "ELU": "Elu",
    "GELU": "Gelu",
    "Identity": "Identity",
    "LeakyReLU": "LeakyRelu",
    "ReLU": "Relu",
    "SELU": "Selu",
    "Sigmoid": "Sigmoid",
    "SiLU": "",
    "Softplus": "Softplus",
    "Tanh": "Tanh",
}


class _Graph:
    """A graph that is being written: nodes, small constants and the names of weights."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}

    def op(self, kind: str, *inputs: str, output: str = "", domain: str = "", **attributes: Any) -> str:
        """Add a node with one output and return the output's name."""
        name = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], domain=domain, **attributes))
        return name

    def constant(self, value: Any, kind: Any) -> str:
        """A number or a list of numbers that is part of the graph."""
        array = np.asarray(value, dtype=kind)
        name = f"constant_{array.dtype}_{'_'.join(map(str, array.ravel()))}_{array.ndim}"
        self.initializers[name] = numpy_helper.from_array(array, name)
        return name

    def weight(self, name: str) -> str:
        """A weight of the model, by its name below the step's own prefix."""
        array = self.weights[name]
        tensor = onnx.TensorProto(
            name=name, dims=array.shape, data_type=helper.np_dtype_to_tensor_dtype(array.dtype)
        )
        # Where it lies is nobody's business here: the runtime hands it over by its name.
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="model.safetensors")
        self.initializers[name] = tensor
        return name

    def has(self, name: str) -> bool:
        """Whether the step has such a weight."""
        return name in self.weights

    def normalised(self, state: str, layer: str, epsilon: float, output: str = "") -> str:
        """Layer normalisation."""
        weight, bias = self.weight(f"{layer}.weight"), self.weight(f"{layer}.bias")
        return self.op("LayerNormalization", state, weight, bias, epsilon=epsilon, output=output)

    def linear(self, tokens: str, layers: Sequence[str], *, gelu: bool = False) -> list[str]:
        """Linear layers on the same tokens; ``gelu`` says that these are what a GELU gave."""
        if self.weights[f"{layers[0]}.weight"].dtype != np.int8:
            return [
                self.op("Gemm", tokens, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"), transB=1)
                for name in layers
            ]
        data, scale, zero = self._bytes(tokens, layers[0].rpartition(".")[0], gelu)
        column = self.op("Unsqueeze", scale, self.constant([1], np.int64))
        found = []
        for name in layers:
            weight, factor = self.weight(f"{name}.weight"), self.weight(f"{name}.scale")
            one = self.constant(1.0, np.float32)
            product = self.op("MatMulIntegerToFloat", data, weight, one, factor, zero, domain=_MICROSOFT)
            found.append(self.op("Add", self.op("Mul", product, column), self.weight(f"{name}.bias")))
        return found

    def _bytes(self, tokens: str, module: str, gelu: bool) -> tuple[str, str, str]:
        """Tokens as bytes, the scale of each token, and the byte that means zero."""
        if self.has(f"{module}.smooth"):
            tokens = self.op("Mul", tokens, self.weight(f"{module}.smooth"))
        largest = self.op("ReduceMax", tokens, axes=[1], keepdims=0)
        below, least = (32, _LOWEST_GELU / 32) if gelu else (128, _TINY)
        if not gelu:
            smallest = self.op("ReduceMin", tokens, axes=[1], keepdims=0)
            largest = self.op("Max", largest, self.op("Neg", smallest))
        steps = self.constant(1 / (255 - below), np.float32)
        scale = self.op("Max", self.op("Mul", largest, steps), self.constant(least, np.float32))
        # One zero a token, because the operator wants as many as there are scales.
        zeros = self.op("Expand", self.constant([below], np.uint8), self.op("Shape", scale))
        data = self.op("QuantizeLinear", tokens, scale, zeros, axis=0)
        return data, scale, self.constant(below, np.uint8)

    def model(self, inputs: Inputs, outputs: Sequence[str]) -> bytes:
        """The finished graph; outputs are floats of whatever shape."""
        given = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "step", given, made, list(self.initializers.values()))
        versions = [helper.make_opsetid("", 17), helper.make_opsetid(_MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=versions, ir_version=8, producer_name="doubtless")
        return model.SerializeToString()


def _below(weights: Mapping[str, Array], prefix: str) -> _Graph:
    return _Graph({k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)})


def embedding_graph(
    weights: Mapping[str, Array], prefix: str, encoder: Mapping[str, Any], kinds_after: int
) -> bytes:
    """From tokens (texts, tokens) and their ``words``, the rows of the large table, to the first state.

    The table is left to the caller: a session would copy all of it, and most of it is never asked for.
    """
    graph = _below(weights, prefix)
    positions = graph.op("Gather", graph.weight("position_embeddings.weight"), _positions(graph, encoder))
    kinds = graph.op("Gather", graph.weight("token_type_embeddings.weight"), _kinds(graph, kinds_after))
    state = graph.op("Add", graph.op("Add", "words", kinds), positions)
    graph.normalised(state, "LayerNorm", float(encoder["layer_norm_eps"]), output="hidden")
    inputs: Inputs = {
        "ids": (TensorProto.INT64, ["texts", "tokens"]),
        "words": (TensorProto.FLOAT, ["texts", "tokens", int(encoder["hidden_size"])]),
    }
    return graph.model(inputs, ["hidden"])


def _positions(graph: _Graph, encoder: Mapping[str, Any]) -> str:
    """The place of each token; the RoBERTa family counts from the padding id on, and not the padding."""
    if encoder["model_type"] == "bert":
        ones = graph.op("Equal", "ids", "ids")
        before = -1
    else:
        before = int(encoder["pad_token_id"])
        ones = graph.op("Not", graph.op("Equal", "ids", graph.constant(before, np.int64)))
    counted = graph.op("Cast", ones, to=TensorProto.INT64)
    places = graph.op("CumSum", counted, graph.constant(1, np.int64))
    return graph.op("Add", graph.op("Mul", places, counted), graph.constant(before, np.int64))


def _kinds(graph: _Graph, kinds_after: int) -> str:
    """BERT's kinds of tokens: 1 after the first separator, 0 up to it."""
    if kinds_after < 0:
        return graph.constant([0], np.int64)
    separators = graph.op("Equal", "ids", graph.constant(kinds_after, np.int64))
    counted = graph.op("Cast", separators, to=TensorProto.INT64)
    before = graph.op("CumSum", counted, graph.constant(1, np.int64), exclusive=1)
    return graph.op("Min", before, graph.constant(1, np.int64))


def layer_graph(weights: Mapping[str, Array], prefix: str, encoder: Mapping[str, Any]) -> bytes:
    """One transformer layer of the BERT family, from ``hidden`` (texts, tokens, size) to the next."""
    graph = _below(weights, prefix)
    size, heads = int(encoder["hidden_size"]), int(encoder["num_attention_heads"])
    epsilon = float(encoder["layer_norm_eps"])
    flat = graph.constant([-1, size], np.int64)
    shape = graph.op("Shape", "hidden")
    texts = graph.op("Slice", shape, graph.constant([0], np.int64), graph.constant([2], np.int64))
    split = graph.op("Concat", texts, graph.constant([heads, size // heads], np.int64), axis=0)

    def heads_of(projected: str) -> str:
        return graph.op("Transpose", graph.op("Reshape", projected, split), perm=[0, 2, 1, 3])

    tokens = graph.op("Reshape", "hidden", flat)
    parts = graph.linear(tokens, [f"attention.self.{name}" for name in ("query", "key", "value")])
    query, key, value = (heads_of(part) for part in parts)
    alpha = (size // heads) ** -0.5
    match = graph.op("FusedMatMul", query, key, domain=_MICROSOFT, alpha=alpha, transB=1)
    mixed = graph.op("MatMul", graph.op("Softmax", match, axis=-1), value)
    mixed = graph.op("Reshape", graph.op("Transpose", mixed, perm=[0, 2, 1, 3]), flat)
    (attended,) = graph.linear(mixed, ["attention.output.dense"])
    tokens = graph.normalised(graph.op("Add", attended, tokens), "attention.output.LayerNorm", epsilon)
    (inner,) = graph.linear(tokens, ["intermediate.dense"])
    (outer,) = graph.linear(graph.op("Gelu", inner, domain=_MICROSOFT), ["output.dense"], gelu=True)
    last = graph.op("Reshape", graph.op("Add", outer, tokens), shape)
    graph.normalised(last, "output.LayerNorm", epsilon, output="next")
    return graph.model({"hidden": (TensorProto.FLOAT, ["texts", "tokens", size])}, ["next"])


def head_graph(
    weights: Mapping[str, Array], prefix: str, modules: Sequence[str], config: ModelConfig, size: int
) -> bytes:
    """From the tokens at an exit and the ``shares`` they have in each pooled vector to the named outputs.

    ``modules`` are the names of the classes of the head's modules, in their order.
    """
    graph = _below(weights, prefix)
    pooled = graph.op("MatMul", "shares", "hidden")
    parts = [graph.op("Gather", pooled, graph.constant(i, np.int64), axis=1) for i in range(_parts(config))]
    raw = parts[0]
    if len(parts) > 1:
        mt, other = parts
        difference = graph.op("Abs", graph.op("Sub", mt, other))
        raw = graph.op("Concat", mt, other, graph.op("Mul", mt, other), difference, axis=1)
    for number, module in enumerate(modules):
        if module == "Linear":
            (raw,) = graph.linear(raw, [f"layers.{number}"])
        elif module != "Dropout":
            raw = _activated(graph, module, raw)
    outputs = _outputs(graph, config, raw)
    inputs: Inputs = {
        "hidden": (TensorProto.FLOAT, ["texts", "tokens", size]),
        "shares": (TensorProto.FLOAT, ["texts", len(parts), "tokens"]),
    }
    return graph.model(inputs, outputs)


def _parts(config: ModelConfig) -> int:
    return 2 if config.pooling == "parts" else 1


def _activated(graph: _Graph, module: str, raw: str) -> str:
    if module not in _ACTIVATIONS:
        raise InputError(f"the activation {module} cannot be exported")
    if module == "SiLU":
        return graph.op("Mul", raw, graph.op("Sigmoid", raw))
    return graph.op(_ACTIVATIONS[module], raw, domain=_MICROSOFT if module == "GELU" else "")


def _outputs(graph: _Graph, config: ModelConfig, raw: str) -> list[str]:
    """Name the numbers of a head, on the humans' scale: the graph of ``heads.outputs_of``."""
    own = config.width - len(config.auxiliary)
    sd, mean = config.score_sd, config.score_mean

    def column(number: int | list[int], source: str = raw) -> str:
        return graph.op("Gather", source, graph.constant(number, np.int64), axis=1)

    def named(name: str, value: str, scale: float = 1.0, move: float = 0.0) -> str:
        scaled = graph.op("Mul", value, graph.constant(scale, np.float32))
        return graph.op("Add", scaled, graph.constant(move, np.float32), output=name)

    found = []
    if config.outputs == "quantiles":
        rises = graph.op("Softplus", column(list(range(1, own))))
        steps = graph.op("Concat", column([0]), rises, axis=1)
        quantiles = graph.op("CumSum", steps, graph.constant(1, np.int64))
        middle = min(range(own), key=lambda i: abs(config.quantile_levels[i] - 0.5))
        found += [
            named("score", column(middle, quantiles), sd, mean),
            named("quantiles", quantiles, sd, mean),
        ]
    else:
        found.append(named("score", column(0), sd, mean))
    if config.outputs == "mean+variance":
        positive = graph.op("Add", graph.op("Softplus", column(1)), graph.constant(1e-6, np.float32))
        found.append(named("variance", positive, sd**2))
    elif config.outputs != "quantiles":
        kinds = config.outputs.split("+")
        found += [named(kind, column(number), sd) for number, kind in enumerate(kinds) if number > 0]
    return found + [named(name, column(own + i)) for i, name in enumerate(config.auxiliary)]


def tagger_graph(weights: Mapping[str, Array], prefix: str, size: int) -> bytes:
    """From tokens (texts, tokens, size) to the probabilities of their tags."""
    graph = _below(weights, prefix)
    turned = graph.op("Transpose", graph.weight("weight"), perm=[1, 0])
    logits = graph.op("Add", graph.op("MatMul", "hidden", turned), graph.weight("bias"))
    graph.op("Softmax", logits, axis=-1, output="tags")
    return graph.model({"hidden": (TensorProto.FLOAT, ["texts", "tokens", size])}, ["tags"])
