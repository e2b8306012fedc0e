// An upload that overwrites a buffer which kernels still read: it does not wait for them, and they read the old
// content.
//
// The buffer gets other memory then, and its crops with it; but not where the application knows its VkBuffer, nor where
// a part of the old content stays. Counted at the driver: no wait; where the CPU can write the device's memory, no copy
// command either; where it cannot, no barrier between the kernel that reads and the copy. Memory stays flat.
//
// Needs HL_VK_LAYERS=VK_LAYER_HALIDEVULKAN_count and HL_VK_FLUSH=count (CMakeLists.txt), so that what is in a batch
// does not depend on time. Stock: fails (each upload waits for the queue).

#include "support.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<uint32_t, 1>;

constexpr int kWords = 16384;  // 64 KiB

bool cpu_sees_device_memory() {
    const char *direct = std::getenv("HL_VK_DIRECT");
    return !std::getenv("HV_TEST_MEMORY") && !(direct && std::strcmp(direct, "0") == 0);
}

class GpuBusyUploads : public ::testing::Test {
protected:
    Callable &slow = *pipeline();
    Words in = Words(kWords);

    // Takes a while on a software device, and reads all of its input.
    static Callable *pipeline() {
        static Callable *compiled = [] {
            Var x("x"), xi("xi");
            ImageParam input(UInt(32), 1, "input");
            Func f("slow"), walk("walk");
            RDom r(0, 200);
            walk(x) = input(x);
            walk(x) = walk(x) * Expr(1664525u) + cast<uint32_t>(r);
            f(x) = walk(x);
            f.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
            walk.compute_at(f, xi);
            return new Callable(f.compile_to_callable({input}, gpu_target()));
        }();
        return compiled;
    }
    static uint32_t result(uint32_t v) {
        for (uint32_t r = 0; r < 200; r++) v = v * 1664525u + r;
        return v;
    }
    static void sync() {
        ASSERT_OK(runtime_call<int(void *, const halide_device_interface_t *)>("halide_device_sync_global")(
            nullptr, vulkan_interface()));
    }
    static uint64_t waits() { return hv_layer_count("vkWaitForFences") + hv_layer_count_prefix("vkQueueWaitIdle"); }

    static uint32_t value(uint32_t salt, int x) { return scramble(salt * 100003u + (uint32_t)x); }
    void fill_with(uint32_t salt) {
        for (int x = 0; x < kWords; x++) in(x) = value(salt, x);
        in.set_host_dirty();
    }
    ::testing::AssertionResult computed_from(Words &out, uint32_t salt) {
        const int code = out.copy_to_host();
        if (code != 0) return ::testing::AssertionFailure() << "copy_to_host returned " << code;
        return matches(out, [&](const int *p) { return result(value(salt, p[0])); });
    }
    // Kernels compiled, memory and staging there, nothing in flight.
    void warm_up() {
        Words out(kWords);
        for (uint32_t i = 0; i < 3; i++) {
            fill_with(1000 + i);
            ASSERT_OK(slow(in, out));
            ASSERT_TRUE(computed_from(out, 1000 + i));
        }
        sync();
        hv_layer_reset();
    }
};

TEST_F(GpuBusyUploads, NoWaitNoCopyNoBarrier) {
    warm_up();
    Words first(kWords), second(kWords);
    fill_with(1);
    ASSERT_OK(slow(in, first));
    hv_layer_reset();
    fill_with(2);
    ASSERT_OK(in.copy_to_device(vulkan_interface()));
    EXPECT_EQ(waits(), 0u);
    EXPECT_EQ(hv_layer_count("vkCmdPipelineBarrier"), 0u);
    if (cpu_sees_device_memory()) {
        EXPECT_EQ(hv_layer_count("vkCmdCopyBuffer"), 0u);
    } else {
        EXPECT_EQ(hv_layer_count("vkCmdCopyBuffer"), 1u);
    }
    ASSERT_OK(slow(in, second));
    EXPECT_TRUE(computed_from(second, 2));
    EXPECT_TRUE(computed_from(first, 1));
}

