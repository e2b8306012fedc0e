// Device memory that is short: budgets, full heaps, small windows, limits on one allocation, and memory that is not
// used any more.
//
// The counting layer pretends the device. What is checked: a budget is an estimate, so what lies idle goes before a
// block exceeds it, but it never makes an allocation fail; a heap that is full is not the end while another has room; a
// shortage waits for what the GPU still uses; an error names what was asked and the limits; what nothing used for
// HL_VK_TRIM_MS goes back, and what is in use stays. All the while results are right.
//
// Needs HL_VK_LAYERS=VK_LAYER_HALIDEVULKAN_count (CMakeLists.txt). Stock: fails (it does not ask for budgets, and an
// allocation that is refused fails for good).

#include "support.h"

#include <chrono>
#include <thread>

using namespace Halide;
using namespace vulkan_test;

namespace {

using Bytes = Runtime::Buffer<uint8_t, 1>;

constexpr int64_t kMiB = 1 << 20;
constexpr int kOutOfDeviceMemory = -2;  // VkResult
// VkMemoryPropertyFlags: device memory, the same visible to the CPU, host memory uncached and cached.
constexpr uint32_t kDevice = 0x1, kWindow = 0x7, kHost = 0x6, kCachedHost = 0xe;

class GpuMemoryPressure : public ::testing::Test {
protected:
    Context context;
    Callable &paint = *pipelines().first, &slow = *pipelines().second;

    // A test sets limits and options first, then starts: they are read when the context is made.
    void SetUp() override {
        release();
        hv_layer_clear();
    }
    void TearDown() override {
        release();
        EXPECT_EQ(hv_layer_left(), 0);
        EXPECT_EQ(hv_layer_wrong_destroys(), 0u);
        hv_layer_clear();
        unsetenv("HL_VK_TRIM_MS");
    }

