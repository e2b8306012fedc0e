// Nothing stays unsubmitted when the caller goes quiet.
//
// The runtime records commands into a batch that stays open while the GPU has enough to do. If the program then makes
// no further call, the batch must go to the GPU all the same. The counting layer tells: the sync that comes at last
// must find nothing to submit. No runtime call is made while the test waits.
//
// Needs HL_VK_LAYERS=VK_LAYER_HALIDEVULKAN_count. Stock: passes (it submits every command and waits for it).

#include "support.h"

#include <chrono>
#include <thread>

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<uint32_t, 1>;

// One launch, then a second without a call: it was submitted long ago, and its result is there.
TEST(GpuQuietCaller, OneLaunch) {
    Var x("x"), xi("xi");
    Param<uint32_t> seed("seed");
    Func f("f");
    f(x) = scramble(cast<uint32_t>(x) + seed);
    f.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({seed}, gpu_target());
    Words out(1000);
    for (uint32_t round = 0; round < 2; round++) {
        hv_layer_reset();
        ASSERT_OK(kernel(round, out));
        std::this_thread::sleep_for(std::chrono::seconds(1));
        EXPECT_EQ(hv_layer_count_prefix("vkQueueSubmit"), 1u);
        ASSERT_OK(out.device_sync());
        EXPECT_EQ(hv_layer_count_prefix("vkQueueSubmit"), 1u) << "the sync still had something to submit";
        ASSERT_OK(out.copy_to_host());
        EXPECT_TRUE(matches(out, [&](const int *p) { return scramble((uint32_t)p[0] + round); }));
    }
}

TEST(GpuQuietCaller, WhatIsOpenIsSubmitted) {
    Var x("x"), xi("xi");
    ImageParam input(UInt(32), 1, "input");
    Func f("f");
    Expr value = input(x);
    for (int i = 0; i < 10; i++) value = scramble(value);
    f(x) = value;
    f.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({input}, gpu_target());
    Words a(20000), b(20000);
    a.fill(1);
    a.set_host_dirty();
    ASSERT_OK(kernel(a, b));
    ASSERT_OK(b.device_sync());

    for (int round = 0; round < 3; round++) {
        hv_layer_reset();
        for (int i = 0; i < 100; i++) ASSERT_OK(kernel(a, b));
        ASSERT_EQ(hv_layer_count("vkCmdDispatch"), 100u);
        // 20 ms is what it takes; a loaded machine may need longer. So it is given until half a second brings no more.
        // (The next batch may be begun already, with nothing in it: that alone says nothing.)
        uint64_t seen;
        do {
            seen = hv_layer_count("vkQueueSubmit");
            std::this_thread::sleep_for(std::chrono::milliseconds(500));
        } while (hv_layer_count("vkQueueSubmit") != seen);
        const uint64_t submits = hv_layer_count("vkQueueSubmit");
        ASSERT_OK(b.device_sync());
        EXPECT_EQ(hv_layer_count("vkQueueSubmit"), submits) << "the sync still had something to submit";
    }
    ASSERT_OK(b.copy_to_host());
}

}  // namespace
