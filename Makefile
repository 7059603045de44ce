# make demo [WORDS="..."]   install what is missing, then pronounce words on a Vulkan device
# make test                 install what is missing, then lint, type checks and all tests
# make conformance          the conformance suite on every Vulkan device, and a report of it in conformance-report/
# make bench                time per call beside all other libraries that are here, a report of it in bench-report/
# make bench-peers          install those libraries (some gigabytes)
# make docs                 an API reference of the docstrings in docs/api/
# make setup-conformance    install only what `vkdml conformance` needs; likewise setup-bench, setup-docs, setup-test
# make vulkan-extras        fetch a validation layer and a second driver into .vulkan/
# make validate             the schedules under synchronization validation
VENV_PYTHON = .venv/bin/python
export WORDS =

.PHONY: setup demo test conformance bench bench-peers docs vulkan-extras validate clean

setup:
	@tools/setup

setup-%:
	@tools/setup $*

demo: setup
	@$(VENV_PYTHON) -m vkdml demo $$WORDS

test: setup-test
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@$(VENV_PYTHON) -m pytest

conformance: setup-conformance
	@$(VENV_PYTHON) -m tools.conformance

bench: setup-bench
	@$(VENV_PYTHON) -m bench

bench-peers: setup-bench
	@$(VENV_PYTHON) -m pip install -q -e '.[bench,peers]'

docs: setup-docs
	@$(VENV_PYTHON) -m pdoc --docformat google --output-directory docs/api \
	  vkdml vkdml.onnx vkdml.torch vkdml.pydirectml vkdml.dxdispatch vkdml.errors vkdml.reference
	@echo "the reference is in docs/api/index.html"

vulkan-extras:
	@tools/get_vulkan_extras

validate: setup-conformance
	@$(VENV_PYTHON) -m tools.validate

clean:
	rm -rf .venv build dist src/vkdml/spirv src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