    // Compiled once for all tests, and never destroyed.
    static std::pair<Callable *, Callable *> &pipelines() {
        static std::pair<Callable *, Callable *> both = {new Callable(compile_paint()), new Callable(compile_slow())};
        return both;
    }
    static void release() { vulkan_interface()->device_release(nullptr, vulkan_interface()); }
    static void sync() {
        ASSERT_OK(runtime_call<int(void *, const halide_device_interface_t *)>("halide_device_sync_global")(
            nullptr, vulkan_interface()));
    }
    static Callable compile_paint() {
        Var x("x"), xi("xi");
        Param<int> id("id");
        Func f("paint");
        f(x) = cast<uint8_t>(id + (x & 15));
        f.gpu_tile(x, xi, 256, TailStrategy::GuardWithIf);
        return f.compile_to_callable({id}, gpu_target());
    }
    // Takes some 50 ms on a software device.
    static Callable compile_slow() {
        Var x("x"), xi("xi");
        ImageParam in(UInt(8), 1, "in");
        Func f("slow"), walk("walk");
        RDom r(0, 6000);
        walk(x) = cast<uint32_t>(in(x));
        walk(x) = walk(x) * Expr(1664525u) + cast<uint32_t>(r);
        f(x) = cast<uint8_t>(walk(x));
        f.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
        walk.compute_at(f, xi);
        return f.compile_to_callable({in}, gpu_target());
    }
    static uint8_t slow_value(uint8_t v) {
        uint32_t w = v;
        for (uint32_t r = 0; r < 6000; r++) w = w * 1664525u + r;
        return (uint8_t)w;
    }
    void paint_fresh(Bytes &buffer, int64_t bytes, int id) {
        buffer = Bytes(nullptr, (int)bytes);
        ASSERT_EQ(vulkan_interface()->device_malloc(context.raw(), buffer.raw_buffer(), vulkan_interface()), 0)
            << context.all();
        ASSERT_OK(paint(id, buffer));
    }
    static ::testing::AssertionResult holds(Bytes &buffer, int id) {
        Bytes host(buffer.dim(0).extent());
        const int code = vulkan_interface()->buffer_copy(nullptr, buffer.raw_buffer(), nullptr, host.raw_buffer());
        if (code != 0) return ::testing::AssertionFailure() << "buffer_copy returned " << code;
        for (int i = 0; i < host.dim(0).extent(); i++) {
            if (host.data()[i] != (uint8_t)(id + (i & 15)))
                return ::testing::AssertionFailure() << "byte " << i << " is " << +host.data()[i] << ", not " << id;
        }
        return ::testing::AssertionSuccess();
    }
    static void set_memory(const std::vector<uint32_t> &types) {
        ASSERT_TRUE(hv_layer_memory_types(types.data(), (int)types.size()));
    }
};

TEST_F(GpuMemoryPressure, WhatLiesIdleGoesBeforeTheBudgetIsExceeded) {
    ASSERT_TRUE(hv_layer_limit("heapBudget.0", 100 * kMiB));
    Bytes first, second;
    paint_fresh(first, 40 * kMiB, 1);
    sync();
    first.device_free();
    const int64_t held = hv_layer_allocated_bytes();
    ASSERT_GE(held, 40 * kMiB) << "a freed block is kept while there is room";
    hv_layer_reset();
    paint_fresh(second, 70 * kMiB, 2);
    EXPECT_LE(hv_layer_peak_allocated_bytes(), (uint64_t)100 * kMiB);
    EXPECT_TRUE(holds(second, 2));
}

TEST_F(GpuMemoryPressure, ABudgetIsNoLimit) {
    ASSERT_TRUE(hv_layer_limit("heapBudget.0", 30 * kMiB));
    Bytes buffers[4];
    for (int i = 0; i < 4; i++) paint_fresh(buffers[i], 20 * kMiB, i);
    for (int i = 0; i < 4; i++) EXPECT_TRUE(holds(buffers[i], i));
}

// Blocks grow ahead of need only within the budget.
TEST_F(GpuMemoryPressure, NoGrowthBeyondTheBudget) {
    ASSERT_TRUE(hv_layer_limit("heapBudget.0", 30 * kMiB));
    Bytes buffers[40];
    for (int i = 0; i < 40; i++) paint_fresh(buffers[i], kMiB, i);
    // 40 MiB live; without a budget 16 + 16 + 32.
    EXPECT_LE(hv_layer_allocated_bytes(), (uint64_t)(40 + 16) * kMiB);
    for (int i = 0; i < 40; i++) EXPECT_TRUE(holds(buffers[i], i));
}

TEST_F(GpuMemoryPressure, AnErrorNamesTheLimits) {
    ASSERT_TRUE(hv_layer_limit("maxMemoryAllocationSize", 24 * kMiB));
    ASSERT_TRUE(hv_layer_limit("heapBudget.0", 500 * kMiB));
    Bytes small, large(nullptr, 25 * (int)kMiB);
    paint_fresh(small, 20 * kMiB, 3);
    EXPECT_EQ(vulkan_interface()->device_malloc(context.raw(), large.raw_buffer(), vulkan_interface()),
              halide_error_code_device_malloc_failed);
    EXPECT_TRUE(one_message(context, {std::to_string(25 * kMiB), "maxMemoryAllocationSize", std::to_string(24 * kMiB),
                                      "budget", std::to_string(500 * kMiB), "vkAllocateMemory"}));
    context.clear();
    // Growth stays below it too: more than one block of 24 MiB for these.
    Bytes buffers[60];
    for (int i = 0; i < 60; i++) paint_fresh(buffers[i], kMiB, i);
    for (int i = 0; i < 60; i++) EXPECT_TRUE(holds(buffers[i], i));
    EXPECT_TRUE(holds(small, 3));
}

// The block that would have to go is still in use by the GPU: waiting for it is better than an error.
TEST_F(GpuMemoryPressure, AShortageWaitsForTheGpu) {
    ASSERT_TRUE(hv_layer_limit("allocatedBytes", 80 * kMiB));
    Bytes first, second, in(20000), out(20000);
    fill(in, [](const int *p) { return p[0]; });
    ASSERT_OK(slow(in, out));
    paint_fresh(first, 40 * kMiB, 1);
    first.device_free();
    paint_fresh(second, 50 * kMiB, 2);
    EXPECT_TRUE(holds(second, 2));
    ASSERT_OK(out.copy_to_host());
    EXPECT_TRUE(matches(out, [](const int *p) { return slow_value((uint8_t)p[0]); }));
}

// A heap of the size of a small window is the device's only memory of its own, and the CPU sees it: when it is full,
// buffers go to the host's.
TEST_F(GpuMemoryPressure, AWindowThatFillsUp) {
    set_memory({kWindow, kHost, kCachedHost});
    ASSERT_TRUE(hv_layer_limit("heapSize.0", 64 * kMiB));
    Bytes buffers[10];
    for (int i = 0; i < 10; i++) {
        if (i % 2) {
            paint_fresh(buffers[i], 15 * kMiB, i);
            continue;
        }
        buffers[i] = Bytes(15 * (int)kMiB);
        for (int k = 0; k < buffers[i].dim(0).extent(); k++) buffers[i].data()[k] = (uint8_t)(i + (k & 15));
        buffers[i].set_host_dirty();
        ASSERT_OK(buffers[i].copy_to_device(vulkan_interface()));
    }
    for (int i = 0; i < 10; i++) EXPECT_TRUE(holds(buffers[i], i));
}

// The window lies beside the device's memory, and other programs have filled it: what is small and written by the CPU
// (the arguments of kernels) finds another place.
TEST_F(GpuMemoryPressure, AWindowThatIsFullFromTheStart) {
    set_memory({kDevice, kWindow, kHost, kCachedHost});
    ASSERT_TRUE(hv_layer_limit("heapSize.2", 4096));
    Bytes buffers[3];
    for (int i = 0; i < 3; i++) paint_fresh(buffers[i], 5 * kMiB + i, i);
    for (int i = 0; i < 3; i++) EXPECT_TRUE(holds(buffers[i], i));
}

// The same beside 40 whole uploads, each with a kernel on it: 5 of 8 parts would not fit the window. HV_FULL=1: a
// window of 256 MiB and uploads of 32, as GPUs without a resizable window have it.
TEST_F(GpuMemoryPressure, FortyUploadsBesideAWindow) {
    const int64_t bytes = (std::getenv("HV_FULL") ? 32 : 2) * kMiB;
    set_memory({kDevice, kWindow, kHost, kCachedHost});
    ASSERT_TRUE(hv_layer_limit("heapSize.2", 8 * bytes));
    Var x("x"), xi("xi");
    ImageParam in(UInt(8), 1, "in");
    Func f("f");
    f(x) = in(x) + cast<uint8_t>(1);
    f.gpu_tile(x, xi, 256, TailStrategy::GuardWithIf);
    Callable add_one = f.compile_to_callable({in}, gpu_target());
    Bytes host((int)bytes), back((int)bytes);
    std::vector<Bytes> buffers;
    for (int i = 0; i < 40; i++) {
        // Device memory of its own, over the same host memory.
        buffers.emplace_back(host.data(), (int)bytes);
        for (int64_t k = 0; k < bytes; k++) host.data()[k] = (uint8_t)(i * 5 + (k & 15));
        buffers[i].set_host_dirty();
        ASSERT_OK(add_one(buffers[i], buffers[i]));
    }
    for (int i = 0; i < 40; i++) {
        ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, buffers[i].raw_buffer(), nullptr, back.raw_buffer()));
        ASSERT_TRUE(matches(back, [&](const int *p) { return (uint8_t)(i * 5 + (p[0] & 15) + 1); })) << i;
        buffers[i].set_device_dirty(false);
    }
}

