# make demo [WORDS="..."]   install what is missing, then pronounce words on a Vulkan device
# make test                 install what is missing, then lint, type checks and all tests
# make bench                time per call beside onnxruntime's CPU
# make validate             the tests' schedules under Vulkan's synchronization validation
PYTHON = .venv/bin/python
WORDS =

.PHONY: setup demo test bench validate clean

setup:
	@tools/setup

demo: setup
	@$(PYTHON) -m vkdml.demo $(WORDS)

test: setup
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@$(PYTHON) -m pytest

bench: setup
	@$(PYTHON) -m bench

validate: setup
	@$(PYTHON) -m tools.validate

clean:
	rm -rf .venv build dist src/vkdml/spirv src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
