# The commands of this project. `make demo` and `make test` are all that a newcomer needs: both set the machine up,
# build what is missing and run. Everything built lies in build/, the Python environments in .venv and .venv19.

PRESET ?= release
JOBS ?= $(shell nproc)

.PHONY: all setup build demo test nightly coverage bench format clean

all: build

setup:
	@tools/setup

build: setup
	@cmake --preset $(PRESET)
	@cmake --build --preset $(PRESET) --parallel $(JOBS)

demo: build
	@.venv/bin/python -B apps/photo/demo.py

test: build
	@ctest --preset $(PRESET) --parallel $(JOBS)

# The long runs: hours. Not a part of `make test`.
nightly: build
	@ctest --preset $(PRESET) -C nightly -L nightly --parallel $(JOBS)

# Which lines of src/runtime the tests run; build/coverage.txt has them one by one.
coverage: build
	@cmake --build --preset $(PRESET) --parallel $(JOBS) --target hv_coverage
	@tools/coverage $(PRESET) $(JOBS)

bench: build
	@.venv/bin/python -B tools/bench.py

format:
	@git ls-files '*.cpp' '*.h' | xargs clang-format -i

clean:
	@rm -rf build