// Buffers whose copies are only recorded when they are freed, more of them in all than the device has, with no sync in
// between. HV_FULL=1: of 1 GiB each. HV_DEVICE_GIB=n: on a device with n GiB of memory, all of it.
TEST_F(GpuMemoryPressure, MoreIsFreedThanThereIs) {
    const bool whole = std::getenv("HV_DEVICE_GIB") != nullptr;
    const int64_t bytes = (whole || std::getenv("HV_FULL") ? 1024 : 16) * kMiB;
    const int count = whole ? std::atoi(std::getenv("HV_DEVICE_GIB")) + 8 : 12;
    ASSERT_TRUE(whole || hv_layer_limit("allocatedBytes", 5 * bytes));
    Bytes last(nullptr, (int)bytes);
    ASSERT_OK(last.device_malloc(vulkan_interface()));
    Bytes fresh;
    for (int i = 0; i < count; i++) {
        paint_fresh(fresh, bytes, i);
        ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, fresh.raw_buffer(), vulkan_interface(), last.raw_buffer()));
        fresh.set_device_dirty(false);
        ASSERT_OK(fresh.device_free());
    }
    EXPECT_TRUE(holds(last, count - 1));
    last.set_device_dirty(false);
}

// A driver has been seen to report a budget above the size of its heap: no block grows beyond what is there, so nothing
// is refused.
TEST_F(GpuMemoryPressure, ABudgetAboveTheHeapIsTheHeap) {
    ASSERT_TRUE(hv_layer_limit("heapBudget.0", 10000 * kMiB));
    ASSERT_TRUE(hv_layer_limit("heapSize.0", 50 * kMiB));
    hv_layer_log(1);
    hv_layer_reset();
    Bytes buffers[40];
    for (int i = 0; i < 40; i++) paint_fresh(buffers[i], kMiB, i);
    int result = 0, refused = 0;
    for (uint64_t i = 0; const char *call = hv_layer_logged(i, &result); i++)
        refused += std::strcmp(call, "vkAllocateMemory") == 0 && result != 0;
    hv_layer_log(0);
    EXPECT_EQ(refused, 0);
    for (int i = 0; i < 40; i++) EXPECT_TRUE(holds(buffers[i], i));
}

