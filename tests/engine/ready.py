"""An operator that is ready to run, for tests of what comes after; and failures that count as vkdml's."""

from types import FunctionType

import vkdml
from vkdml.operators import cells
from vkdml_lab.suite.support import check, drawn_case, initialize, make_desc, make_outputs, owned, read_output

SIZES = (5, 3, 6, 9)  # those of conftest.py, so that pipelines are compiled once


def as_ours(function):
    """The function as one of vkdml's modules: what it raises counts as the driver's, not as a signal handler's."""
    return FunctionType(function.__code__, {**function.__globals__, "__name__": "vkdml"}, None, function.__defaults__, function.__closure__)


def bind(device, dispatchable, inputs, outputs=()):
    """A binding table. An empty list binds nothing."""
    table = device.create_binding_table(dispatchable)
    table.bind_inputs(inputs)
    table.bind_outputs(outputs)
    return table


def table_of(device, desc, inputs, outputs):
    """A binding table of a compiled operator."""
    return bind(device, device.compile_operator(device.create_operator(desc)), inputs, outputs)


def recorded(device, *tables):
    recorder = device.create_command_recorder()
    for table in tables:
        recorder.record_dispatch(table.dispatchable, table)
    return recorder


class Ready:
    """An initialized operator with its buffers bound and recorded."""

    def __init__(self, device, case, options=vkdml.Options()):
        self.compiled = device.compile_operator(device.create_operator(case.desc), options=options)
        self.buffers = {field: device.upload(array) for field, array in case.arrays.items()}
        self.outputs = make_outputs(device, self.compiled)
        initialize(device, self.compiled, self.buffers)
        self.table = bind(device, self.compiled, self.inputs(), list(self.outputs.values()))
        self.recorder = recorded(device, self.table)

    def inputs(self):
        return [self.buffers.get(field) if field not in self.compiled.problem.initialized else None for field in self.compiled.input_fields]

    def results(self):
        self.recorder.execute()
        return {field: buffer.download(self.compiled.problem.tensor(field).sizes) for field, buffer in self.outputs.items()}


class Bound:
    """An operator with a table, and its initializer with one. No resource is bound."""

    def __init__(self, device, seed=0, is_owned=False, sizes=SIZES, cell=cells.GRU):
        desc = make_desc(cell, *sizes)
        self.case = drawn_case(owned(desc) if is_owned else desc, seed=seed)
        self.compiled = device.compile_operator(device.create_operator(self.case.desc))
        self.problem = self.compiled.problem
        self.outputs = {field: device.create_buffer(self.problem.tensor(field).size_in_bytes) for field in self.compiled.output_fields}
        self.table = bind(device, self.compiled, self.inputs(device, is_initializing=False), list(self.outputs.values()))
        self.initializer = device.create_operator_initializer([self.compiled])
        self.initializing = bind(device, self.initializer, [self.weights(device)])

    def inputs(self, device, is_initializing):
        return [device.upload(self.case.arrays[field]) if (field in self.problem.initialized) == is_initializing else None
                for field in self.compiled.input_fields]

    def weights(self, device):
        """What its initializer takes."""
        return vkdml.DML_BUFFER_ARRAY_BINDING(Bindings=self.inputs(device, is_initializing=True))

    @property
    def size(self):
        """Bytes of its persistent resource."""
        return self.compiled.get_binding_properties().PersistentResourceSize

    def make_resource(self, device):
        return device.create_buffer(self.size)

    def check(self):
        check(self.case, {field: read_output(self.compiled, field, buffer) for field, buffer in self.outputs.items()})
