"""The command `vkdml gpu-report` checks and times vkdml on this machine's GPU, and writes a folder with the results."""