// Refused once while work is in flight: what is in flight ends, the submit is tried again, and nobody notices.
TEST_F(GpuMemoryPressure, ASubmitThatIsOutOfMemoryIsTriedAgain) {
    Bytes in(20000), out(20000), next;
    fill(in, [](const int *p) { return p[0]; });
    ASSERT_OK(slow(in, out));  // compiled, uploaded
    sync();
    for (int i = 0; i < 3; i++) {
        ASSERT_OK(slow(in, out));
        // The kernel is on its way, by itself or by the flusher.
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        const uint64_t failed = hv_layer_failed();
        ASSERT_TRUE(hv_layer_fail("vkQueueSubmit", 1, kOutOfDeviceMemory));
        paint_fresh(next, kMiB, i);
        EXPECT_TRUE(holds(next, i));
        EXPECT_EQ(hv_layer_failed(), failed + 1);
        ASSERT_OK(out.copy_to_host());
        EXPECT_TRUE(matches(out, [](const int *p) { return slow_value((uint8_t)p[0]); }));
        next.device_free();
    }
}

class GpuMemoryAge : public GpuMemoryPressure {
protected:
    // Work that needs next to no memory: many submissions, each waited for. Until no more than `bytes` are allocated.
    ::testing::AssertionResult work_until(int64_t bytes, int most_ms) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(most_ms);
        while (std::chrono::steady_clock::now() < end) {
            for (int i = 0; i < 70; i++) {
                paint(i, small);
                sync();
            }
            if ((int64_t)hv_layer_allocated_bytes() <= bytes) return ::testing::AssertionSuccess();
        }
        return ::testing::AssertionFailure() << hv_layer_allocated_bytes() << " bytes are allocated, not " << bytes;
    }
    Bytes small = Bytes(1000);
};

TEST_F(GpuMemoryAge, WhatWasNotUsedForLongGoesBack) {
    setenv("HL_VK_TRIM_MS", "30", 1);
    set_memory({kDevice, kHost, kCachedHost});  // so that downloads need staging
    Bytes kept, freed;
    ASSERT_OK(paint(0, small));
    paint_fresh(kept, 40 * kMiB, 1);
    paint_fresh(freed, 50 * kMiB, 2);
    EXPECT_TRUE(holds(freed, 2));
    freed.device_free();
    EXPECT_GE(hv_layer_allocated_bytes(), (uint64_t)(40 + 50 + 12) * kMiB);  // two rings of staging at least
    EXPECT_TRUE(work_until((40 + 16 + 1) * kMiB, 20000));
    EXPECT_TRUE(holds(kept, 1));
    // And comes back when needed.
    paint_fresh(freed, 50 * kMiB, 3);
    EXPECT_TRUE(holds(freed, 3));
}

TEST_F(GpuMemoryAge, NeverIfSwitchedOff) {
    setenv("HL_VK_TRIM_MS", "0", 1);
    Bytes freed;
    paint_fresh(freed, 50 * kMiB, 2);
    freed.device_free();
    sync();
    EXPECT_FALSE(work_until(49 * kMiB, 100));
    EXPECT_GE(hv_layer_allocated_bytes(), (uint64_t)50 * kMiB);
}

// A block that is used again and again, and free in between, stays: no driver call for it, however long that goes.
TEST_F(GpuMemoryAge, WhatIsUsedNowAndThenStays) {
    setenv("HL_VK_TRIM_MS", "30", 1);
    Bytes often;
    ASSERT_OK(paint(0, small));
    paint_fresh(often, 50 * kMiB, 0);
    often.device_free();
    sync();
    hv_layer_reset();
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    for (int i = 0; std::chrono::steady_clock::now() < end; i++) {
        often = Bytes(nullptr, 50 * (int)kMiB);
        ASSERT_OK(often.device_malloc(vulkan_interface()));
        often.device_free();
        for (int k = 0; k < 10; k++) {
            ASSERT_OK(paint(i, small));
            sync();
        }
    }
    EXPECT_EQ(hv_layer_count("vkAllocateMemory"), 0u);
    EXPECT_EQ(hv_layer_count("vkFreeMemory"), 0u);
}

}  // namespace
