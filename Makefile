# The commands of this project. `make demo` and `make test` are all that a newcomer needs: both set the machine up,
# build what they need and run. Everything built lies in build/, the Python environments in .venv and .venv19.

PRESET ?= release
JOBS ?= $(shell nproc)
# Where CMakePresets.json puts what a preset builds.
BUILD = build$(if $(filter-out release,$(PRESET)),/$(PRESET))

.PHONY: all setup configure build demo test nightly coverage bench format clean

all: build

setup:
	@tools/setup

configure: setup
	@cmake --preset $(PRESET)

build: configure
	@cmake --build --preset $(PRESET) --parallel $(JOBS)

# The demo needs the library alone, and the benchmark two programs more: not the tests.
demo: configure
	@cmake --build --preset $(PRESET) --parallel $(JOBS) --target HalideVulkan
	@.venv/bin/python -B apps/photo/demo.py --library $(BUILD)/libHalideVulkan.so

test: build
	@ctest --preset $(PRESET) --parallel $(JOBS)

# The long runs: hours. Not a part of `make test`.
nightly: build
	@ctest --preset $(PRESET) -C nightly -L nightly --parallel $(JOBS)

# Which lines of src/runtime the tests run; build/coverage.txt has them one by one.
coverage: build
	@cmake --build --preset $(PRESET) --parallel $(JOBS) --target hv_coverage
	@tools/coverage $(PRESET) $(JOBS)

bench: configure
	@cmake --build --preset $(PRESET) --parallel $(JOBS) \
	    --target HalideVulkan performance_gpu_dispatch_overhead performance_async_gpu
	@.venv/bin/python -B tools/bench.py --build $(BUILD)

format:
	@git ls-files '*.cpp' '*.h' | xargs clang-format -i

clean:
	@rm -rf build
