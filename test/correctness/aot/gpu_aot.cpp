// An ahead-of-time compiled program: pipelines and our runtime linked into it, and nothing put in front of anything.
//
// The runtime archive was made with ours at build time (gpu_aot_generate). That it is ours is seen by a function that
// no other runtime has.

#include "HalideBuffer.h"
#include "HalideRuntime.h"
#include "HalideRuntimeVulkan.h"
#include "blur.h"
#include "double_and_add.h"

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <thread>

using Halide::Runtime::Buffer;

namespace {

void expect_doubled(int n, int salt) {
    Buffer<int32_t, 1> in(n), out(n);
    in.for_each_element([&](int x) { in(x) = x * 5; });
    ASSERT_EQ(double_and_add(nullptr, in, salt, out), 0);
    ASSERT_EQ(out.copy_to_host(), 0);
    for (int x = 0; x < n; x++) ASSERT_EQ(out(x), x * 10 + salt) << "element " << x << " of " << n;
}

TEST(GpuAot, RuntimeIsOurs) {
    EXPECT_NE(dlsym(RTLD_DEFAULT, "halide_vulkan_get_stats"), nullptr);
    // And not by a library in front.
    EXPECT_EQ(std::getenv("LD_PRELOAD"), nullptr);
}

TEST(GpuAot, SizesAndScalars) {
    for (int n : {1, 31, 96, 100, 1000, 100001}) expect_doubled(n, n - 7);
}

TEST(GpuAot, Blur) {
    const int width = 321, height = 123;
    Buffer<uint8_t, 2> in(width + 2, height + 2), out(width, height);
    in.for_each_element([&](int x, int y) { in(x, y) = (uint8_t)(x * 7 + y * 13 + x * y); });
    in.set_host_dirty();
    ASSERT_EQ(blur(nullptr, in, out), 0);
    ASSERT_EQ(out.copy_to_host(), 0);
    const Buffer<const uint8_t, 2> source = in;
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            int sum = 0;
            for (int dy = 0; dy < 3; dy++) {
                for (int dx = 0; dx < 3; dx++) sum += source(x + dx, y + dy);
            }
            ASSERT_EQ(out(x, y), sum / 9) << x << ", " << y;
        }
    }
}

TEST(GpuAot, ReleaseAndUseAgain) {
    for (int round = 0; round < 4; round++) {
        expect_doubled(500, round);
        halide_device_release(nullptr, halide_vulkan_device_interface());
        halide_device_release(nullptr, halide_vulkan_device_interface());
    }
}

TEST(GpuAot, Threads) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; i++) {
        threads.emplace_back([i] {
            for (int round = 0; round < 30; round++) expect_doubled(100 + i * 37 + round, i);
        });
    }
    for (std::thread &thread : threads) thread.join();
}

// Must stay the last test of this file: what it leaves running and allocated is cleaned up at exit, by the runtime's
// destructor.
TEST(GpuAot, ExitWithWorkInFlight) {
    static Buffer<int32_t, 1> in(50000), out(50000);
    in.fill(3);
    in.set_host_dirty();
    for (int i = 0; i < 50; i++) ASSERT_EQ(double_and_add(nullptr, in, i, out), 0);
}

}  // namespace
