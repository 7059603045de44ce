# make demo [WORDS="..."]   install what is missing, then pronounce words on a Vulkan device
# make test                 install what is missing, then lint, type checks and all tests
# make conformance          the conformance suite on every Vulkan device, and a report of it in conformance-report/
# make bench                time per call beside all other libraries that are here, a report of it in bench-report/
# make bench-peers          install those libraries (some gigabytes)
# make docs                 an API reference of the docstrings in docs/api/
# make vulkan-extras        fetch a validation layer and a second driver into .vulkan/
# make validate             the schedules under synchronization validation
VENV_PYTHON = .venv/bin/python
WORDS =

.PHONY: setup test-setup demo test conformance bench bench-peers docs vulkan-extras validate clean

setup:
	@tools/setup

test-setup:
	@tools/setup test

demo: setup
	@$(VENV_PYTHON) -m vkdml.demo $(WORDS)

test: test-setup
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@$(VENV_PYTHON) -m pytest

conformance: test-setup
	@$(VENV_PYTHON) -m tools.conformance

bench: test-setup
	@$(VENV_PYTHON) -m bench

bench-peers: test-setup
	@$(VENV_PYTHON) -m pip install -q -e '.[bench,peers]'

docs: test-setup
	@$(VENV_PYTHON) -m pdoc --docformat google --output-directory docs/api \
	  vkdml vkdml.onnx vkdml.torch vkdml.pydirectml vkdml.dxdispatch vkdml.errors vkdml.reference
	@echo "the reference is in docs/api/index.html"

vulkan-extras:
	@tools/get_vulkan_extras

validate: test-setup
	@$(VENV_PYTHON) -m tools.validate

clean:
	rm -rf .venv build dist src/vkdml/spirv src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
