"""Emulates an AMD GPU beneath Mesa's driver: it executes the machine code of each submission, and reports faults (README.md).

native/interpose.c maps the GPU's addresses to buffers and queues submissions; a thread reads their packets (native/packets.c).
native/syncs.c implements the kernel objects of fences and semaphores. New code goes over a socket to `vkdml radeon`
(native/server.c, server.py), which disassembles it with LLVM (disassembler.py, decoder.py) and caches it in
.gpu-drivers/radeon/programs/. native/waves.c steps the waves, native/alu.c executes arithmetic (instructions.py),
native/matrices.c multiplies matrices, native/memory.c and native/caches.c load and store, and native/clocks.c tracks what
orders accesses.
"""
