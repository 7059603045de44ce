"""No way in computes with bytes that it was not given: all that runs share is filled with NaN before each of them."""

import numpy as np
import pytest

import vkdml
import vkdml.pydirectml as dml
from tests.faces.support import T, arrays, check
from tests.poison import poisoned  # noqa: F401  (used by each test)
from vkdml.operators import reference
from vkdml_lab.suite.support import DTYPES, SCHEDULES, options

pytestmark = pytest.mark.device

GATES = {"gru": 3, "lstm": 4, "rnn": 1}
EACH = ["chunked", "stepped, fused", "resident, in a buffer", "plain persistent chunked"]  # kind of buffer between dispatches


@pytest.mark.family("each cell in each type")
@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("others", [{}, {"sequence_lens": np.array([T, 0, 2]), "direction": "bidirectional"}])
def test_functions(name, dtype, others, poisoned):  # noqa: F811
    given = arrays(dtype, GATES[name], 2 if "direction" in others else 1) | others
    for _ in range(2):
        check(getattr(vkdml, name)(**given), getattr(reference, name)(**given), dtype)
    assert poisoned[0]


@pytest.mark.family("schedules", first=len(EACH))
@pytest.mark.parametrize("schedule", [*EACH, *(name for name in SCHEDULES if name not in EACH)])
def test_schedules(device, schedule):
    given = arrays("float32")
    check(vkdml.gru(**given, options=options(device, schedule)), reference.gru(**given), "float32")


def test_streams():
    given = arrays("float32")
    layer, x = vkdml.GRU(given["w"], given["r"], given["b"]), given["x"]
    stream, expected = layer.stream(x.shape[1]), layer(x)[0]
    np.testing.assert_allclose([stream.step(row) for row in x], expected[:, 0], atol=1e-6)


@pytest.mark.parametrize(("sizes", "total", "read", "data_type"), [
    (4, 32, 8, dml.FLOAT32), (8, None, 8, dml.FLOAT32), (3, None, 4, dml.FLOAT16)])
def test_a_binding_of_a_part(sizes, total, read, data_type):
    """What it leaves out is 0, be it less than the input or less than what an operator reads of the input."""
    device = dml.Device()
    builder = dml.GraphBuilder(device)
    x = dml.input_tensor(builder, 0, dml.TensorDesc(data_type, dml.TensorFlags.NONE, [1, 1, 1, sizes], None, total, 0) if total
                         else dml.TensorDesc(data_type, [1, 1, 1, sizes]))
    y = dml.activation_identity(dml.reinterpret(x, data_type, [1, 1, 1, read], None))
    model = builder.build(dml.ExecutionFlags.NONE, [y])
    part = x if sizes < read else dml.reinterpret(x, data_type, [1, 1, 1, sizes // 2], None)
    count = min(sizes, part.get_output_desc().sizes[-1])
    (found,) = device.compute(model, [dml.Binding(part, np.ones(count, np.float32))], [y])
    np.testing.assert_array_equal(found.ravel(), np.arange(read) < count)