// More than may be replaced at a time, without a sync: each kernel reads what was uploaded before it.
TEST_F(GpuBusyUploads, ManyInARow) {
    warm_up();
    std::vector<Words> outs;
    for (uint32_t i = 0; i < 150; i++) {
        outs.emplace_back(kWords);
        fill_with(i);
        ASSERT_OK(slow(in, outs.back()));
    }
    for (uint32_t i = 0; i < 150; i++) ASSERT_TRUE(computed_from(outs[i], i)) << i;
}

// After the first uploads all of staging is there. On a GPU a ring of it, made when all before are busy, may come late,
// when the device is slow for once. Four are the most: of five rounds one at least allocates nothing.
TEST_F(GpuBusyUploads, MemoryStaysFlat) {
    warm_up();
    Words out(kWords);
    uint32_t i = 0;
    const auto uploads = [&](uint32_t count) {
        for (const uint32_t end = i + count; i < end; i++) {
            in(0) = i;
            in.set_host_dirty();
            ASSERT_OK(in.copy_to_device(vulkan_interface()));
            if (i % 4 == 0) {
                ASSERT_OK(slow(in, out));
            }
        }
    };
    uploads(1000);
    const int rounds = hv_layer_is_cpu() ? 1 : 5;
    for (int round = 0; round < rounds && !HasFatalFailure(); round++) {
        hv_layer_reset();
        uploads(2000);
        if (hv_layer_count("vkAllocateMemory") == 0) break;
    }
    EXPECT_EQ(hv_layer_count("vkAllocateMemory"), 0u);
    sync();
}

TEST_F(GpuBusyUploads, CropsFollow) {
    warm_up();
    Words first(kWords), second(kWords);
    fill_with(1);
    ASSERT_OK(slow(in, first));
    Words crop = in.cropped(0, 100, 5000);  // of the device side too
    fill_with(2);
    ASSERT_OK(in.copy_to_device(vulkan_interface()));
    crop.set_host_dirty(false);
    Words window(5000);
    window.set_min(100);
    ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, crop.raw_buffer(), nullptr, window.raw_buffer()));
    EXPECT_TRUE(matches(window, [&](const int *p) { return value(2, p[0]); }));
    ASSERT_OK(slow(in, second));
    // Through the crop only its own part is overwritten.
    for (int x = 100; x < 5100; x++) crop(x) = value(3, x);
    crop.set_host_dirty();
    ASSERT_OK(crop.copy_to_device(vulkan_interface()));
    Words third(kWords);
    ASSERT_OK(slow(in, third));
    ASSERT_OK(third.copy_to_host());
    EXPECT_TRUE(matches(third, [&](const int *p) { return result(value(p[0] >= 100 && p[0] < 5100 ? 3 : 2, p[0])); }));
    EXPECT_TRUE(computed_from(second, 2));
    EXPECT_TRUE(computed_from(first, 1));
}

// An upload of a part, while kernels read: the rest stays.
TEST_F(GpuBusyUploads, APartLeavesTheRest) {
    warm_up();
    Words first(kWords), second(kWords);
    fill_with(1);
    ASSERT_OK(slow(in, first));
    // Two parts: at the begin, and at the end.
    for (int begin : {0, kWords - 1000}) {
        Words part(1000);
        part.set_min(begin);
        for (int x = begin; x < begin + 1000; x++) part(x) = value(2, x);
        part.set_host_dirty();
        ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, part.raw_buffer(), vulkan_interface(), in.raw_buffer()));
    }
    in.set_host_dirty(false);
    ASSERT_OK(slow(in, second));
    ASSERT_OK(second.copy_to_host());
    EXPECT_TRUE(matches(
        second, [&](const int *p) { return result(value(p[0] < 1000 || p[0] >= kWords - 1000 ? 2 : 1, p[0])); }));
    EXPECT_TRUE(computed_from(first, 1));
}

