"""`vkdml gpu-report`: a folder with all that a machine with a GPU tells about vkdml: correctness, times, expected times."""
