// In steady state a launch creates, destroys, allocates, frees, maps and waits for nothing: counted at the driver.
//
// The counting layer stands between the runtime and the driver, so these are the driver's numbers. Each test warms up,
// resets the counts, does an operation many times and looks; host allocations are counted by jit_allocations.h. This is
// the default policy, which looks at time; the exact figures of each operation are in gpu_calls_per_operation.cpp.
//
// Stock: every test fails (a launch makes and destroys a pool, allocates, maps, and waits for the whole queue).

#include "jit_allocations.h"
#include "support.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<uint32_t, 1>;

uint64_t sum_of(std::initializer_list<const char *> prefixes) {
    uint64_t sum = 0;
    for (const char *prefix : prefixes) sum += hv_layer_count_prefix(prefix);
    return sum;
}
uint64_t made_or_destroyed() {
    return sum_of(
        {"vkCreate", "vkDestroy", "vkAllocate", "vkFree", "vkMapMemory", "vkUnmapMemory", "vkBindBufferMemory"});
}
uint64_t queue_idles() { return sum_of({"vkQueueWaitIdle", "vkDeviceWaitIdle"}); }
uint64_t waits() { return queue_idles() + sum_of({"vkWaitForFences", "vkWaitSemaphores"}); }
uint64_t submits() { return hv_layer_count_prefix("vkQueueSubmit"); }

// The default policy looks at time: a device that is starved of its cores looks slow, gets short batches, and a caller
// may come to wait for a slot of the ring. What is promised for a device that keeps up can be counted exactly where the
// policy looks at counts alone, HL_VK_FLUSH=count.
void expect_no_waits() {
    const char *policy = std::getenv("HL_VK_FLUSH");
    if (policy && std::strcmp(policy, "count") == 0) {
        EXPECT_EQ(waits(), 0u);
    }
}

class GpuSteadyState : public ::testing::Test {
protected:
    Var x{"x"}, xi{"xi"};
    ImageParam input{UInt(32), 1, "input"};
    Param<uint32_t> seed{"seed"};
    Param<int> width{"width"};
    int (*sync_global)(void *, const halide_device_interface_t *) =
        runtime_call<int(void *, const halide_device_interface_t *)>("halide_device_sync_global");

    Callable compile() {
        Func f("f");
        f(x) = scramble(input(x) + seed);
        f.gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
        return f.compile_to_callable({input, seed}, gpu_target());
    }
    void sync() { ASSERT_OK(sync_global(nullptr, vulkan_interface())); }
    // Counts from here.
    void start() {
        sync();
        hv_layer_reset();
        jit_allocations = 0;
        counting = true;
    }
    // Every check of this file ends here.
    void stop() { counting = false; }

    void TearDown() override {
        counting = false;
        EXPECT_GT(hv_layer_instances(), 0u) << "the counting layer is not in use";
        EXPECT_EQ(queue_idles(), 0u) << "waits are for fences of our own work, never for the whole queue";
        if (HasFailure()) hv_layer_print(stdout);
    }
};

TEST_F(GpuSteadyState, FourHundredLaunches) {
    Callable kernel = compile();
    Words a(64), b(64);
    std::vector<uint32_t> expected(64);
    fill(a, [&](const int *p) { return expected[p[0]] = p[0]; });
    const auto launches = [&](uint32_t count) {
        for (uint32_t i = 0; i < count; i++) {
            ASSERT_OK(i % 2 ? kernel(b, i, a) : kernel(a, i, b));
            for (uint32_t &value : expected) value = scramble(value + i);
        }
    };
    launches(400);
    start();
    launches(400);
    EXPECT_EQ(made_or_destroyed(), 0u);
    expect_no_waits();
    EXPECT_EQ(jit_allocations, 0u);
    EXPECT_EQ(hv_layer_count_prefix("vkCmdDispatch"), 400u);
    stop();
    a.copy_to_host();
    EXPECT_TRUE(matches(a, [&](const int *p) { return expected[p[0]]; }));
}

// The design's promise: at most one submit for 16 launches, where the policy does not look at time (HL_VK_FLUSH=count).
TEST_F(GpuSteadyState, LaunchesAreBatched) {
    Callable kernel = compile();
    Words a(64), b(64);
    a.fill(1);
    a.set_host_dirty();
    for (uint32_t i = 0; i < 100; i++) ASSERT_OK(kernel(a, i, b));
    start();
    for (uint32_t i = 0; i < 400; i++) ASSERT_OK(kernel(a, i, b));
    sync();
    EXPECT_LE(submits(), 400u / 16 + 2);
    EXPECT_EQ(made_or_destroyed(), 0u);
    stop();
}

TEST_F(GpuSteadyState, IdleSyncCallsNothing) {
    Callable kernel = compile();
    Words a(64), b(64);
    a.fill(1);
    a.set_host_dirty();
    ASSERT_OK(kernel(a, 1u, b));
    start();
    for (int i = 0; i < 100; i++) {
        ASSERT_OK(sync_global(nullptr, vulkan_interface()));
        ASSERT_OK(b.device_sync());
    }
    EXPECT_EQ(hv_layer_count_prefix("vk"), 0u);
    EXPECT_EQ(jit_allocations, 0u);
    stop();
}

