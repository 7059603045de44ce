"""A whole model through PyDirectML's interface: an embedding, two GRU layers (the first bidirectional) and a linear head.

All of it is one submission; intermediate tensors stay on the device. Needs: vkdml
"""

from __future__ import annotations

from typing import Any

import numpy as np

import vkdml.pydirectml as dml

T, B, V, E, H, C = 5, 2, 50, 8, 16, 3  # time steps, batch rows, words, their numbers, hidden units, classes


def main() -> np.ndarray:
    """Return the scores, [1, 1, T B, C]."""
    rng = np.random.default_rng(0)
    device = dml.Device()
    builder = dml.GraphBuilder(device)
    bindings: list[Any] = []

    def given(*sizes: int, data_type: Any = dml.TensorDataType.FLOAT32) -> Any:
        expression = dml.input_tensor(builder, len(bindings), dml.TensorDesc(data_type, list(sizes)))
        floats = data_type == dml.TensorDataType.FLOAT32
        bindings.append(dml.Binding(expression, rng.standard_normal(sizes) * 0.3 if floats else rng.integers(0, V, sizes)))
        return expression

    def layer(x: Any, inputs: int, directions: int, direction: Any) -> Any:
        fused = [dml.FusedActivation(one) for one in (dml.OperatorType.ACTIVATION_SIGMOID, dml.OperatorType.ACTIVATION_TANH)]
        weights = given(1, directions, 3 * H, inputs), given(1, directions, 3 * H, H)
        return dml.gru(x, *weights, activation_descs=fused * directions, direction=direction,
                       output_options=dml.OutputOptions.Sequence).sequence

    words = given(1, 1, T, B, data_type=dml.TensorDataType.UINT32)
    x = dml.gather(given(1, 1, V, E), words, axis=2, index_dimensions=2)  # {1, T, B, E}
    y = layer(x, E, 2, dml.RecurrentNetworkDirection.BIDIRECTIONAL)  # {T, 2, B, H}
    halves = [dml.slice(y, [0, direction, 0, 0], [T, 1, B, H], [1, 1, 1, 1]) for direction in (0, 1)]
    x = dml.reinterpret(dml.join(halves, 3), dml.TensorDataType.FLOAT32, [1, T, B, 2 * H], None)
    y = layer(x, 2 * H, 1, dml.RecurrentNetworkDirection.FORWARD)  # {T, 1, B, H}
    rows = dml.reinterpret(y, dml.TensorDataType.FLOAT32, [1, 1, T * B, H], None)
    bias = dml.reinterpret(given(C), dml.TensorDataType.FLOAT32, [1, 1, T * B, C], [0, 0, 0, 1])  # strides of 0 broadcast
    scores = dml.gemm(rows, given(1, 1, C, H), bias, trans_b=dml.MatrixTransform.TRANSPOSE)
    model = builder.build(dml.ExecutionFlags.NONE, [scores])
    return np.array(device.compute(model, bindings, [scores])[0])


if __name__ == "__main__":
    print(main().shape)  # (1, 1, 10, 3)
