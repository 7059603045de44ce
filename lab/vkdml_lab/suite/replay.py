"""Runs the driver calls of replay.json with numpy and kp alone. kp is vkdml's if vkdml is installed: python replay.py [INDEX OF
A DEVICE]

Prints "right", or the first wrong element of each wrong output. The exit code is 0 or 1.
"""

import json
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

import numpy as np

TRIES = 5  # runs if workgroups give up waiting
HERE = Path(__file__).resolve().parent

# Finds vkdml's kp without importing vkdml
found = PathFinder.find_spec("_kp", [str(Path(folder, "vkdml/engine/vulkan")) for folder in sys.path]) or PathFinder.find_spec("kp")
if found is None or found.loader is None:
    raise SystemExit("Kompute's Python package is missing: pip install kp, or install vkdml, which has it inside")
kp = module_from_spec(found)
found.loader.exec_module(kp)


def bytes_of(file):
    return np.frombuffer((HERE / file).read_bytes(), np.uint32)


def run(manager, content):
    """Run all submissions. Returns the tensors with their final contents."""
    tensors = [manager.tensor_t(np.zeros(buffer["bytes"] // 4, np.uint32), kp.TensorTypes.device) for buffer in content["buffers"]]
    if tensors:
        manager.sequence().eval(kp.OpTensorSyncDevice(tensors))
    algorithms = {}  # compiled once each
    for submission in content["submissions"]:
        for write in submission["writes"]:
            tensors[write["buffer"]].data()[:] = bytes_of(write["file"])
            manager.sequence().eval(kp.OpTensorSyncDevice([tensors[write["buffer"]]]))
        sequences = [manager.sequence()]
        for operation in submission["operations"]:
            if "kernel" in operation:
                made = str((operation["kernel"], operation["groups"], operation["bound"]))
                if made not in algorithms:
                    algorithms[made] = algorithm(manager, content, tensors, operation)
                sequences[-1].record(kp.OpAlgoDispatch(algorithms[made], np.array(operation["push"], np.uint32)))
                if not hasattr(kp, "OpMemoryBarrier"):
                    sequences.append(manager.sequence())
            elif hasattr(kp, "OpMemoryBarrier"):
                sequences[-1].record(kp.OpMemoryBarrier([tensors[number] for number in operation["barrier"]], *operation["masks"]))
        for _ in range(submission["times"]):
            for sequence in sequences:
                sequence.eval()
    if tensors:
        manager.sequence().eval(kp.OpTensorSyncLocal(tensors))
    return tensors


def algorithm(manager, content, tensors, operation):
    kernel = content["kernels"][operation["kernel"]]
    bound = [tensors[part["buffer"]] for part in operation["bound"]]
    made = manager.algorithm(bound, (HERE / kernel["file"]).read_bytes(), operation["groups"], np.zeros(0, np.uint32),
                             np.zeros(len(operation["push"]), np.uint32))
    ranges = [(part["offset"], part["size"]) for part in operation["bound"]]
    if all(whole == (0, 4 * tensor.size()) for whole, tensor in zip(ranges, bound)):
        return made
    return manager.algorithm_from(made, bound, operation["groups"], ranges)


def elements(words, of, sizes):
    """Return an output in its shape. bfloat16 becomes float32, as numpy lacks it."""
    if of["type"] == "bfloat16":
        flat = (words.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        flat = words.view(of["type"])
    return np.lib.stride_tricks.as_strided(flat, sizes, [stride * flat.itemsize for stride in of["strides"]])


def wrong(words, of):
    """Describe the first wrong element of an output. None: all are right."""
    expected = np.load(HERE / "expected" / (of["name"] + ".npy"))
    found = elements(words, of, expected.shape)
    with np.errstate(all="ignore"):
        near = np.abs(found - expected.astype(np.float64)) <= of["absolute"] + of["relative"] * np.abs(expected)
    right = (found == expected) | near | (np.isnan(found) & np.isnan(expected))
    if right.all():
        return None
    at = tuple(int(place) for place in np.argwhere(~right)[0])
    return (f"{of['name']}: {(~right).sum()} of {right.size} wrong, the first at {list(at)}: found {found[at]:.4g}, "
            f"expected {expected[at]:.4g}")


def main():
    content = json.loads((HERE / "replay.json").read_text())
    names = [device["device_name"] for device in kp.Manager().list_devices()]
    wanted = content["device"]
    index = int(sys.argv[1]) if len(sys.argv) > 1 else names.index(wanted) if wanted in names else 0
    manager = kp.Manager(index)
    print(content["problem"])
    print("on", manager.get_device_properties()["device_name"])
    for _ in range(TRIES):
        tensors = run(manager, content)
        number = content.get("given_up")
        gave_up = bool(number is not None and tensors[number].data().view(np.uint32)[0])
        found = [said for of in content["expected"] if (said := wrong(tensors[of["buffer"]].data().view(np.uint32), of))]
        if not (found and gave_up):  # if workgroups gave up in the test, too, the submissions include the fallback
            break
    if found and gave_up:
        print("workgroups gave up waiting for each other, each time")
    if not content["expected"]:
        print("it ran to its end; the test compared no whole output with what is right")
    else:
        print("\n".join(["wrong", *found] if found else ["right"]))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
