"""What the tests of DxDispatch's models share: JSON out of descriptors in the two ways to write them, small models, and
Microsoft's sample with one thing changed.
"""

import json
from dataclasses import fields
from pathlib import Path

from vkdml.operators.header import descs
from vkdml_lab.fuzz.json_models import type_name

SAMPLE = Path(__file__).parent / "models" / "dml_rnn.json"


def long(value):
    """Full names, descriptions within Desc, 0 and 1 for booleans, and null for what is not there."""
    if isinstance(value, descs.IntEnum | descs.IntFlag):
        return f"{type(value).__name__.removesuffix('S')}_{value.name}"
    if isinstance(value, tuple):
        return [long(item) for item in value]
    if not hasattr(value, "__dataclass_fields__"):
        return int(value) if isinstance(value, bool) else value
    given = {field.name: long(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, descs.DML_BUFFER_TENSOR_DESC):
        return {"Type": "DML_TENSOR_TYPE_BUFFER", "Desc": given | {"DimensionCount": len(value.Sizes)}}
    if isinstance(value, descs.ActivationDesc):
        return {"Type": "DML_OPERATOR_" + type_name(value), "Desc": given}
    return given | {"ActivationDescCount": len(value.ActivationDescs)}


def zeros(count, data_type="FLOAT32"):
    return {"initialValuesDataType": data_type, "initialValues": {"valueCount": count, "value": 0}}


def one_operator(dispatchable, resources, bindings=None, printed=()):
    """A model that dispatches one operator, every tensor bound to the resource of its field's name by default."""
    return {"resources": resources, "dispatchables": {"op": dispatchable},
            "commands": [{"type": "dispatch", "dispatchable": "op", "bindings": bindings or {name: name for name in resources}},
                         *({"type": "print", "resource": name} for name in printed)]}


def relu(*sizes, **changes):
    described = {"DataType": "FLOAT32", "Sizes": list(sizes)}
    return {"type": "ACTIVATION_RELU", "desc": {"InputTensor": described, "OutputTensor": described} | changes}


def changed(path, value, model=None):
    """A model, by default the sample, with one thing changed. A path's last part in [] is appended or inserted; ... deletes."""
    model = json.loads(json.dumps(model) if model else SAMPLE.read_text())
    *parents, last = path
    at = model
    for part in parents:
        at = at[part]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return model


RNN = ("dispatchables", "rnn")

DESC = (*RNN, "desc")

INPUT = (*DESC, "InputTensor")

FUSED = (*DESC, "ActivationDescs", 0)

BINDINGS = ("commands", 0, "bindings")

VALUES = ("resources", "input", "initialValues")