// Who knows the buffer's VkBuffer sees what is uploaded later.
TEST_F(GpuBusyUploads, AKnownVkBufferStays) {
    warm_up();
    Words first(kWords), second(kWords);
    fill_with(1);
    ASSERT_OK(slow(in, first));
    auto *get = runtime_call<uintptr_t(void *, halide_buffer_t *)>("halide_vulkan_get_vk_buffer");
    const uintptr_t known = get(nullptr, in.raw_buffer());
    ASSERT_NE(known, 0u);
    sync();
    fill_with(2);
    ASSERT_OK(slow(in, second));
    fill_with(3);
    ASSERT_OK(in.copy_to_device(vulkan_interface()));
    EXPECT_EQ(get(nullptr, in.raw_buffer()), known);
    Words same(kWords);
    ASSERT_OK(same.device_wrap_native(vulkan_interface(), known));
    same.set_device_dirty();
    ASSERT_OK(same.copy_to_host());
    EXPECT_TRUE(matches(same, [&](const int *p) { return value(3, p[0]); }));
    same.device_detach_native();
    EXPECT_TRUE(computed_from(second, 2));
    EXPECT_TRUE(computed_from(first, 1));
    EXPECT_GE(hv_layer_count("vkCmdCopyBuffer"), 1u) << "nothing of ours writes such memory directly";
}

// Buffers that come and go between: what is parked for the GPU is found again, and nothing overlaps.
TEST_F(GpuBusyUploads, AmongMallocsAndFrees) {
    warm_up();
    std::mt19937 random(5);
    struct Running {
        Words out;
        uint32_t salt;
    };
    std::vector<Running> running;
    Words inputs[4] = {Words(kWords), Words(kWords), Words(kWords), Words(kWords)};
    for (uint32_t i = 0; i < 400; i++) {
        Words &input = inputs[random() % 4];
        for (int x = 0; x < kWords; x++) input(x) = value(i, x);
        input.set_host_dirty();
        running.push_back({Words(kWords), i});
        ASSERT_OK(slow(input, running.back().out));
        if (random() % 3 == 0) input.device_free();
        while (running.size() > 12) {
            const size_t k = random() % running.size();
            if (random() % 2) {
                ASSERT_TRUE(computed_from(running[k].out, running[k].salt)) << i;
            }
            std::swap(running[k], running.back());
            running.pop_back();
        }
    }
    for (Running &r : running) ASSERT_TRUE(computed_from(r.out, r.salt));
}

// Memory that is the host's own: all of it, at full speed. What a discrete GPU lets the CPU see is not.
bool is_unified() { return hv_layer_is_integrated() || hv_layer_is_cpu(); }

// Unified memory needs no copy by the GPU, whatever the size.
TEST_F(GpuBusyUploads, LargeUploadsToUnifiedMemory) {
    Words large(4 << 20);  // 16 MiB
    for (uint32_t round = 0; round < 3; round++) {
        for (int x = 0; x < large.dim(0).extent(); x++) large.data()[x] = value(round, x);
        large.set_host_dirty();
        hv_layer_reset();
        ASSERT_OK(large.copy_to_device(vulkan_interface()));
        if (cpu_sees_device_memory() && is_unified()) {
            EXPECT_EQ(hv_layer_count("vkCmdCopyBuffer"), 0u);
        }
        Words head(1000), back(1000);
        back.set_min((4 << 20) - 1000);
        for (Words *window : {&head, &back}) {
            large.set_host_dirty(false);
            large.set_device_dirty();
            ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, large.raw_buffer(), nullptr, window->raw_buffer()));
            EXPECT_TRUE(matches(*window, [&](const int *p) { return value(round, p[0]); }));
            large.set_device_dirty(false);
        }
    }
    if (!is_unified()) GTEST_SKIP() << "a discrete GPU: the values are right, and copies by the GPU are allowed";
}

}  // namespace
