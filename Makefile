# `make demo` opens the page, `make test` runs the tests; each sets up what it needs first, quickly the second time.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
PYTHON := .venv/bin/python
MODEL := models/SmolLM2-135M-Instruct.Q4_1.gguf
# Two processes share a suite: most of its time one core compiles shaders. ARGS="-n 0" makes it one, as for --pdb.
# Tests that share a device stay in a row; in the browser a file's tests share its page.
PYTEST := $(PYTHON) -m pytest -n 2 --dist worksteal
PYTEST_BY_FILE := $(PYTHON) -m pytest -n 2 --dist loadfile

.PHONY: demo test test-all test-unit test-cpu test-cuda sanitize-cpu test-native test-worker test-e2e test-gpu load-test check-tiers lint lint-python lint-page format bench picture setup clean help

demo: ## The page with the built-in model, in a browser (ARGS="--port 8000 --no-open")
	@scripts/setup.sh demo
	@$(PYTHON) -m pageloom demo --model $(MODEL) $(ARGS)

test: test-unit test-cpu test-cuda test-native test-worker test-e2e ## All tests but the slow ones

test-all: setup ## All tests, the slow ones too (golden answers at full length: an hour on two cores)
	npm test
	$(PYTHON) -m pytest -m 'not gpu' tests e2e

test-unit: setup ## Tests that need no device (ARGS goes to pytest)
	npm test
	$(PYTEST) tests/unit $(ARGS)

test-cpu: setup ## Tests of the compiled CPU kernels, on every instruction set that this machine has
	$(PYTEST) tests/cpu $(ARGS)

test-cuda: setup ## Tests of the CUDA backend; what needs PyTorch or an NVIDIA GPU is skipped where it is missing
	$(PYTHON) -m pytest tests/cuda $(ARGS)

sanitize-cpu: setup ## The matrix on CPU kernels built with the address and undefined-behaviour sanitizers
	scripts/sanitize_cpu.sh $(ARGS)

test-native: setup ## Tests on native WebGPU, with every software driver that is there
	$(PYTEST) tests/native $(ARGS)

test-worker: setup ## Tests of the local worker: pageloom serve and chat, as clients and users have them
	$(PYTHON) -m pytest tests/worker $(ARGS)

test-e2e: setup ## Tests of the page in a headless browser
	$(PYTEST_BY_FILE) e2e $(ARGS)

test-gpu: setup ## Tests that need a hardware adapter
	$(PYTHON) -m pytest -m gpu tests e2e $(ARGS)

load-test: setup ## 200 clients who come and leave for two minutes (ARGS="--clients 20 --seconds 30")
	$(PYTHON) -m tests.worker.load $(ARGS)

check-tiers: setup ## The whole conformance matrix on every tier of this machine's adapter (ARGS="--quick")
	scripts/check_tiers.sh build/check $(ARGS)

lint: lint-python lint-page ## Style and types, Python and JavaScript

lint-python: setup
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy

lint-page: setup
	npm run --silent check

format: setup ## Rewrite the sources in the project's style
	$(PYTHON) -m ruff check --fix
	$(PYTHON) -m ruff format
	npm run --silent format

bench: setup ## Each benchmark against its peer; bench/README.md says what they print
	@for bench in bench/bench_*.py; do echo "== $$bench"; $(PYTHON) $$bench || exit 1; done

picture: setup ## docs/page.png, from the real page
	$(PYTHON) scripts/picture.py docs/page.png

setup: ## .venv/, node_modules/, a browser, software Vulkan, the default model, the built page
	@scripts/setup.sh test

clean: ## Remove what set-up made, but for the model
	rm -rf .venv node_modules dist build

help: ## This list
	@sed -nE 's/^([a-z0-9-]+):[^#]*## (.*)/\1\t\2/p' Makefile | expand -t 14