TEST_F(GpuSteadyState, MallocAndFreeCallNothing) {
    const int sizes[] = {1, 100, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20};
    const auto round = [&] {
        for (int size : sizes) {
            Runtime::Buffer<uint8_t, 1> buffer(nullptr, size);
            ASSERT_OK(buffer.device_malloc(vulkan_interface()));
            ASSERT_OK(buffer.device_free());
        }
    };
    for (int i = 0; i < 10; i++) round();
    start();
    for (int i = 0; i < 50; i++) round();
    EXPECT_EQ(hv_layer_count_prefix("vk"), 0u);
    EXPECT_EQ(jit_allocations, 0u);
    stop();
}

TEST_F(GpuSteadyState, Uploads) {
    Callable kernel = compile();
    Words a(16384), b(16384);
    const auto round = [&](uint32_t i) {
        a.fill(i);
        a.set_host_dirty();
        ASSERT_OK(kernel(a, i, b));
    };
    // Staging grows to its 64 MiB as long as uploads come faster than they are done: 1,100 of 64 KiB fill it.
    for (uint32_t i = 0; i < 1100; i++) round(i);
    start();
    for (uint32_t i = 0; i < 100; i++) round(i);
    EXPECT_EQ(made_or_destroyed(), 0u);
    EXPECT_EQ(jit_allocations, 0u);
    EXPECT_LE(hv_layer_count_prefix("vkCmdCopyBuffer"), 100u);
    stop();
    b.copy_to_host();
    EXPECT_TRUE(matches(b, [](const int *) { return scramble(99u + 99u); }));
}

// One submission and one wait for each upload + launch + download.
TEST_F(GpuSteadyState, UploadLaunchDownload) {
    Callable kernel = compile();
    Words a(16384), b(16384);
    const auto round = [&](uint32_t i) {
        a.fill(i);
        a.set_host_dirty();
        ASSERT_OK(kernel(a, i, b));
        ASSERT_OK(b.copy_to_host());
        ASSERT_EQ(b(77), scramble(i + i));
        b.set_host_dirty(false);
    };
    for (uint32_t i = 0; i < 30; i++) round(i);
    start();
    for (uint32_t i = 0; i < 100; i++) round(i);
    EXPECT_EQ(made_or_destroyed(), 0u);
    EXPECT_EQ(jit_allocations, 0u);
    EXPECT_LE(submits(), 200u);
    EXPECT_LE(waits(), 100u);
    stop();
}

TEST_F(GpuSteadyState, AlternatingWorkgroupSizes) {
    Func f("f");
    f(x) = scramble(input(x) + seed);
    f.gpu_tile(x, xi, width, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({input, seed, width}, gpu_target());
    Words a(64), b(64);
    a.fill(5);
    a.set_host_dirty();
    for (uint32_t i = 0; i < 100; i++) ASSERT_OK(kernel(a, i, i % 2 ? 8 : 16, b));
    start();
    for (uint32_t i = 0; i < 200; i++) ASSERT_OK(kernel(a, i, i % 2 ? 8 : 16, b));
    EXPECT_EQ(hv_layer_count_prefix("vkCreateComputePipelines"), 0u);
    EXPECT_EQ(made_or_destroyed(), 0u);
    expect_no_waits();
    EXPECT_EQ(jit_allocations, 0u);
    stop();
    b.copy_to_host();
    EXPECT_TRUE(matches(b, [](const int *) { return scramble(5u + 199u); }));
}

// A pipeline with device-only intermediates, as large applications have them: allocated and freed in each call.
TEST_F(GpuSteadyState, PipelineWithIntermediates) {
    Func a("a"), b("b"), c("c");
    a(x) = scramble(input(x) + seed);
    b(x) = a(x) + 1;
    c(x) = scramble(b(x));
    for (Func f : {a, b, c}) f.compute_root().gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
    Callable pipeline = c.compile_to_callable({input, seed}, gpu_target());
    Words in(1000), out(1000);
    in.fill(3);
    in.set_host_dirty();
    for (uint32_t i = 0; i < 100; i++) ASSERT_OK(pipeline(in, i, out));
    start();
    for (uint32_t i = 0; i < 100; i++) ASSERT_OK(pipeline(in, i, out));
    EXPECT_EQ(made_or_destroyed(), 0u);
    expect_no_waits();
    stop();
    out.copy_to_host();
    EXPECT_TRUE(matches(out, [](const int *) { return scramble(scramble(3u + 99u) + 1); }));
}

// Crops are made and released in every call of a tiled application.
TEST_F(GpuSteadyState, CropsOfOneBuffer) {
    Callable kernel = compile();
    Words a(1000), b(1000);
    a.fill(3);
    a.set_host_dirty();
    const auto round = [&](uint32_t i) {
        const int at = (int)(i % 7) * 96;
        Words in = a.cropped(0, at, 96), out = b.cropped(0, at, 96);
        ASSERT_OK(kernel(in, i, out));
    };
    ASSERT_OK(kernel(a, 0u, b));
    for (uint32_t i = 0; i < 140; i++) round(i);
    start();
    for (uint32_t i = 0; i < 140; i++) round(i);
    EXPECT_EQ(made_or_destroyed(), 0u);
    expect_no_waits();
    EXPECT_EQ(jit_allocations, 0u);
    stop();
}

}  // namespace
