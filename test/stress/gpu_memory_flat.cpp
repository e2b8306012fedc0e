// Long runs of one kind of work each, in which memory stays flat (memory_use.h) and every result is right.
//
// HV_FULL=1 does what is promised: 1,000,000 launches, 200,000 uploads of 64 KiB, 10,000 uploads of 16 MiB without a
// sync, 100,000 rounds of allocations and frees of mixed sizes. Without it, a fiftieth of that or less.

#include "../correctness/support.h"
#include "memory_use.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<uint32_t, 1>;

bool is_full() { return std::getenv("HV_FULL") != nullptr; }

class GpuMemoryFlat : public ::testing::Test {
protected:
    Var x{"x"}, xi{"xi"};
    ImageParam input{UInt(32), 1, "input"};
    Param<uint32_t> seed{"seed"};

    Callable compile() {
        Func f("f");
        f(x) = scramble(input(x) + seed);
        f.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
        return f.compile_to_callable({input, seed}, gpu_target());
    }

    template<typename Operation>
    void run(uint32_t full, uint32_t brief, Operation &&operation) {
        const uint32_t count = is_full() ? full : brief, every = std::max(1u, count / 64);
        MemoryUse use;
        for (uint32_t i = 0; i < count && !HasFatalFailure(); i++) {
            operation(i, i + 1 == count);
            if (i % every == every - 1) use.sample();
        }
        printf("%u operations\n", count);
        EXPECT_TRUE(use.is_flat(is_full()));
    }

    void TearDown() override { EXPECT_GT(hv_layer_instances(), 0u) << "the counting layer is not in use"; }
};

TEST_F(GpuMemoryFlat, Launches) {
    Callable kernel = compile();
    Words a(64), b(64);
    a.fill(1);
    a.set_host_dirty();
    uint32_t expected = 1;
    run(1000000, 20000, [&](uint32_t i, bool last) {
        ASSERT_OK(i % 2 ? kernel(b, i, a) : kernel(a, i, b));
        expected = scramble(expected + i);
        if (!last) return;
        Words &newest = i % 2 ? a : b;
        ASSERT_OK(newest.copy_to_host());
        EXPECT_TRUE(matches(newest, [&](const int *) { return expected; }));
    });
}

// Each upload is followed by a launch that reads it, so that it goes through staging and must not be mixed up.
TEST_F(GpuMemoryFlat, Uploads) {
    Callable kernel = compile();
    Words a(16384), b(16384);
    a.fill(7);
    run(200000, 5000, [&](uint32_t i, bool last) {
        a(16383) = i;
        ASSERT_OK(kernel(a, 1u, b));
        if (!last) return;
        ASSERT_OK(b.copy_to_host());
        EXPECT_TRUE(matches(b, [&](const int *p) { return scramble(p[0] == 16383 ? i + 1 : 8); }));
    });
}

TEST_F(GpuMemoryFlat, LargeUploadsWithoutSync) {
    constexpr int kWords = 4 << 20;
    Words a(kWords);
    a.fill(7);
    run(10000, 128, [&](uint32_t i, bool last) {
        a(kWords - 1) = i;
        ASSERT_OK(a.copy_to_device(vulkan_interface()));
        if (!last) return;
        a(kWords - 1) = 0;
        a.set_host_dirty(false);
        a.set_device_dirty();
        ASSERT_OK(a.copy_to_host());
        EXPECT_EQ(a(kWords - 1), i);
        EXPECT_EQ(a(0), 7u);
    });
}

// Up to 32 buffers of 4 bytes to 2 MiB live at a time, in all at most 8 MiB: less than one block, so that all of it has
// been touched, and is resident on a CPU device, when the warm-up ends. Every other one is written by a kernel, and may
// still be when it is freed.
TEST_F(GpuMemoryFlat, MixedSizes) {
    Callable kernel = compile();
    std::mt19937 random(4711);
    Words source(1 << 19), result(1 << 19);
    result.fill(0);
    source.fill(5);
    source.set_host_dirty();
    std::vector<Words> live;
    int words = 0;
    const auto drop = [&](size_t index) {
        words -= live[index].dim(0).extent();
        ASSERT_OK(live[index].device_free());
        std::swap(live[index], live.back());
        live.pop_back();
    };
    run(100000, 10000, [&](uint32_t i, bool) {
        // As many sizes of each power of two.
        const int size = 1 + (int)(random() % (1u << (1 + random() % 19)));
        while (live.size() == 32 || words + size > (2 << 20)) drop(random() % live.size());
        live.emplace_back(nullptr, size);
        words += size;
        ASSERT_OK(live.back().device_malloc(vulkan_interface()));
        if (i % 2 != 0) return;
        Words in = source.cropped(0, 0, size);
        ASSERT_OK(kernel(in, i, live.back()));
        if (i % 64 != 0) return;
        Words copy = result.cropped(0, 0, size);
        ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, live.back(), nullptr, copy));
        EXPECT_TRUE(matches(copy, [&](const int *) { return scramble(5 + i); }));
    });
    while (!live.empty()) drop(0);
}

}  // namespace
