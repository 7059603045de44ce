"""Emulates an AMD GPU beneath Mesa's driver. Executes the machine code that the driver submits, and reports faults (README.md).

native/interpose.c maps the GPU's addresses to buffers and queues submissions. A thread reads their packets (native/packets.c).
native/syncs.c implements the kernel objects of fences and semaphores. A new program goes over a socket to `vkdml radeon`
(native/server.c, server.py), which disassembles it with LLVM (disassembler.py), decodes it (decoder.py) and caches it in
.gpu-drivers/radeon/programs/. native/waves.c runs the waves, native/alu.c does arithmetic (by the tables in instructions.py),
native/matrices.c multiplies matrices, native/memory.c and native/caches.c load and store, and native/clocks.c finds accesses
that nothing orders.
"""
