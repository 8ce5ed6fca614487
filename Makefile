# `make demo` and `make test` need only Python 3.10 to 3.14, a C++20 compiler and a package index:
# they build the project into its own virtual environment first.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
PYTHON ?=
PYTEST_FLAGS ?=
SOAK ?= 320
CYCLES ?= 10000000
TOOL ?= memcheck
TESTS ?= $(addprefix tests/,arrays devices elementwise errors fusion index jit numpy_api product reduce captures exchange converters)
WITH ?=
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 4 ? n : 4)))

# Tests start hundreds of interpreters, each of which would recompile the package.
export PYTHONDONTWRITEBYTECODE :=
# pip compiles no modules: Python compiles those that it imports. Falsy, because pip turns its "no" options round.
export PIP_NO_COMPILE := 0

bin := $(VENV)/bin
pip := $(bin)/python -m pip --disable-pip-version-check --quiet
# "torch" would install several GB of CUDA packages on a machine without a GPU, so nothing here requires it.
native := $(shell find native -type f 2>/dev/null)
quick := -m "not slow and not bench"
# The tests of the repository, for `make lint`. Those of the documentation and the demo stay in the suite, because
# they run programs, on a GPU where there is one.
repository := $(filter-out %/test_demo.py %/test_docs.py,$(wildcard tests/house/test_*.py))
# The tests whose results may differ with another build of the core.
core := -m "not slow and not bench and not text" $(addprefix tests/,arrays captures converters devices elementwise errors exchange fusion index numpy_api product reduce)

# pytest once for the host and a GPU, if there is one, and once for the fake driver (tests/conftest.py).
# Status 5: no test was chosen. tests/conftest.py appends the counts of each run to the file that the variable names.
on_both_drivers = status=0; counts=$$(mktemp); for driver in real fake; do \
	    GPUINTEROP_COUNTS=$$counts $(1) -m pytest -n $(JOBS) --dist worksteal --driver=$$driver $(2) $(PYTEST_FLAGS); code=$$?; \
	    [ $$code -eq 0 ] || [ $$code -eq 5 ] || status=$$code; \
	done; \
	awk '{n[$$1] += $$2} END {printf "both runs: %d passed, %d failed, %d skipped\n", n["passed"], n["failed"] + n["error"], n["skipped"]}' $$counts; \
	rm -f $$counts; exit $$status

.PHONY: help asked-python demo test test-all test-asan lint format stub docs soak cycles sanitize bench sdist wheel clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.installed ## share arrays with every installed library (WITH="jax": install it first)
	@$(if $(WITH),$(pip) install $(WITH))
	@$(bin)/python -m gpuinterop demo

test: $(VENV)/.installed ## run the quick tests (JOBS=1: in one process)
	@$(call on_both_drivers,$(bin)/python,$(quick) $(addprefix --ignore=,$(repository)))

test-all: $(VENV)/.installed ## run all tests, the slow ones too
	@$(call on_both_drivers,$(bin)/python,-m "not bench")

test-asan: $(VENV)-asan/.installed ## run the tests of the core, built with ASan and UBSan
	@$(call on_both_drivers,tools/with-asan $(VENV)-asan/bin/python,$(core))
	GPUINTEROP_TEST_ASAN=1 tools/with-asan $(VENV)-asan/bin/python -m pytest -n $(JOBS) --driver=fake tests/elementwise/test_layouts.py

soak: $(VENV)/.installed ## run the property tests with a million examples (SOAK=10: ten times the usual number)
	GPUINTEROP_SOAK=$(SOAK) $(bin)/python -m pytest -n $(JOBS) --timeout 0 -m "hypothesis and not bench" $(PYTEST_FLAGS)

cycles: $(VENV)/.installed ## check that ten million exports, imports and views of each kind leak no memory and no references
	GPUINTEROP_SOAK_CYCLES=$(CYCLES) $(bin)/python -m pytest -n $(JOBS) --timeout 0 tests/exchange/lifetime/test_struct_lifetime.py $(PYTEST_FLAGS)

