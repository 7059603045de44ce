"""An operator that is ready to run, for tests of what comes after."""

import vkdml
from vkdml_lab.suite.support import initialize, make_outputs


def table_of(device, desc, inputs, outputs):
    """A binding table of a compiled operator."""
    table = device.create_binding_table(device.compile_operator(device.create_operator(desc)))
    table.bind_inputs(inputs)
    table.bind_outputs(outputs)
    return table


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
        self.table = device.create_binding_table(self.compiled)
        self.table.bind_inputs(self.inputs())
        self.table.bind_outputs(list(self.outputs.values()))
        self.recorder = recorded(device, self.table)

    def inputs(self):
        return [self.buffers.get(field) if field not in self.compiled.problem.initialized else None for field in self.compiled.input_fields]

    def results(self):
        self.recorder.execute()
        return {field: buffer.download(self.compiled.problem.tensor(field).sizes) for field, buffer in self.outputs.items()}
