"""`vkdml gpu-report`: writes a folder with what a machine's GPU shows about vkdml: correctness, times, and estimated times."""