# The sanitizer checks only the process of the tests, not those that a test starts. It keeps the Python frames
# that it shows in its reports, and so the arrays in them: tests marked "lifetime" would fail.
# Tests marked "numba" first run the demo in another process, which does not end under the sanitizer.
# Errors that the driver returns are not reported: tests provoke some, and cuCtxGetId fails in threads without a context.
sanitize: $(VENV)/.installed ## run TESTS on a GPU under compute-sanitizer: TOOL=memcheck, racecheck, initcheck, synccheck
	compute-sanitizer --tool $(TOOL) --target-processes application-only --launch-timeout 0 --report-api-errors no --error-exitcode 9 \
	    $(bin)/python -m pytest -p no:xdist --timeout 0 --require-cuda -m "(gpu or driver) and not slow and not bench and not lifetime and not numba" $(TESTS) $(PYTEST_FLAGS)

bench: $(VENV)/.installed ## run every benchmark that this machine can run
	@for file in $(filter-out %/bench_common.py,$(wildcard benchmarks/bench_*.py)); do echo "== $$file"; $(bin)/python "$$file" || exit 1; done

lint: $(VENV)/.installed $(VENV)/.lint ## run ruff, mypy --strict, clang-format, checks of the workflows, and the tests of the repository
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	find native -name '*.[ch]pp' -print0 | xargs -0 $(bin)/clang-format --dry-run --Werror
	$(bin)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(bin)/check-jsonschema --builtin-schema vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(bin)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(bin)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(bin)/zizmor --offline --quiet .github/workflows
	$(bin)/python -m pytest -n $(JOBS) $(quick) $(repository)

format: $(VENV)/.lint ## rewrite Python and C++ in the project's format
	$(bin)/ruff check --fix-only .
	$(bin)/ruff format .
	find native -name '*.[ch]pp' -print0 | xargs -0 $(bin)/clang-format -i

stub: $(VENV)/.installed ## regenerate the stubs of the package and its core
	$(bin)/python tools/make_stub.py

docs: $(VENV)/.installed $(VENV)/.docs ## regenerate the generated pages and build the site, build/site/index.html
	$(bin)/python tools/make_docs.py
	$(bin)/python -m sphinx -q -W --keep-going -b html docs build/site

sdist: $(VENV)/.tools ## build dist/*.tar.gz
	$(bin)/python -c 'from scikit_build_core.build import build_sdist; print(build_sdist("dist"))'

wheel: $(VENV)/.tools $(VENV)/.release ## build dist/*.whl, with the tag of the oldest Linux on which it runs
	rm -rf build/wheel
	$(pip) wheel --no-deps --wheel-dir build/wheel .
	PATH="$(abspath $(bin)):$$PATH" auditwheel repair --wheel-dir dist build/wheel/*.whl
	$(bin)/twine check --strict dist/*.whl

clean: ## remove everything that was built
	rm -rf build dist $(VENV) $(VENV)-* .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find gpuinterop tests benchmarks tools native -name __pycache__ -prune -exec rm -rf {} +

%/.tools: pyproject.toml
	@echo "setting up $*"
	@python=$$(tools/find-python $(PYTHON)) && "$$python" -m venv $*
	@$*/bin/python -m pip --disable-pip-version-check --quiet install --upgrade 'pip>=25.1'
	@$*/bin/python -m pip --disable-pip-version-check --quiet install --group build
	@touch $@

# An environment keeps the Python with which it was made, so another PYTHON is refused.
asked-python:
	@$(if $(PYTHON),tools/same-python $(VENV) $(PYTHON))

# Python files are used in place, so only a changed core requires a new build.
$(VENV)/.installed: $(VENV)/.tools $(native) gpuinterop/_version.py | asked-python
	@echo "building the core, which takes a few minutes"
	@tools/show-build $(VENV)/build.log $(pip) -vv install --no-build-isolation --editable '.[test]'
	@touch $@

$(VENV)-asan/.installed: $(VENV)-asan/.tools $(native)
	@echo "building the core with ASan and UBSan"
	@tools/show-build $(VENV)-asan/build.log $(VENV)-asan/bin/python -m pip --disable-pip-version-check -v install --no-build-isolation \
	    --editable '.[test]' -C build-dir='build/asan-{wheel_tag}' -C cmake.define.GPUINTEROP_SANITIZE=ON -C install.strip=false
	@touch $@

$(VENV)/.lint: $(VENV)/.tools
	@$(pip) install --group lint
	@touch $@

$(VENV)/.release: $(VENV)/.tools
	@$(pip) install --group release
	@touch $@

$(VENV)/.docs: $(VENV)/.tools
	@$(pip) install --group docs
	@touch $@

.PRECIOUS: %/.tools
