// fuzz.h: what the fuzzers share: numbers drawn from the input, and a check that ends the run.
//
// A fuzzer here draws a short program from its input (operations on an allocator, commands of a batch, a pair of views)
// and runs it beside an oracle that is too simple to be wrong. What libFuzzer changes in the input are then operations
// and sizes. When the input is used up, all numbers are 0, so every input is a whole program.

#ifndef HALIDE_VULKAN_TEST_FUZZ_H
#define HALIDE_VULKAN_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// Unlike assert it is there in every build, and libFuzzer keeps the input that made it fail.
#define FUZZ_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

class Input {
public:
    Input(const uint8_t *data, size_t size) : at(data), end(data + size) {}
    bool empty() const { return at == end; }
    size_t left() const { return (size_t)(end - at); }
    uint8_t byte() { return at < end ? *at++ : 0; }
    uint32_t word() {
        uint32_t value = 0;
        for (int i = 0; i < 4; i++) value |= (uint32_t)byte() << (8 * i);
        return value;
    }
    // In [0, limit); small numbers take one byte of input, and are as likely as large ones.
    uint64_t below(uint64_t limit) {
        if (limit <= 1) return 0;
        uint64_t value = byte();
        if (limit > 256 && value >= 128) {
            const int more = (int)(value & 7);
            for (int i = 0; i < more; i++) value = value << 8 | byte();
        }
        return value % limit;
    }

private:
    const uint8_t *at, *end;
};

#endif
