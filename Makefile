# make                      this list
# make demo [WORDS="..."]   install what is missing, then pronounce words on a Vulkan device
# make test                 install what is missing, then lint, type checks and tests: of families of tests alike some, and of long ones few
# make quick                the same without the tests that need a Vulkan device: some minutes
# make test-all             the same with all tests, as CI does
# make conformance          the conformance suite on every Vulkan device, and a report of it in conformance-report/
# make bench                time per call beside all other libraries that are here, a report of it in bench-report/
# make bench-peers          install those libraries (some gigabytes)
# make docs                 the documents, and a reference of the Python interface, as a site in docs/api/
# make wheels               wheels in dist/, for environments without a compiler; make all-wheels: one for each Python that is found
# make setup-conformance    install only what `vkdml conformance` needs; likewise setup-bench, setup-docs, setup-test
# make vulkan-extras        fetch a validation layer, a second driver and a browser for tests into .vulkan/
# make validate             the schedules under synchronization validation
# make gpu-check            what real GPUs' compilers make of the kernels, on a machine without a GPU, all schedules on such GPUs
#                           under validation, and what calls ask of drivers; fetches drivers into .gpu-drivers/, writes
#                           gpu-check-report/
# make gpu-report           on a machine with a GPU: what is right on it, how fast it is and what was expected, all in gpu-report/
# make hostile              an hour of all kernels but cpu/ on an interpreted device that does whatever Vulkan allows; no driver needed
# make radeon               the kernels' machine code for AMD GPUs, executed by an emulator beneath Mesa's driver: some minutes; MINUTES=60
#                           goes on with random problems. Fetches drivers into .gpu-drivers/
# make soak                 an hour of random calls, broken ones and with a driver that fails among them; writes soak-report/
VENV_PYTHON = .venv/bin/python
export WORDS =

# Drivers compile shaders on one core, so a second process takes half of the time away. Hundreds of tests start a Python of their
# own, which is faster with bytecode, whatever the environment says.
PYTEST = PYTHONDONTWRITEBYTECODE= $(VENV_PYTHON) -m pytest --numprocesses 2 --dist worksteal
# Run tests, with lint and types on a core that they leave idle as they start. What lint and types say comes last.
WITH_LINT = @log=$$(mktemp); $(MAKE) -s lint >$$log 2>&1 & $(1); failed=$$?; wait $$! || failed=1; cat $$log; rm $$log; exit $$failed
WITHOUT_DRIVERS = VK_DRIVER_FILES=/nonexistent.json VK_ICD_FILENAMES=/nonexistent.json

.PHONY: help setup demo lint quick test test-all conformance bench bench-peers docs vulkan-extras validate gpu-check gpu-report \
        hostile radeon soak wheels all-wheels clean

help:
	@sed '/^#/!Q; s/^# //' Makefile

setup:
	@tools/setup

setup-%:
	@tools/setup $*

demo: setup
	@$(VENV_PYTHON) examples/phonemes.py $$WORDS

lint: setup-test
	@.venv/bin/ruff check .
	@.venv/bin/mypy

quick: setup-test
	$(call WITH_LINT,$(WITHOUT_DRIVERS) $(PYTEST) -m "not device and not thorough")

test: setup-test
	$(call WITH_LINT,$(PYTEST) -m "not thorough")

test-all: setup-test
	$(call WITH_LINT,$(PYTEST))

conformance: setup-conformance
	@$(VENV_PYTHON) -m vkdml conformance

bench: setup-bench
	@$(VENV_PYTHON) -m bench

bench-peers: setup-bench
	@$(VENV_PYTHON) -m pip install -q -e 'lab[bench,peers]'

docs: setup-docs
	@$(VENV_PYTHON) -m sphinx -q -W --keep-going -c tools/docs . docs/api && echo "the documentation is in docs/api/index.html"

vulkan-extras:
	@tools/get_vulkan_extras

wheels:
	@tools/setup wheels

all-wheels:
	@tools/setup all-wheels

validate: setup-conformance
	@$(VENV_PYTHON) -m vkdml_lab.validate

gpu-check: setup-conformance vulkan-extras
	@lab/vkdml_lab/gpu/fetch .gpu-drivers
	@$(VENV_PYTHON) -m vkdml_lab.gpu.validate; failed=$$?; $(VENV_PYTHON) -m vkdml_lab.gpu.calls || failed=1; \
		$(VENV_PYTHON) -m vkdml_lab.gpu.check && exit $$failed

gpu-report: setup-conformance setup-bench
	@$(VENV_PYTHON) -m vkdml gpu-report

hostile: setup-soak
	@$(VENV_PYTHON) -m vkdml_lab.hostile

radeon: setup-test
	@lab/vkdml_lab/gpu/fetch .gpu-drivers
	@$(VENV_PYTHON) -m lab.tests.radeon.check --minutes $(or $(MINUTES),0)

soak: setup-soak
	@$(VENV_PYTHON) -m vkdml_lab.soak

clean:
	rm -rf .venv build dist src/vkdml/spirv src/vkdml/engine/vulkan/_kp.*.so src/vkdml/faces/onnx/_provider.*.so src/*.egg-info lab/build lab/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
