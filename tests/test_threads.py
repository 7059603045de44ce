"""Threads, processes and asyncio: calls from several at once give what they give one by one, to the bit."""

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'vkdml[torch]'")

import vkdml
import vkdml.pydirectml as dml
import vkdml.torch
from tests.engine.ready import bind, recorded
from tests.faces.onnx.support import model, weights
from tests.threads import together
from vkdml.onnx import InferenceSession
from vkdml_lab.suite.support import gru_desc, random_arrays

pytestmark = pytest.mark.device

THREADS = 8
T, B, I, H = 5, 2, 3, 4
INPUTS = [np.random.default_rng(seed).standard_normal((T, B, I), np.float32) for seed in range(4)]


def weights_of(gates, seed=0):
    rng = np.random.default_rng(seed)
    return [(0.5 * rng.standard_normal(shape)).astype(np.float32) for shape in ((1, gates * H, I), (1, gates * H, H))]


# A way in: what all threads share -> what a call with one of INPUTS gives

def functions():
    """Two sets of weights in turns, so that they are packed again or found."""
    sets = [weights_of(3), weights_of(3, 1)]
    return lambda x: vkdml.gru(x, *sets[int(abs(x[0, 0, 0]) * 100) % 2])[0]


def lengths():
    """Of the sequence, another one in each call."""
    w, r = weights_of(3)
    return lambda x: vkdml.gru(x[:1 + int(abs(x[0, 0, 0]) * 100) % T], w, r)[1]


def layers():
    layer = vkdml.LSTM(*weights_of(4))
    return lambda x: layer(x)[2]


def streams():
    """A layer's, one for each call."""
    layer = vkdml.RNN(*weights_of(1))

    def call(x):
        stream = layer.stream(B)
        return np.stack([stream.step(step) for step in x])

    return call


def onnx_sessions():
    session = InferenceSession(model("""g (float[T,B,3] x) => (float[T,D,B,4] y, float[D,B,4] h) {
        a = Tanh (x)  z, h = GRU <hidden_size=4> (a, W, R, B)  y = Neg (z) }""", weights()).SerializeToString())
    return lambda x: session.run(None, {"x": x})[0]


def torch_twins():
    torch.manual_seed(0)
    twin = vkdml.torch.convert(torch.nn.GRU(I, H, 2).eval())

    def call(x):
        with torch.inference_mode():
            return twin(torch.from_numpy(x))[0].numpy()

    return call


def pydirectml():
    """A graph for each call, of a device that all share."""
    device = dml.Device()

    def call(x):
        builder = dml.GraphBuilder(device)
        given = dml.input_tensor(builder, 0, dml.TensorDesc(dml.TensorDataType.FLOAT32, [1, *x.shape]))
        y = dml.activation_tanh(dml.activation_sigmoid(given))
        return device.compute(builder.build(dml.ExecutionFlags.NONE, [y]), [dml.Binding(given, x)], [y])[0]

    return call


def life_cycle():
    """A compiled operator that all share, with a recorder and buffers for each call."""
    device = vkdml.Device()
    desc = gru_desc(T, B, I, H)
    compiled = device.compile_operator(device.create_operator(desc))
    arrays = random_arrays(desc, np.random.default_rng(0))

    def call(x, execute=lambda recorder: recorder.execute()):
        given = {**arrays, "InputTensor": x}
        outputs = [device.create_buffer(compiled.problem.tensor(field).size_in_bytes) for field in compiled.output_fields]
        execute(recorded(device, bind(device, compiled, [device.upload(given[field]) for field in compiled.input_fields], outputs)))
        return outputs[0].download((T, B, H))

    return call


WAYS = [functions, lengths, layers, streams, onnx_sessions, torch_twins, pydirectml, life_cycle]


@pytest.mark.parametrize("calls", [160, pytest.param(1000, marks=pytest.mark.thorough)])
def test_all_ways_in_from_many_threads(calls):
    """Each thread goes through them in an order of its own; results have the bits that they have in one thread."""
    ways = [way() for way in WAYS]
    jobs = [(way, x) for way in range(len(ways)) for x in range(len(INPUTS))]
    expected = {(way, x): ways[way](INPUTS[x]).tobytes() for way, x in jobs}
    def work(thread):
        rng = np.random.default_rng(thread)
        for job in rng.integers(len(jobs), size=calls // THREADS):
            way, x = jobs[job]
            if ways[way](INPUTS[x]).tobytes() != expected[way, x]:
                yield WAYS[way].__name__

    assert [name for names in together(THREADS, lambda thread: list(work(thread))) for name in names] == []


def test_threads_that_come_first_together():
    """Nothing is made before: each asks for the same new session, network and pipelines."""
    w, r = weights_of(3, 7)
    assert len(set(together(THREADS, lambda _: vkdml.gru(INPUTS[0], w, r, clip=0.7)[0].tobytes()))) == 1


def test_errors_of_some_threads_are_their_own():
    call, w = functions(), weights_of(3)
    expected = call(INPUTS[0]).tobytes()

    def work(number):
        if number % 2:
            with pytest.raises(vkdml.InvalidArgumentError):
                vkdml.gru(INPUTS[0][..., :2], *w)
            return expected
        return call(INPUTS[0]).tobytes()

    with ThreadPoolExecutor(THREADS) as pool:
        assert set(pool.map(work, range(40))) == {expected}


def test_asyncio():
    """Calls in an executor, and executions that are waited for there, leave the loop free."""
    call, record = functions(), life_cycle()
    expected = [(call(x).tobytes(), record(x).tobytes()) for x in INPUTS]

    async def both(x):
        loop = asyncio.get_running_loop()
        of_function = loop.run_in_executor(None, call, x)
        executed = loop.run_in_executor(None, record, x, lambda recorder: recorder.execute_async().wait())
        return (await of_function).tobytes(), (await executed).tobytes()

    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.create_task(tick())
        found = await asyncio.gather(*map(both, INPUTS * 5))
        ticking.cancel()
        return found, ticks

    found, ticks = asyncio.run(main())
    assert found == expected * 5
    assert ticks > 0


OF_A_PROCESS = """
import sys
import numpy as np
import vkdml
x, w, r = (np.load(sys.argv[1])[name] for name in "xwr")
assert len({vkdml.gru(x, w, r)[0].tobytes() for _ in range(100)}) == 1
np.save(sys.argv[2], vkdml.gru(x, w, r)[0])
"""


def test_two_processes_on_a_device(tmp_path):
    w, r = weights_of(3)
    np.savez(tmp_path / "given.npz", x=INPUTS[0], w=w, r=r)
    results = [tmp_path / f"{number}.npy" for number in range(2)]
    root = Path(__file__).resolve().parents[1]
    processes = [subprocess.Popen([sys.executable, "-c", OF_A_PROCESS, str(tmp_path / "given.npz"), str(result)], cwd=root)
                 for result in results]
    assert [process.wait(200) for process in processes] == [0, 0]
    expected = vkdml.gru(INPUTS[0], w, r)[0]
    for result in results:
        np.testing.assert_array_equal(np.load(result), expected)
